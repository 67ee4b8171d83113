//! What people read.

use crate::run::{case, scan};

async fn printed(name: &str, args: &[&str]) -> String {
    let file = case(name);
    let all: Vec<&str> = ["--from", file.as_str()].into_iter().chain(args.iter().copied()).collect();
    let run = scan(&all).await;
    let line = run.out.lines().find(|line| line.chars().count() > 100);
    assert!(args.contains(&"-o") || line.is_none(), "{line:?}");
    format!("{}--- standard error ---\n{}", run.out, run.err)
}

#[tokio::test]
async fn several_findings() {
    insta::assert_snapshot!(printed("several-wedges-on-two-nodes.yaml", &[]).await);
}

#[tokio::test]
async fn several_findings_wide() {
    insta::assert_snapshot!(printed("several-wedges-on-two-nodes.yaml", &["-o", "wide"]).await);
}

#[tokio::test]
async fn several_findings_without_headers() {
    insta::assert_snapshot!(printed("several-wedges-on-two-nodes.yaml", &["--no-headers"]).await);
}

#[tokio::test]
async fn one_node_of_two() {
    insta::assert_snapshot!(printed("several-wedges-on-two-nodes.yaml", &["--node", "worker-2"]).await);
}

#[tokio::test]
async fn one_namespace() {
    insta::assert_snapshot!(printed("several-wedges-on-two-nodes.yaml", &["-n", "tenant-a"]).await);
}

#[tokio::test]
async fn nothing_found() {
    insta::assert_snapshot!(printed("healthy-cluster.yaml", &[]).await);
}

#[tokio::test]
async fn an_agent_that_did_not_answer() {
    insta::assert_snapshot!(printed("agent-lookup-timeout.yaml", &[]).await);
}

#[tokio::test]
async fn findings_without_a_wedge() {
    insta::assert_snapshot!(printed("orphan-cep.yaml", &[]).await);
}

#[tokio::test]
async fn as_yaml() {
    insta::assert_snapshot!(printed("not-held.yaml", &["-o", "yaml"]).await);
}

#[tokio::test]
async fn as_json() {
    insta::assert_snapshot!(printed("not-held.yaml", &["-o", "json"]).await);
}

#[tokio::test]
async fn no_escape_reaches_a_pipe() {
    let run = scan(&["--from", &case("several-wedges-on-two-nodes.yaml")]).await;
    assert!(!run.out.contains('\u{1b}') && !run.err.contains('\u{1b}'));
}

#[tokio::test]
async fn exit_zero() {
    let run = scan(&["--from", &case("several-wedges-on-two-nodes.yaml"), "--exit-zero"]).await;
    assert_eq!(run.code, Some(0));
}
