//! Events that somebody else wrote under the watchdog's name: names and sentences that want to be more than text.

use cilium_leak_healer::sim::EVENTS;
use serde_json::json;

use crate::stage::Stage;
use crate::story::{endings, json, report};

const HOSTILE: &str = "a|b`c`</testcase>]]><script>x</script>\n# h\u{1b}[31m [l](https://x.example) @all";

/// In the end of a note, whose marks are those of a note.
const NODE: &str = "n|`x`</testcase><script>@all";

#[tokio::test]
async fn what_is_hostile_is_shown_as_text() {
    let stage = Stage::new(0).await;
    let note =
        format!("{HOSTILE} [verdict stale-endpoint, address 10.0.0.1] (node {NODE}, correlation id {NODE})");
    let event = |name: &str, note: &str| {
        json!({
            "metadata": {"namespace": "shop", "name": name}, "type": "Warning", "action": "Judge",
            "involvedObject": {"kind": "Pod", "namespace": "shop", "name": HOSTILE, "uid": HOSTILE},
            "reason": "EndpointLeakDetected", "message": note, "eventTime": "2026-06-18T10:00:00.000000Z",
            "reportingComponent": "cilium-leak-healer", "reportingInstance": HOSTILE,
        })
    };
    for (name, note) in [("a", note.as_str()), ("b", HOSTILE)] {
        stage.cluster.api().create(&EVENTS, event(name, note)).expect("an Event");
    }
    let told = json(&stage, &[], 0).await;
    assert_eq!(endings(&told).len(), 1, "{told:#}");
    assert_eq!(told["kubernetesEvents"]["unknown"], 1);
    let junit = report(&stage, &["--format", "junit"]).await.out;
    let document = roxmltree::Document::parse(&junit).unwrap_or_else(|error| panic!("{error}: {junit}"));
    assert_eq!(document.descendants().filter(|it| it.has_tag_name("testcase")).count(), 2);
    let markdown = report(&stage, &[]).await.out;
    let bare = markdown.replace("\\]", "");
    assert!(!bare.contains("<script") && !bare.contains("](") && !bare.contains("://"), "{markdown}");
    assert_eq!(markdown.lines().filter(|line| line.starts_with('#')).count(), 2, "{markdown}");
}
