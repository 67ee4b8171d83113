//! Events that look like the refusal and are none.

use crate::scene::{IP, Scene, refusal};

pub(crate) async fn messages_that_are_no_refusal_lead_to_no_act() {
    let messages = [
        "x".repeat(64 * 1024),
        refusal(&format!("ipv4:{}", "1".repeat(64 * 1024))),
        refusal("ipv6:fe80::1%eth0"),
        refusal("ipv4:999.1.1.1"),
        refusal(&format!("ipv4:{IP}/24")),
        refusal(&format!("ipv4:0{IP}")),
        refusal(&format!("ipv4:{IP}; rm -rf /")),
        refusal("ipv4:"),
        refusal(&format!("ipv4:{IP}")).replace("putEndpointIdInvalid", "putEndpointIdFailed"),
        refusal(&format!("ipv4:{IP}")).replace("is already in use", "is alr"),
    ];
    let scene = Scene::without_kubelet().await;
    // One word of these that is taken for the address, and a stale endpoint would be disconnected.
    scene.leak("backup", "agent-old", IP);
    for (number, message) in messages.iter().enumerate() {
        let name = format!("odd-{number}");
        scene.pod("shop", &name, IP);
        scene.failure("shop", &name, message);
    }
    let daemon = scene.heal().await;
    let count = f64::from(u32::try_from(messages.len()).expect("a few"));
    daemon.metric_reaches("cilium_leak_healer_judgements_total{verdict=\"not-wedged\"}", count).await;
    let judged = daemon.matching(|line| line["message"] == "judged");
    assert!(judged.is_empty(), "{judged:?}");
    assert!(scene.agent_requests().is_empty(), "{:?}", scene.agent_requests());
    scene.nothing_done(&daemon);
    daemon.stop().await;
}
