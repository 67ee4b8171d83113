//! What gives a pod the size of real ones, about 8 KB. Must not know what is measured.

use serde_json::{Map, Value, json};

/// Adds environment, volumes and managed fields to a pod with one container at least.
pub(crate) fn load(pod: &mut Value) {
    let env: Vec<Value> = (0..30)
        .map(|n| json!({"name": format!("SETTING_{n}"), "value": format!("value-of-setting-{n}")}))
        .collect();
    let volumes: Vec<Value> = (0..6)
        .map(|n| json!({"name": format!("volume-{n}"), "configMap": {"name": format!("configuration-{n}")}}))
        .collect();
    let fields: Map<String, Value> =
        (0..40).map(|n| (format!("f:field-number-{n}"), json!({"f:value": {}, "f:name": {}}))).collect();
    pod["spec"]["containers"][0]["env"] = env.into();
    pod["spec"]["volumes"] = volumes.into();
    pod["metadata"]["managedFields"] = json!([{
        "manager": "kube-controller-manager", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": fields,
    }]);
}
