//! Files on the disk, and what is in them.

use std::fs;
use std::os::unix::fs::symlink;

use super::{cases, judged, load};
use crate::snapshot::{MAX_SIZE, Problem, Snapshot};

#[test]
fn judging_a_saved_snapshot_gives_what_the_first_one_gave() {
    let dir = tempfile::tempdir().unwrap();
    for path in cases() {
        let first = load(&path);
        let saved = dir.path().join("saved.json");
        let size = first.save(&saved).unwrap();
        assert_eq!(fs::metadata(&saved).unwrap().len(), size);
        assert_eq!(judged(&load(&saved)), judged(&first), "{}", path.display());
    }
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "a temporary file was left");
}

#[test]
fn no_secret_is_saved() {
    let text = r#"
takenAt: "2026-06-18T10:05:00Z"
cluster:
  pods:
  - metadata:
      name: a
      namespace: b
      uid: c
      labels: {k8s-app: cilium, license: SECRET-label, kubevirt.io/vm: vm}
      annotations:
        kubectl.kubernetes.io/last-applied-configuration: SECRET-annotation
        kubernetes.io/config.mirror: mirror
      managedFields: [{manager: SECRET-manager}]
      finalizers: [SECRET-finalizer]
    spec:
      nodeName: worker-1
      containers: [{name: app, image: SECRET-image, env: [{name: TOKEN, value: SECRET-env}]}]
    status:
      phase: Failed
      message: SECRET-message
      conditions: [{type: Ready, status: "False", message: SECRET-condition}]
      containerStatuses:
      - {name: app, state: {terminated: {message: SECRET-termination, exitCode: 1}}, image: SECRET-image}
  events:
  - metadata: {namespace: b, name: e, annotations: {x: SECRET-event}}
    involvedObject: {uid: c, name: SECRET-object}
  nodes:
  - metadata: {name: worker-1, annotations: {x: SECRET-node}, labels: {x: SECRET-node-label}}
  ciliumNodes:
  - metadata: {name: worker-1, annotations: {x: SECRET-cilium-node}}
    spec: {encryption: {key: SECRET-key}}
  ciliumEndpoints:
  - metadata: {name: a, namespace: b, labels: {x: SECRET-cep}}
    status: {id: 7, identity: {labels: ["k8s:x=SECRET-identity"]}}
agents:
  worker-1:
    config: {status: {ipam-mode: cluster-pool, daemonConfigurationMap: {Token: SECRET-config}}}
    endpoints:
    - id: 7
      status:
        controllers: [{name: "sync-SECRET"}, {name: resolve-labels-b/a}]
        identity: {labels: ["k8s:x=SECRET-label", "reserved:init", "k8s:io.kubernetes.pod.namespace=b"]}
        log: [{state: ready, message: SECRET-log, timestamp: "2026-06-18T08:00:00Z"}]
"#;
    let saved = serde_json::to_string(&Snapshot::from_str(text).unwrap()).unwrap();
    assert!(!saved.contains("SECRET"), "{saved}");
    for kept in
        ["k8s-app", "kubevirt.io/vm", "config.mirror", "resolve-labels-b/a", "reserved:init", "terminated"]
    {
        assert!(saved.contains(kept), "{kept} is lost: {saved}");
    }
}

#[test]
fn files_that_cannot_be_read() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let problem = |name: &str| {
        let error = Snapshot::load(&path(name)).expect_err(name);
        assert!(error.to_string().starts_with(&path(name).display().to_string()), "{error}");
        error.problem
    };
    assert!(matches!(problem("absent"), Problem::Read(_)));
    assert!(matches!(problem("."), Problem::Directory));
    fs::write(path("empty"), "").unwrap();
    assert!(matches!(problem("empty"), Problem::Empty));
    fs::write(path("binary"), [b'a', 0xff, 0xfe]).unwrap();
    assert!(matches!(problem("binary"), Problem::NotText(1)));
    fs::File::create(path("large")).unwrap().set_len(MAX_SIZE + 1).unwrap();
    assert!(matches!(problem("large"), Problem::TooLarge));
}

#[test]
fn saving_replaces_the_whole_file_or_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let snapshot = load(&cases()[0]);
    let (file, link) = (dir.path().join("a.json"), dir.path().join("link.json"));
    fs::write(&file, "old").unwrap();
    symlink(&file, &link).unwrap();
    snapshot.save(&link).unwrap();
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert_eq!(judged(&load(&file)), judged(&snapshot));
    let error = snapshot.save(&dir.path().join("no-such-directory/a.json")).expect_err("no directory");
    assert!(matches!(error.problem, Problem::Write(_)), "{error}");
    assert!(snapshot.save(dir.path()).is_err(), "a directory was overwritten");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2, "a temporary file was left");
}
