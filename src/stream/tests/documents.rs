use serde_json::Value;

use super::*;
use crate::stored::{Made, is_stored, schema_is_stored};

/// `UPDATE_SCHEMAS=1` writes them anew.
#[test]
fn the_stored_schemas_are_those_of_the_types() {
    for (file, schema) in schemas() {
        schema_is_stored(&file, &schema);
    }
}

/// `UPDATE_DOCS=1` writes it anew.
#[test]
fn the_page_on_events_is_that_of_the_types() {
    is_stored("events.md", &document(), Made::Page);
}

#[test]
fn each_schema_is_of_one_type_and_describes_its_data() {
    for kind in EventKind::ALL {
        let name = format!("{}-v1.json", kind.as_str());
        let (_, schema) = schemas().into_iter().find(|(file, _)| file.ends_with(&name)).unwrap();
        let schema: Value = schema.into();
        assert_eq!(schema["properties"]["type"]["const"], kind.type_name());
        let data = schema["properties"]["data"]["$ref"].as_str().unwrap().replace("#/$defs/", "");
        assert!(schema["$defs"][&data]["properties"]["node"].is_object(), "{kind:?}: {schema}");
    }
}

#[test]
fn the_example_of_the_page_is_an_event() {
    let page = document();
    let lines = page.lines().skip_while(|line| !line.contains("\"specversion\""));
    let example: String = lines.take_while(|line| line.starts_with("    ")).collect();
    let event = CloudEvent::parse(example.as_bytes()).unwrap();
    let Event::Acted(acted) = event.data else { panic!("{event:?}") };
    assert_eq!((acted.outcome.as_str(), acted.heal_latency_seconds), ("healed", Some(12)));
    assert!(event.id.parse::<Position>().is_ok());
}
