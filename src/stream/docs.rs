//! The schemas of the events, and the page about them.

use std::fmt::Write as _;

use schemars::generate::SchemaSettings;
use schemars::{Schema, SchemaGenerator};

use super::event::EventKind;
use super::hub::{KEPT_BYTES, KEPT_EVENTS};
use super::state::State;

fn generator() -> SchemaGenerator {
    SchemaSettings::draft2020_12().for_serialize().into_generator()
}

/// The JSON Schema of each event, and of the state, with the names of their files in `docs/schema`.
pub fn schemas() -> Vec<(String, Schema)> {
    let events = EventKind::ALL.iter().map(|kind| {
        let mut schema = kind.schema(generator());
        if let Some(type_) = schema.pointer_mut("/properties/type") {
            type_["const"] = kind.type_name().into();
        }
        (file(*kind), schema)
    });
    let state = generator().into_root_schema_for::<State>();
    events.chain([("watchdog-state-v1.json".to_owned(), state)]).collect()
}

fn file(kind: EventKind) -> String {
    let name = kind.type_name().trim_start_matches("cilium-leak-healer.").replace(".v", "-v");
    format!("events/{name}.json")
}

/// `docs/events.md`.
pub fn document() -> String {
    let mut table = String::new();
    for kind in EventKind::ALL {
        let (word, type_, file) = (kind.as_str(), kind.type_name(), file(*kind));
        // A String takes all that is written to it.
        let _ = writeln!(table, "| `{word}` | `{type_}` | {} | [schema](schema/{file}) |", kind.meaning());
    }
    include_str!("events.md.tmpl")
        .replace("{{table}}", table.trim_end())
        .replace("{{kept_events}}", &KEPT_EVENTS.to_string())
        .replace("{{kept_kib}}", &(KEPT_BYTES / 1024).to_string())
}
