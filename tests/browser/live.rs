//! The page over the real binary on the simulated cluster.

use std::net::SocketAddr;

use cilium_leak_healer::sim::{Fault, NAMESPACES};
use serde_json::{Value, json};

use crate::chromium::Chromium;
use crate::daemon::Daemon;
use crate::scene::{IP, Scene, acted, judged};

const LIVE: &str = "document.documentElement.dataset.link === 'live'";
const INJECTED: &str = "<img src=x onerror=\"window.injected=1\">";
const NOTHING_RAN: &str = "window.injected === undefined && document.scripts.length === 1
    && document.querySelectorAll('img, script[src]').length === 0";

fn url(address: SocketAddr) -> String {
    format!("http://{address}/")
}

async fn opened(daemon: &Daemon) -> Option<Chromium> {
    let mut browser = Chromium::start().await?;
    browser.open(&url(daemon.address())).await;
    browser.until(LIVE).await;
    Some(browser)
}

#[tokio::test]
async fn a_leak_comes_is_held_back_is_healed_and_goes() {
    let scene = Scene::new().await;
    let daemon = scene.heal().await;
    let Some(mut browser) = opened(&daemon).await else { return };
    browser.says("#summary", "Nothing is wedged.").await;
    browser
        .until("document.title === '0 wedges · worker-1' && !document.getElementById('none').hidden")
        .await;
    browser.until("Date.parse(document.querySelector('#none .sign').dateTime) > Date.now() - 60e3").await;
    browser.says("#mode", "heal").await;
    browser.says("#version", env!("CARGO_PKG_VERSION")).await;
    for check in ["pod-watch", "agent", "ledger", "fence"] {
        browser.says("#checks", check).await;
    }
    browser.eval("window.unloaded = false").await;
    // What a person writes there is shown as it is.
    let pause = |value: Value| {
        let patch = json!({"metadata": {"annotations": {"cilium-leak-healer/paused": value}}});
        scene
            .cluster
            .api()
            .patch_merge(&NAMESPACES, "", "cilium-leak-healer", &patch)
            .expect("the own namespace");
    };
    pause(json!(INJECTED));
    scene.wedge();
    browser.says("#wedges [data-f=held]", INJECTED).await;
    browser.says("#wedges h3", "shop/cart").await;
    browser.says("#wedges [data-f=verdict]", "stale-endpoint").await;
    browser.says("#wedges [data-f=ip]", IP).await;
    browser.says("#wedges [data-f=next]", "cilium-leak-healer explain shop/cart").await;
    browser.says("#summary", "1 pod waits for an address: 1 stale-endpoint.").await;
    browser.until("document.title === '1 wedge · worker-1'").await;
    assert_eq!(browser.eval(NOTHING_RAN).await, true);
    pause(Value::Null);
    browser.says("#acts", "disconnect-endpoint").await;
    acted(&daemon, "healed").await;
    browser.says("#acts [data-f=outcome]", "healed").await;
    browser.says("#acts tbody", "freed").await;
    browser.says("#summary", "Nothing is wedged.").await;
    browser.until("document.querySelectorAll('#wedges > li').length === 0").await;
    assert_eq!(browser.eval("window.unloaded").await, false, "the page was loaded anew");
    assert_eq!(browser.complaints().await, [""; 0]);
    daemon.stop().await;
}

#[tokio::test]
async fn a_live_duplicate_stays_with_its_evidence_open() {
    let scene = Scene::new().await;
    let daemon = scene.heal().await;
    let ip = scene.runs("shop", "web").await;
    scene.pod("tenant-a", "db", &ip);
    judged(&daemon, "tenant-a/db", "live-duplicate").await;
    let Some(mut browser) = opened(&daemon).await else { return };
    browser.says("#wedges [data-f=verdict]", "live-duplicate").await;
    browser.says("#wedges [data-f=owner]", "shop/web").await;
    browser.eval("document.querySelector('#wedges summary').click()").await;
    browser.says("#wedges tbody", "owner-pod").await;
    // An agent that fails for the next one, with a text of its own.
    let fault = Fault::answer(503, "text/plain", INJECTED).on("GET").path(&format!("/endpoint/ipv4:{IP}"));
    let injected = scene.node.agent().inject(fault);
    scene.wedge();
    browser.says("#wedges", "agent-unknown").await;
    assert_eq!(browser.eval(NOTHING_RAN).await, true);
    injected.remove();
    acted(&daemon, "healed").await;
    browser.says("#acts [data-f=outcome]", "healed").await;
    browser.until("document.querySelectorAll('#wedges > li').length === 1").await;
    let open = "document.querySelector('#wedges details').open && document.querySelector('#wedges tbody').offsetHeight > 50";
    assert_eq!(browser.eval(open).await, true);
    browser.says("#wedges h3", "tenant-a/db").await;
    assert_eq!(browser.complaints().await, [""; 0]);
    daemon.stop().await;
}

/// A script that listens as the page does, by itself.
const LISTENS: &str = "window.heard = []; window.source = new EventSource('/v1/events');
    window.source.onmessage = event => window.heard.push({id: event.lastEventId, ...JSON.parse(event.data)}); 0";

#[tokio::test]
async fn after_a_restart_page_and_event_source_come_back_by_themselves() {
    let scene = Scene::new().await;
    let daemon = scene.heal().await;
    let address = daemon.address();
    let ip = scene.runs("shop", "web").await;
    let Some(mut browser) = opened(&daemon).await else { return };
    browser.eval(LISTENS).await;
    scene.pod("tenant-a", "db", &ip);
    browser.says("#wedges [data-f=verdict]", "live-duplicate").await;
    let started = browser.eval("document.getElementById('started').dateTime").await;
    browser.until("window.heard.some(it => it.type === 'cilium-leak-healer.judged.v1')").await;
    daemon.kill().await;
    browser.says("#link", "reconnecting").await;
    browser.says("#summary", "Not connected; as last heard: 1 pod waits").await;
    browser.until("document.title === 'not connected · 1 wedge · worker-1'").await;
    scene.wedge();
    let daemon = scene.daemon("observe", &["--listen", &address.to_string()]).await;
    browser.until(LIVE).await;
    browser.says("#mode", "observe").await;
    browser.says("#wedges", "shop/cart").await;
    browser.says("#wedges", "tenant-a/db").await;
    browser.says("#note", "was started again").await;
    assert_ne!(browser.eval("document.getElementById('started').dateTime").await, started);
    // The browser sent the id that it stood at: without it there is no gap to tell of.
    browser.until("window.heard.some(it => it.type === 'cilium-leak-healer.gap.v1' && it.data.reason === 'restarted')").await;
    let after = "(() => { const at = window.heard.findIndex(it => it.type === 'cilium-leak-healer.gap.v1');
        return [window.heard[at - 1].id.split('.')[0] === window.heard[at].id.split('.')[0], window.heard[at + 1].type] })()";
    browser.until("window.heard.at(-1).type !== 'cilium-leak-healer.gap.v1'").await;
    assert_eq!(browser.eval(after).await, json!([false, "cilium-leak-healer.started.v1"]));
    daemon.stop().await;
}
