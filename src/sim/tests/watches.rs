use std::time::Duration;

use super::*;

fn labelled(cluster: &Cluster, name: &str, label: &str) {
    cluster.api().patch_merge(&PODS, "t", name, &json!({"metadata": {"labels": {"tier": label}}})).unwrap();
}

#[tokio::test]
async fn a_watch_goes_on_from_a_list() {
    let cluster = cluster().await;
    cluster.api().create(&PODS, pod("t", "old", "n1")).unwrap();
    let list = json_of(&ask(&cluster, "GET", "/api/v1/pods", None).await);
    let version = list["metadata"]["resourceVersion"].as_str().unwrap();
    cluster.api().create(&PODS, pod("t", "between", "n1")).unwrap();
    let mut watch = Watching::start(
        &cluster,
        &format!("/api/v1/pods?watch=true&resourceVersion={version}&fieldSelector=spec.nodeName%3Dn1"),
    )
    .await;
    assert_eq!(watch.step().await, ("ADDED".to_owned(), "between".to_owned()));
    cluster.api().create(&PODS, pod("t", "elsewhere", "n2")).unwrap();
    cluster.api().patch_status_merge(&PODS, "t", "old", &json!({"phase": "Running"})).unwrap();
    assert_eq!(watch.step().await, ("MODIFIED".to_owned(), "old".to_owned()));
    cluster.api().delete(&PODS, "t", "old", &DeleteOptions::now()).unwrap();
    let event = watch.next().await.unwrap();
    assert_eq!(event["type"], "DELETED");
    assert_eq!(event["object"]["kind"], "Pod");
    assert_eq!(event["object"]["metadata"]["resourceVersion"], cluster.api().revision().to_string());
    cluster.api().cut_watches();
    assert_eq!(watch.next().await, None);
}

#[tokio::test]
async fn an_object_that_leaves_the_selector_is_deleted_and_one_that_enters_added() {
    let cluster = cluster().await;
    cluster.api().create(&PODS, pod("t", "p", "")).unwrap();
    labelled(&cluster, "p", "a");
    let mut watch =
        Watching::start(&cluster, "/api/v1/namespaces/t/pods?watch=1&labelSelector=tier%3Da").await;
    assert_eq!(watch.step().await.0, "ADDED");
    labelled(&cluster, "p", "b");
    let left = watch.next().await.unwrap();
    assert_eq!(
        (&left["type"], &left["object"]["metadata"]["labels"]["tier"]),
        (&json!("DELETED"), &json!("a"))
    );
    labelled(&cluster, "p", "a");
    assert_eq!(watch.step().await.0, "ADDED");
}

#[tokio::test]
async fn a_version_that_is_too_old_is_the_only_event() {
    let cluster = cluster().await;
    cluster.api().create(&PODS, pod("t", "p", "")).unwrap();
    cluster.api().compact();
    let oldest = cluster.api().revision();
    let mut watch = Watching::start(&cluster, "/api/v1/pods?watch=true&resourceVersion=2").await;
    let event = watch.next().await.unwrap();
    assert_eq!(event["type"], "ERROR");
    assert_eq!(event["object"]["code"], 410);
    assert_eq!(event["object"]["reason"], "Expired");
    assert_eq!(event["object"]["message"], format!("too old resource version: 2 ({oldest})"));
    assert_eq!(watch.next().await, None);
}

#[tokio::test]
async fn bookmarks_come_to_those_who_allow_them_and_the_time_out_ends_a_watch() {
    let mut options = ClusterOptions::default();
    options.api.bookmark_interval = Duration::from_millis(20);
    let cluster = Cluster::start(options).await.unwrap();
    cluster.api().create(&PODS, pod("t", "p", "")).unwrap();
    let version = cluster.api().revision();
    let with = format!("/api/v1/pods?watch=true&allowWatchBookmarks=true&resourceVersion={version}");
    let bookmark = Watching::start(&cluster, &with).await.next().await.unwrap();
    assert_eq!(
        bookmark,
        json!({"type": "BOOKMARK", "object": {"kind": "Pod", "apiVersion": "v1", "metadata": {"resourceVersion": version.to_string()}, "spec": {"containers": null}, "status": {}}})
    );
    let mut without = Watching::start(
        &cluster,
        &format!("/api/v1/pods?watch=true&resourceVersion={version}&timeoutSeconds=1"),
    )
    .await;
    assert_eq!(without.next().await, None, "nothing until the time-out");
}

#[tokio::test]
async fn initial_events_end_with_a_bookmark_that_says_so() {
    let cluster = cluster().await;
    cluster.api().create(&PODS, pod("t", "p", "")).unwrap();
    let uri = "/api/v1/pods?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let mut watch = Watching::start(&cluster, uri).await;
    assert_eq!(watch.step().await.0, "ADDED");
    let end = watch.next().await.unwrap();
    assert_eq!(end["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"], "true");
}
