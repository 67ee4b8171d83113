//! What cannot be read, and how that is said.

use rstest::rstest;

use crate::stage::{Stage, pod_of};
use crate::verb::events;

#[tokio::test]
async fn a_node_that_is_away_is_named_and_the_rest_is_printed() {
    let stage = Stage::new(2).await;
    let daemon = stage.daemon(1).await;
    for args in [["--no-follow", "--api-timeout=3s"], ["--for=4s", "--api-timeout=3s"]] {
        let said = events(&stage, &args).await;
        said.failed("error: not all nodes could be read: 1 are missing");
        said.failed("missing: worker-2: error forwarding port 9969");
        said.failed("connection refused");
        assert!(said.out.contains("worker-1  started"), "{}", said.out);
        assert!(!said.err.contains("missing: worker-1"), "{}", said.err);
    }
    let named = events(&stage, &["--no-follow", "--node", "worker-1,worker-9"]).await;
    named.failed("missing: worker-9: no pod of the watchdog is on it");
    assert!(named.out.contains("worker-1  started"), "{}", named.out);
    daemon.stop().await;
}

#[rstest]
#[case::list("list", "", "port-forward", "cannot list resource \"pods\"")]
#[case::get_forward("get", "portforward", "port-forward", "the right to get and create pods/portforward")]
#[case::create_forward(
    "create",
    "portforward",
    "port-forward",
    "the right to get and create pods/portforward"
)]
#[case::proxy(
    "get",
    "proxy",
    "proxy",
    "the right to get pods/proxy in namespace cilium-leak-healer is missing"
)]
#[tokio::test]
async fn a_missing_right_is_named(
    #[case] verb: &'static str,
    #[case] subresource: &'static str,
    #[case] via: &str,
    #[case] why: &str,
) {
    let denied = move |wish: &cilium_leak_healer::sim::Attributes| {
        wish.user != "system:admin"
            || wish.resource != "pods"
            || wish.verb != verb
            || wish.subresource != subresource
    };
    let stage = Stage::behind(1, denied).await;
    // Also who follows does not try for ever what nobody may.
    for end in ["--no-follow", "--types=acted"] {
        let said = events(&stage, &[end, "--via", via]).await;
        said.failed(why);
        assert_eq!(said.out, "", "{}", said.err);
    }
}

#[rstest]
#[case::other_labels(&["-l", "app=other"], "no pod with the labels app=other in namespace cilium-leak-healer")]
#[case::other_namespace(&["-n", "shop"], "look at --watchdog-namespace and --selector")]
#[case::other_program(&["--no-follow"], "404: no /v1/events there: an older watchdog, or another program (--port)")]
#[case::other_program_by_proxy(&["--no-follow", "--via", "proxy"], "missing: worker-1: 404")]
#[case::other_port(&["--no-follow", "--via", "proxy", "--port", "1"], "missing: worker-1: 503")]
#[tokio::test]
async fn what_is_not_there_is_said(#[case] args: &[&str], #[case] why: &str) {
    let stage = Stage::new(1).await;
    stage.leads(&pod_of(1), Some(stage.cluster.api().address()));
    events(&stage, args).await.failed(why);
}
