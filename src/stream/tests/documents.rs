use std::path::Path;
use std::{env, fs};

use serde_json::Value;

use super::*;

fn is_stored(file: &str, text: &str, variable: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs").join(file);
    if env::var_os(variable).is_some() {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
    }
    let stored = fs::read_to_string(&path).unwrap_or_default();
    assert!(stored == text, "{} is old: run the tests with {variable}=1", path.display());
}

/// `UPDATE_SCHEMAS=1` writes them anew.
#[test]
fn the_stored_schemas_are_those_of_the_types() {
    for (file, schema) in schemas() {
        let text = serde_json::to_string_pretty(&schema).unwrap() + "\n";
        is_stored(&format!("schema/{file}"), &text, "UPDATE_SCHEMAS");
    }
}

/// `UPDATE_DOCS=1` writes it anew.
#[test]
fn the_page_on_events_is_that_of_the_types() {
    is_stored("events.md", &document(), "UPDATE_DOCS");
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
