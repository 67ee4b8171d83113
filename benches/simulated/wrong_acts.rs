//! What the watchdog and the loop over the cluster's Events do in five situations, seen by who looks on at the servers.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use cilium_leak_healer::sim::{Fault, IP_ANNOTATION, Node, PODS, Workload, WorkloadKind};
use serde_json::{Value, json};

use crate::baseline::NAME;
use crate::cores::on_all_cores;
use crate::in_memory::on_paused_time;
use crate::numbers::table;
use crate::stage::{CNI, NAMESPACE, Stage, Who, address};

const TIME: Duration = Duration::from_mins(10);
/// The agent's look-ups hang for so long.
const HANGS: Duration = Duration::from_mins(2);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scene {
    Leak,
    /// A pod has the address and pulls its image; the API server has no address of it yet.
    Duplicate {
        endpoints: bool,
    },
    /// A leak, while look-ups at the agent get no answer.
    HangingAgent,
    /// A pod of a set gets the address of the node's ingress endpoint.
    Reserved,
}

#[derive(Debug, Default, Clone, PartialEq, Eq)]
struct Acts {
    stale: usize,
    live: usize,
    moved: usize,
    restarts: usize,
    refused: usize,
    runs: bool,
}

impl Acts {
    /// Those that did harm and that nothing proved; what the agent refused did none.
    fn wrong(&self) -> usize {
        self.live + self.restarts
    }
}

fn play(scene: Scene, who: Who) -> Acts {
    on_paused_time(1, async {
        let served = scene != Scene::Duplicate { endpoints: false };
        let stage = Stage::new(9, |options| options.serve_cilium_endpoints = served).await;
        let node = stage.node(1, |options| {
            options.with_agent_pod = true;
            "delegated-plugin".clone_into(&mut options.agent.ipam_mode);
            options.agent.sync_cilium_endpoints = served;
            options.agent.ingress_ip = Some(address(1, 7));
            if matches!(scene, Scene::Duplicate { .. }) {
                options.kubelet.start_delay = Duration::from_hours(1);
            }
        });
        let seen = look_on(&stage, &node);
        let healers = stage.heal(who);
        tokio::time::sleep(Duration::from_mins(1)).await;
        let started = node.agent().started();
        let name = begin(&stage, &node, scene).await;
        tokio::time::sleep(TIME).await;
        let mut acts = seen.lock().unwrap_or_else(PoisonError::into_inner).clone();
        acts.restarts = usize::from(node.agent().started() != started);
        let requests = node.agent().take_requests();
        let theirs = requests.iter().filter(|it| it.user_agent.is_empty() || it.user_agent == NAME);
        acts.refused = theirs.filter(|it| it.method == "DELETE" && it.status >= 400).count();
        acts.runs = runs(&stage, &name);
        node.agent().witness(|_| {});
        stage.cluster.api().witness(|_| {});
        drop(healers);
        stage.end();
        acts
    })
}

/// Whether the pod that waited runs, or one of its set.
fn runs(stage: &Stage, name: &str) -> bool {
    let pods = stage.cluster.api().list(&PODS, NAMESPACE, "", "").expect("pods");
    let named = |pod: &&Value| pod["metadata"]["name"].as_str().is_some_and(|it| it.starts_with(name));
    pods.iter().filter(named).any(|pod| pod["status"]["phase"] == "Running")
}

/// Looks on at the agent, and at the API server where a pod other than the agent's is deleted.
fn look_on(stage: &Stage, node: &Node) -> Arc<Mutex<Acts>> {
    let seen = Arc::<Mutex<Acts>>::default();
    let (acts, api) = (Arc::clone(&seen), stage.cluster.api().clone());
    node.agent().witness(move |gone| {
        if gone.by != CNI {
            let mut acts = acts.lock().unwrap_or_else(PoisonError::into_inner);
            match api.get(&PODS, &gone.namespace, &gone.pod) {
                Ok(pod) if pod["metadata"]["uid"] == gone.uid.as_str() => acts.live += 1,
                _ => acts.stale += 1,
            }
        }
    });
    let acts = Arc::clone(&seen);
    stage.cluster.api().witness(move |pod| {
        let mut acts = acts.lock().unwrap_or_else(PoisonError::into_inner);
        acts.moved += usize::from(pod["metadata"]["namespace"] == NAMESPACE);
    });
    seen
}

/// Begins it; gives how the name of the pod that waits begins.
async fn begin(stage: &Stage, node: &Node, scene: Scene) -> String {
    let ip = address(1, 20);
    match scene {
        Scene::Leak | Scene::HangingAgent => {
            stage.leak(node, "old", ip).await;
            if scene == Scene::HangingAgent {
                let lookups = |path: &str| path.starts_with("/v1/endpoint/ipv4:");
                let hangs = node.agent().inject(Fault::hang().on("GET").path_matching(lookups));
                tokio::spawn(async move {
                    tokio::time::sleep(HANGS).await;
                    hangs.remove();
                });
            }
            stage.pod(node, "new", ip);
            "new".to_owned()
        }
        Scene::Duplicate { .. } => {
            stage.pod(node, "web", ip);
            let has = |node: &Node| node.agent().holder(ip.into()).is_some();
            stage.cluster.wait_for("its endpoint", |_| has(node)).await.expect("an endpoint");
            tokio::time::sleep(Duration::from_secs(2)).await;
            let hidden = json!({"podIP": null, "podIPs": null});
            stage.cluster.api().patch_status_merge(&PODS, NAMESPACE, "web", &hidden).expect("a pod");
            stage.pod(node, "copy", ip);
            "copy".to_owned()
        }
        Scene::Reserved => {
            let template = json!({
                "metadata": {"labels": {"app": "front"}, "annotations": {IP_ANNOTATION: address(1, 7).to_string()}},
                "spec": {"nodeName": node.name(), "containers": [{"name": "app", "image": "app"}]},
            });
            let (namespace, name) = (NAMESPACE.to_owned(), "front".to_owned());
            let workload =
                Workload { kind: WorkloadKind::ReplicaSet, namespace, name, replicas: 1, template };
            stage.cluster.run_workload(workload).expect("a controller");
            "front-".to_owned()
        }
    }
}

pub(crate) fn tables() {
    let scenes = [
        (Scene::Leak, "leak"),
        (
            Scene::Duplicate { endpoints: true },
            "living owner without a reported address, CiliumEndpoints served",
        ),
        (Scene::Duplicate { endpoints: false }, "the same, CiliumEndpoints not served"),
        (Scene::HangingAgent, "leak, look-ups at the agent hang for 2 min"),
        (Scene::Reserved, "pod on the ingress address"),
    ];
    let plans: Vec<(Scene, Who)> =
        scenes.iter().flat_map(|(scene, _)| [(*scene, Who::Watchdog), (*scene, Who::Baseline)]).collect();
    let made = on_all_cores(plans.len(), |at| play(plans[at].0, plans[at].1));
    let (mut rows, mut wrong) = (Vec::new(), [0, 0]);
    for ((scene, name), pair) in scenes.iter().zip(made.chunks(2)) {
        for (at, (who, acts)) in ["watchdog", "baseline"].iter().zip(pair).enumerate() {
            wrong[at] += acts.wrong();
            rows.push(vec![
                format!("{name}: {who}"),
                acts.stale.to_string(),
                acts.live.to_string(),
                acts.moved.to_string(),
                acts.restarts.to_string(),
                acts.refused.to_string(),
                acts.wrong().to_string(),
                if acts.runs { "yes" } else { "no" }.to_owned(),
            ]);
            let duplicate = matches!(scene, Scene::Duplicate { .. });
            assert!(
                at == 1 || (acts.wrong() + acts.refused == 0 && acts.runs != duplicate),
                "{name}: {acts:?}"
            );
        }
    }
    assert_eq!(wrong[0], 0, "the watchdog does nothing wrong");
    assert!(made[1].stale == 1 && made[1].runs, "the baseline heals a plain leak: {:?}", made[1]);
    println!("What was done within {} min, one cluster a row:\n", TIME.as_secs() / 60);
    table(
        &[
            "",
            "stale endpoints disconnected",
            "endpoints of living pods disconnected",
            "waiting pods moved",
            "agent restarts",
            "disconnects that the agent refused",
            "wrong acts",
            "the waiting pod runs",
        ],
        &rows,
    );
}
