//! The JSON Schemas of what is read and written, made from the types: `docs/schema` holds them, a test compares.

use schemars::Schema;
use schemars::generate::SchemaSettings;

use super::format::Snapshot;
use super::report::ScanReport;

/// Of a snapshot, as it is read.
pub fn snapshot_schema() -> Schema {
    SchemaSettings::draft2020_12().for_deserialize().into_generator().into_root_schema_for::<Snapshot>()
}

/// Of a report, as it is written.
pub fn report_schema() -> Schema {
    SchemaSettings::draft2020_12().for_serialize().into_generator().into_root_schema_for::<ScanReport>()
}
