use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kube::Client;
use rstest::rstest;
use serde_json::{Value, json};
use tokio::time::{Instant, advance};

use super::fake::{Answer, Asked, Log, TIMEOUT, client, status};
use crate::clock::WallClock;
use crate::domain::{ReadFailure, Unreadable};
use crate::kube::{Leases, NoLease, PodStore, Reader};

const TTL: Duration = Duration::from_mins(2);

/// Leases as the API server keeps them: a PUT in an old version is a 409.
#[derive(Clone, Default)]
struct Store(Arc<Mutex<BTreeMap<String, Value>>>);

impl Store {
    fn with(names: &[&str]) -> Self {
        let store = Self::default();
        for name in names {
            store.set(name, &json!({}));
        }
        store
    }

    fn set(&self, name: &str, spec: &Value) {
        let mut all = self.0.lock().unwrap();
        let version = all.values().map(version).max().unwrap_or(0) + 1;
        let metadata = json!({"name": name, "namespace": "ns", "uid": name, "labels": {"kept": "yes"},
                              "resourceVersion": version.to_string()});
        all.insert(name.to_owned(), json!({"metadata": metadata, "spec": spec}));
    }

    fn spec(&self, name: &str) -> Value {
        self.0.lock().unwrap()[name]["spec"].clone()
    }

    fn holder(&self, name: &str) -> Option<String> {
        self.spec(name)["holderIdentity"].as_str().map(str::to_owned)
    }

    fn answer(&self, asked: &Asked) -> Answer {
        let name = asked.path.rsplit('/').next().unwrap().to_owned();
        assert_eq!(asked.path, format!("/apis/coordination.k8s.io/v1/namespaces/ns/leases/{name}"));
        let Some(now) = self.0.lock().unwrap().get(&name).cloned() else {
            return status(404, "NotFound", &format!("leases.coordination.k8s.io \"{name}\" not found"));
        };
        match asked.method.as_str() {
            "GET" => Some((200, now)),
            "PUT" if asked.body["metadata"]["resourceVersion"] == now["metadata"]["resourceVersion"] => {
                assert_eq!(
                    asked.body["metadata"]["labels"]["kept"], "yes",
                    "a PUT must keep what it does not mean"
                );
                assert_ne!(asked.body["spec"]["holderIdentity"], "", "an empty holder need not be valid");
                self.set(&name, &asked.body["spec"]);
                Some((200, self.0.lock().unwrap()[&name].clone()))
            }
            "PUT" => status(409, "Conflict", "the object has been modified"),
            other => panic!("{other} {name}"),
        }
    }
}

fn version(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap()
}

fn leases(client: &Client, names: &[&str], node: &str) -> Leases {
    let reader = Reader::new(client.clone(), TIMEOUT, PodStore::default());
    let names = names.iter().map(|name| (*name).to_owned()).collect();
    Leases::new(Arc::new(reader), "ns".to_owned(), names, node.parse().unwrap(), TTL, WallClock::system())
}

fn serve(store: &Store) -> (Client, Log) {
    let store = store.clone();
    client(move |asked| store.answer(asked))
}

fn held_by(error: &NoLease) -> Vec<&str> {
    match error {
        NoLease::AllHeld { by } => by.iter().map(String::as_str).collect(),
        other => panic!("{other}"),
    }
}

#[tokio::test(start_paused = true)]
async fn one_of_two_nodes_gets_the_lease_and_the_other_after_its_release() {
    let store = Store::with(&["a"]);
    let (client, _) = serve(&store);
    let (one, two) = (leases(&client, &["a"], "n1"), leases(&client, &["a"], "n2"));
    let before = Instant::now();
    let held = one.acquire().await.unwrap();
    assert_eq!((held.name(), held.until()), ("a", before + TTL));
    assert!(held.lasts(TTL) && !held.lasts(TTL + Duration::from_secs(1)));
    let spec = store.spec("a");
    assert_eq!((&spec["holderIdentity"], &spec["leaseDurationSeconds"]), (&json!("n1"), &json!(120)));
    assert_eq!(spec["leaseTransitions"], 1);
    assert!(spec["acquireTime"].is_string() && spec["acquireTime"] == spec["renewTime"]);
    assert_eq!(held_by(&two.acquire().await.unwrap_err()), ["n1"]);
    one.release(held).await.unwrap();
    assert_eq!(store.spec("a"), json!({"leaseTransitions": 1}));
    two.acquire().await.unwrap();
    assert_eq!(store.holder("a").as_deref(), Some("n2"));
}

#[tokio::test(start_paused = true)]
async fn no_more_nodes_act_at_once_than_there_are_leases() {
    let store = Store::with(&["a", "b"]);
    let (client, _) = serve(&store);
    let nodes: Vec<Leases> = (0..8).map(|n| leases(&client, &["a", "b"], &format!("n{n}"))).collect();
    let got = futures::future::join_all(nodes.iter().map(Leases::acquire)).await;
    let held: Vec<&str> = got.iter().flatten().map(super::super::Held::name).collect();
    assert!(held.len() == 2 && held[0] != held[1], "{held:?}");
}

#[tokio::test(start_paused = true)]
async fn a_dead_holders_lease_is_taken_once_it_was_seen_unchanged_for_its_duration() {
    let store = Store::with(&["a"]);
    // Its clock is far behind: that must not matter.
    let record = json!({"holderIdentity": "n1", "leaseDurationSeconds": 60, "renewTime": "2001-01-01T00:00:00.000000Z"});
    store.set("a", &record);
    let (client, _) = serve(&store);
    let two = leases(&client, &["a"], "n2");
    two.acquire().await.unwrap_err();
    advance(Duration::from_secs(59)).await;
    two.acquire().await.unwrap_err();
    // It was alive: the wait begins anew.
    store.set("a", &record);
    two.acquire().await.unwrap_err();
    advance(Duration::from_secs(59)).await;
    assert_eq!(held_by(&two.acquire().await.unwrap_err()), ["n1"]);
    advance(Duration::from_secs(1)).await;
    two.acquire().await.unwrap();
    assert_eq!((store.holder("a").as_deref(), &store.spec("a")["leaseTransitions"]), (Some("n2"), &json!(1)));
}

#[rstest]
#[case::none(json!(null))]
#[case::nonsense(json!(-5))]
#[tokio::test(start_paused = true)]
async fn a_record_without_a_duration_is_valid_as_long_as_ones_own(#[case] duration: Value) {
    let store = Store::with(&["a"]);
    store.set("a", &json!({"holderIdentity": "n1", "leaseDurationSeconds": duration}));
    let (client, _) = serve(&store);
    let two = leases(&client, &["a"], "n2");
    two.acquire().await.unwrap_err();
    advance(TTL.checked_sub(Duration::from_secs(1)).unwrap()).await;
    two.acquire().await.unwrap_err();
    advance(Duration::from_secs(1)).await;
    two.acquire().await.unwrap();
}

/// Whoever may write it must not hold all others up for ever.
#[tokio::test(start_paused = true)]
async fn a_duration_of_years_is_not_believed() {
    let store = Store::with(&["a"]);
    store.set("a", &json!({"holderIdentity": "n1", "leaseDurationSeconds": 2_000_000_000}));
    let (client, _) = serve(&store);
    let two = leases(&client, &["a"], "n2");
    two.acquire().await.unwrap_err();
    advance(Duration::from_mins(59)).await;
    two.acquire().await.unwrap_err();
    advance(Duration::from_mins(1)).await;
    two.acquire().await.unwrap();
}

#[rstest]
#[case("a")]
#[case("b")]
#[case("c")]
#[tokio::test(start_paused = true)]
async fn a_nodes_own_lease_is_taken_again_at_once_and_no_second_one(#[case] own: &str) {
    let names = ["a", "b", "c"];
    let store = Store::with(&names);
    store.set(own, &json!({"holderIdentity": "n1", "leaseDurationSeconds": 3600, "leaseTransitions": 4}));
    let (client, _) = serve(&store);
    let held = leases(&client, &names, "n1").acquire().await.unwrap();
    assert_eq!((held.name(), &store.spec(own)["leaseTransitions"]), (own, &json!(4)));
    assert_eq!(names.iter().filter(|name| store.holder(name).is_some()).count(), 1);
}

#[tokio::test(start_paused = true)]
async fn one_process_holds_one_at_a_time_and_a_dropped_one_is_found_again() {
    let store = Store::with(&["a", "b"]);
    let (client, log) = serve(&store);
    let one = leases(&client, &["a", "b"], "n1");
    let held = one.acquire().await.unwrap();
    let name = held.name().to_owned();
    let asked = log.all().len();
    assert_eq!(held_by(&one.acquire().await.unwrap_err()), ["n1, in this process"]);
    assert_eq!(log.all().len(), asked, "it need not ask for that");
    drop(held);
    assert_eq!(one.acquire().await.unwrap().name(), name);
}

#[tokio::test(start_paused = true)]
async fn a_409_leads_to_the_next_lease() {
    let store = Store::with(&["a", "b"]);
    let serving = store.clone();
    let (client, log) = client(move |asked| {
        // Another node is quicker with whichever comes first.
        if asked.method == "PUT" && !["a", "b"].iter().any(|name| serving.holder(name).is_some()) {
            let name = asked.path.rsplit('/').next().unwrap();
            serving.set(name, &json!({"holderIdentity": "n9"}));
        }
        serving.answer(asked)
    });
    let held = leases(&client, &["a", "b"], "n1").acquire().await.unwrap();
    assert_eq!(store.holder(held.name()).as_deref(), Some("n1"));
    let methods: Vec<String> = log.all().into_iter().map(|asked| asked.method).collect();
    assert_eq!(methods, ["GET", "GET", "PUT", "PUT"]);
}

#[tokio::test(start_paused = true)]
async fn a_409_on_the_only_lease_is_no_lease() {
    let store = Store::with(&["a"]);
    let serving = store.clone();
    let (client, _) = client(move |asked| match asked.method.as_str() {
        "PUT" => status(409, "Conflict", "the object has been modified"),
        _ => serving.answer(asked),
    });
    let error = leases(&client, &["a"], "n1").acquire().await.unwrap_err();
    assert_eq!(held_by(&error), ["a node that was quicker"]);
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_is_not_there_is_passed_over_and_never_made() {
    let store = Store::with(&["b"]);
    let (client, _) = serve(&store);
    assert_eq!(leases(&client, &["a", "b", "c"], "n1").acquire().await.unwrap().name(), "b");
    let (client, log) = serve(&Store::default());
    let error = leases(&client, &["a", "b"], "n1").acquire().await.unwrap_err();
    assert_eq!(error, NoLease::Missing("a or b".to_owned()));
    assert!(log.all().iter().all(|asked| asked.method == "GET"));
}

#[tokio::test(start_paused = true)]
async fn a_release_leaves_alone_what_another_node_took() {
    let store = Store::with(&["a"]);
    let (client, _) = serve(&store);
    let one = leases(&client, &["a"], "n1");
    let held = one.acquire().await.unwrap();
    store.set("a", &json!({"holderIdentity": "n2"}));
    one.release(held).await.unwrap();
    assert_eq!(store.holder("a").as_deref(), Some("n2"));
}

#[tokio::test(start_paused = true)]
async fn a_release_sees_through_a_change_of_something_else() {
    let store = Store::with(&["a"]);
    let (client, _) = serve(&store);
    let one = leases(&client, &["a"], "n1");
    let held = one.acquire().await.unwrap();
    store.set("a", &store.spec("a"));
    one.release(held).await.unwrap();
    assert_eq!(store.holder("a"), None);
}

#[tokio::test(start_paused = true)]
async fn a_record_without_version_is_never_written() {
    let (client, log) =
        client(|_| Some((200, json!({"metadata": {"name": "a", "namespace": "ns"}, "spec": {}}))));
    let error = leases(&client, &["a"], "n1").acquire().await.unwrap_err();
    assert!(
        matches!(&error, NoLease::Unreadable(Unreadable { why: ReadFailure::Undecodable(_), .. })),
        "{error}"
    );
    assert_eq!(log.lines(), ["GET /apis/coordination.k8s.io/v1/namespaces/ns/leases/a"]);
}

#[rstest]
#[case::of_a_read("GET")]
#[case::of_a_write("PUT")]
#[tokio::test(start_paused = true)]
async fn a_hang_ends_with_the_time_out_and_no_other_lease_is_tried(#[case] hangs: &'static str) {
    let store = Store::with(&["a", "b"]);
    let (client, _) = client(move |asked| if asked.method == hangs { None } else { store.answer(asked) });
    let before = Instant::now();
    let error = leases(&client, &["a", "b"], "n1").acquire().await.unwrap_err();
    assert!(matches!(&error, NoLease::Unreadable(Unreadable { why: ReadFailure::Timeout, .. })), "{error}");
    assert_eq!(before.elapsed(), TIMEOUT);
}
