//! What one node's agent and API server are asked, against a simulated cluster.

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use rstest::rstest;
use serde_json::json;
use tempfile::TempDir;

use super::fixtures::waiting_pod;
use super::observe::{attachment, holder};
use crate::cilium::{AgentClient, AgentOptions, Wire};
use crate::clock::WallClock;
use crate::domain::{Holder, PodName, RemedyKind};
use crate::engine::{Live, Parts, Sources};
use crate::kube::{AgentStart, Leases, NoLease, PodStore, Reader, connect_to};
use crate::metrics::Metrics;
use crate::sim::{
    ApiOptions, CILIUM_ENDPOINT_SLICES, CILIUM_ENDPOINTS, Cluster, ClusterOptions, Fault, Node, NodeOptions,
    RateLimits,
};

/// When the agent made its socket.
fn made() -> Timestamp {
    "2026-06-18T10:00:00Z".parse().unwrap()
}

fn later() -> Timestamp {
    made() + SignedDuration::from_mins(1)
}

/// The parts of a node of a simulated cluster.
struct Bench {
    cluster: Cluster,
    node: Node,
    live: Live,
    _dir: TempDir,
}

async fn bench(api: ApiOptions) -> Bench {
    let cluster =
        Cluster::start(ClusterOptions { api, seed: Some(1), ..ClusterOptions::default() }).await.unwrap();
    let dir = tempfile::tempdir().unwrap();
    let mut options = NodeOptions::new("n1", 1, dir.path());
    options.agent.rate_limits = RateLimits::off();
    options.agent_started = Some(made());
    let node = cluster.add_node(options).unwrap();
    let (timeout, metrics) = (Duration::from_secs(5), Arc::new(Metrics::new()));
    let agent = AgentOptions {
        socket_dir: dir.path().to_owned(),
        wire: Wire::Socket,
        timeout,
        lookup_interval: Duration::ZERO,
    };
    let (client, _) = connect_to(cluster.api().local("sim-token"), timeout, &metrics);
    let store = PodStore::default();
    let reader = Arc::new(Reader::new(client, timeout, store.clone()));
    let leases = |name: &str| {
        let (namespace, names) = ("kube-system".to_owned(), vec![name.to_owned()]);
        Leases::new(Arc::clone(&reader), namespace, names, super::node(), timeout, WallClock::system())
    };
    let live = Live::new(
        super::node(),
        AgentClient::new(agent, metrics),
        Arc::clone(&reader),
        store,
        ("k8s-app=cilium".parse().unwrap(), "cilium-agent".to_owned()),
        (leases("for-pods"), leases("for-agents")),
        WallClock::system(),
    );
    Bench { cluster, node, live, _dir: dir }
}

impl Bench {
    /// How often the agent was asked for its configuration.
    fn asked(&self) -> usize {
        self.node.agent().requests().iter().filter(|it| it.path.ends_with("/config")).count()
    }
}

/// The watch tells that the agent's container is so.
fn tell(store: &PodStore, start: AgentStart) {
    store.apply(waiting_pod(), Some(start), made());
}

#[rstest]
#[case::no_pod_of_it_is_known(None, Some(made()))]
#[case::its_container_is_younger(Some(AgentStart::Since(later())), Some(later()))]
#[case::its_container_is_older(Some(AgentStart::Since(Timestamp::UNIX_EPOCH)), Some(made()))]
#[case::its_container_does_not_run(Some(AgentStart::Stopped), None)]
#[tokio::test]
async fn an_agent_started_with_the_later_of_socket_and_container(
    #[case] container: Option<AgentStart>,
    #[case] started: Option<Timestamp>,
) {
    let Bench { live, node, cluster: _cluster, _dir } = bench(ApiOptions::default()).await;
    if let Some(start) = container {
        tell(&live.store, start);
    }
    assert_eq!(live.agent_started().await, started);
    assert_eq!(live.reachable().await, Ok(()));
    node.agent().stop().await;
    assert_eq!(live.agent_started().await, None, "it has no socket");
    assert!(live.reachable().await.is_err());
}

#[tokio::test]
async fn what_does_not_change_while_an_agent_runs_is_asked_once_in_its_life() {
    let bench = bench(ApiOptions::default()).await;
    let (live, agent) = (&bench.live, bench.node.agent());
    let mode = live.ipam_mode().await.unwrap();
    assert_eq!((live.ipam_mode().await, bench.asked()), (Ok(mode), 1));
    agent.restart(later()).await.unwrap();
    live.config().await.unwrap();
    live.config().await.unwrap();
    assert_eq!(bench.asked(), 2, "another agent");
    agent.inject(Fault::status(500).path("/config").once());
    tell(&live.store, AgentStart::Since(later() + SignedDuration::from_secs(1)));
    assert!(live.config().await.is_err());
    live.config().await.unwrap();
    assert_eq!(bench.asked(), 4, "no answer is none to keep");
}

#[tokio::test]
async fn what_an_agent_said_that_did_not_run_all_the_while_is_asked_again() {
    let bench = bench(ApiOptions::default()).await;
    let (store, since) = (bench.live.store.clone(), AgentStart::Since(later()));
    tell(&store, since);
    let stops = Fault::rewrite({
        let store = store.clone();
        move |answer| {
            tell(&store, AgentStart::Stopped);
            answer
        }
    });
    bench.node.agent().inject(stops.path("/config").once());
    bench.live.config().await.unwrap();
    // It may be another one that runs since then, by a clock that was set back.
    tell(&store, since);
    bench.live.config().await.unwrap();
    bench.live.config().await.unwrap();
    assert_eq!(bench.asked(), 2, "its container stopped meanwhile");
    tell(&store, AgentStart::Stopped);
    bench.live.config().await.unwrap();
    bench.live.config().await.unwrap();
    assert_eq!(bench.asked(), 4, "its container does not run");
}

fn names(names: &[&str]) -> Vec<PodName> {
    names.iter().map(|name| name.parse().unwrap()).collect()
}

/// With objects of three endpoints in each form, one of them of a second interface.
#[rstest]
#[case::both(true, true)]
#[case::without_slices(true, false)]
#[case::without_endpoints(false, true)]
#[case::neither(false, false)]
#[tokio::test]
async fn objects_of_cilium_are_read_where_they_are_served(#[case] endpoints: bool, #[case] slices: bool) {
    let options = ApiOptions {
        serve_cilium_endpoints: endpoints,
        serve_cilium_endpoint_slices: slices,
        ..ApiOptions::default()
    };
    let bench = bench(options).await;
    let api = bench.cluster.api();
    for name in ["web", "web-net1", "other"] {
        let object = json!({"metadata": {"namespace": "shop", "name": name}, "status": {"id": 7}});
        api.insert_raw(&CILIUM_ENDPOINTS, "shop", name, object);
    }
    for (name, endpoint) in [("s-1", "web"), ("s-2", "other"), ("s-3", "web")] {
        let of = json!([{"name": endpoint, "pod-uid": name}, {"name": "more"}]);
        let object = json!({"metadata": {"name": name}, "namespace": "shop", "endpoints": of});
        api.insert_raw(&CILIUM_ENDPOINT_SLICES, "", name, object);
    }
    let holder = Holder { attachment: attachment('a', "net1"), ..holder() };
    let pods = names(&["shop/web", "shop/gone"]);
    let found = bench.live.endpoints(&holder, &pods).await.unwrap();
    let found = found.map(|found| found.into_iter().map(|it| it.name).collect::<Vec<_>>());
    assert_eq!(found, endpoints.then(|| names(&["shop/web", "shop/web-net1"])));
    let found = bench.live.slices(&pods[0]).await.unwrap();
    let found = found.map(|found| found.iter().filter_map(|it| Some(it.uid.as_ref()?.to_string())).collect());
    assert_eq!(found, slices.then(|| vec!["s-1".to_owned(), "s-3".to_owned()]));
}

#[rstest]
#[case(RemedyKind::DisconnectEndpoint, "for-pods")]
#[case(RemedyKind::DeletePod, "for-pods")]
#[case(RemedyKind::RestartAgent, "for-agents")]
#[tokio::test]
async fn each_remedy_has_its_leases(#[case] remedy: RemedyKind, #[case] name: &str) {
    let bench = bench(ApiOptions::default()).await;
    let missing = bench.live.acquire(remedy).await.unwrap_err();
    assert_eq!(missing, NoLease::Missing(name.to_owned()));
}
