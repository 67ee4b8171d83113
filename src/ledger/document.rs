//! The form of the file, which is also what the verb `ledger` prints as JSON. Must not know how a file is written.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema};
use serde::{Deserialize, Serialize};

use super::form::parsed;
use super::options::BoundOptions;
use super::state::State;
use crate::domain::NodeName;

/// The file's name in its directory.
pub(super) const FILE: &str = "ledger.json";
/// No file of ours is larger.
pub(super) const MAX_SIZE: u64 = 4 << 20;
/// What the file says it is.
const FORMAT: &str = "cilium-leak-healer/ledger";
/// The only form that is read or written. Any change of the form is a new version.
const VERSION: u64 = 1;

/// A ledger as it was written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(rename = "Ledger")]
pub struct Snapshot {
    /// Always `cilium-leak-healer/ledger`.
    format: String,
    /// The version of this form: 1.
    version: u64,
    /// The node that it is about.
    #[serde(with = "parsed")]
    #[schemars(with = "String")]
    node: NodeName,
    /// When it was written.
    written: Timestamp,
    /// The bounds of the process that wrote it.
    bounds: BoundOptions,
    /// What was done and refused, and what is left of the bounds.
    state: State,
}

/// Just enough to tell whose a file is.
#[derive(Deserialize)]
struct Envelope {
    format: Option<String>,
    version: Option<u64>,
}

/// A ledger that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// There is none.
    #[error("{}: there is no ledger", path.display())]
    Missing {
        /// Where one would be.
        path: PathBuf,
    },
    /// The system did not let it be read.
    #[error("{}: cannot be read", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// It is no ledger that this version knows.
    #[error("{}: {why}", path.display())]
    Bad {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
}

impl Snapshot {
    pub(super) fn new(node: NodeName, written: Timestamp, bounds: BoundOptions, state: State) -> Self {
        Self { format: FORMAT.to_owned(), version: VERSION, node, written, bounds, state }
    }

    /// The node that it is about.
    pub fn node(&self) -> &NodeName {
        &self.node
    }

    /// When it was written.
    pub fn written(&self) -> Timestamp {
        self.written
    }

    /// The bounds of the process that wrote it.
    pub fn bounds(&self) -> &BoundOptions {
        &self.bounds
    }

    /// What was done and refused, and what is left of the bounds.
    pub fn state(&self) -> &State {
        &self.state
    }

    pub(super) fn into_state(self) -> State {
        self.state
    }

    /// Reads what a file holds; the error is what is wrong with it.
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, String> {
        let torn = |error: serde_json::Error| format!("it is torn, or no ledger: {error}");
        let Envelope { format, version } = serde_json::from_slice(bytes).map_err(torn)?;
        if format.as_deref() != Some(FORMAT) {
            return Err(format!("it is no ledger: \"format\" is not {FORMAT:?}"));
        }
        match version {
            Some(VERSION) => {}
            Some(version) => {
                return Err(format!("its version is {version}, and this program knows {VERSION}"));
            }
            None => return Err("it has no version".to_owned()),
        }
        let snapshot: Self = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
        snapshot.state.verify().map_err(|error| error.to_string())?;
        Ok(Self { state: snapshot.state.harmless(), ..snapshot })
    }

    /// Reads the ledger of a directory, whoever writes it meanwhile.
    pub(super) fn read(dir: &Path) -> Result<Self, ReadError> {
        let path = dir.join(FILE);
        match contents(&path) {
            Ok(Contents::Bytes(bytes)) => Self::parse(&bytes).map_err(|why| ReadError::Bad { path, why }),
            Ok(Contents::None) => Err(ReadError::Missing { path }),
            Ok(Contents::Not(why)) => Err(ReadError::Bad { path, why }),
            Err(source) => Err(ReadError::Unreadable { path, source }),
        }
    }
}

/// What stands at a path.
pub(super) enum Contents {
    /// Nothing.
    None,
    /// A file of a size that ours have.
    Bytes(Vec<u8>),
    /// Something that we never write.
    Not(String),
}

/// Reads a regular file, and follows no link.
pub(super) fn contents(path: &Path) -> io::Result<Contents> {
    use std::io::Read as _;

    let seen = match fs::symlink_metadata(path) {
        Ok(seen) => seen,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Contents::None),
        Err(error) => return Err(error),
    };
    if !seen.is_file() {
        return Ok(Contents::Not("it is no regular file".to_owned()));
    }
    let mut bytes = Vec::new();
    fs::File::open(path)?.take(MAX_SIZE + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_SIZE {
        return Ok(Contents::Not(format!("it is larger than {MAX_SIZE} bytes")));
    }
    Ok(Contents::Bytes(bytes))
}

/// The JSON Schema of a ledger, as it is written.
pub fn schema() -> Schema {
    SchemaSettings::draft2020_12().for_serialize().into_generator().into_root_schema_for::<Snapshot>()
}
