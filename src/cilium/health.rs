//! What the agent says about itself in `GET /healthz`.
//!
//! Pure: bytes in, domain values out. It must not know when it is asked, nor what follows from a version.

use serde::Deserialize;

use super::lenient::{Object, object};
use super::model::NoModel;
use crate::domain::{CiliumVersion, IdError};

/// The version from a `GET /healthz`, short or long: the first word of `cilium.msg`, `1.20.2 (v1.20.2-abcdef)`, behind
/// which an agent that is unwell writes what is wrong. In the first seconds of its start it says that alone.
pub(super) fn version_from_slice(body: &[u8]) -> Result<CiliumVersion, NoModel> {
    #[derive(Deserialize)]
    struct Health {
        #[serde(default, deserialize_with = "object")]
        cilium: State,
    }
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct State {
        msg: Option<String>,
    }
    let msg = serde_json::from_slice::<Object<Health>>(body)?.0.cilium.msg.filter(|msg| !msg.is_empty());
    let msg = msg.ok_or_else(|| NoModel("no cilium.msg in it".to_owned()))?;
    msg.parse().map_err(|error: IdError| NoModel(error.to_string()))
}
