//! What the daemon costs where nothing is wrong.

use std::time::Duration;

use crate::scene::Scene;

pub(crate) async fn a_node_where_nothing_is_wrong_costs_next_to_nothing() {
    let scene = Scene::new().await;
    for number in 30..60 {
        scene.pod("shop", &format!("web-{number}"), &format!("10.244.1.{number}"));
    }
    for number in 30..60 {
        scene.runs("shop", &format!("web-{number}")).await;
    }
    let daemon = scene.heal().await;
    daemon.metric_reaches("cilium_leak_healer_pods_watched", 31.0).await;
    daemon.answers("/readyz", 200).await;
    let _ = scene.cluster.api().take_requests();
    let _ = scene.node.agent().take_requests();
    // The span of the measurement, not a wait for something.
    tokio::time::sleep(Duration::from_secs(10)).await;
    let requests = scene.cluster.api().requests();
    assert!(requests.len() <= 1, "{requests:?}");
    assert!(scene.agent_requests().is_empty(), "{:?}", scene.agent_requests());
    assert!(daemon.lines().len() <= 5, "it is silent, too: {}", daemon.printed());
    daemon.stop().await;
}
