use std::time::Duration;

use super::*;

#[tokio::test]
async fn faults_strike_whom_and_as_often_as_they_are_told() {
    let cluster = cluster().await;
    let fault = cluster
        .api()
        .inject(Fault::status(500).on("GET").path("/pods").query("limit=1").from_nth(2).times(1));
    let uri = "/api/v1/pods?limit=1";
    let mut seen = Vec::new();
    for _ in 0..3 {
        seen.push(ask(&cluster, "GET", uri, None).await.status);
    }
    assert_eq!(seen, [200, 500, 200]);
    assert_eq!(fault.hits(), 1);
    assert_eq!(ask(&cluster, "GET", "/api/v1/nodes?limit=1", None).await.status, 200);
    let fault = cluster.api().inject(Fault::status(429));
    let reply = ask(&cluster, "GET", uri, None).await;
    assert_eq!((reply.status, reply.headers["retry-after"].to_str().unwrap()), (429, "1"));
    fault.remove();
    assert_eq!(ask(&cluster, "GET", uri, None).await.status, 200);
}

#[tokio::test]
async fn connections_break_hang_and_speak_rubbish() {
    let cluster = cluster().await;
    for n in 0..50 {
        cluster.api().create(&PODS, pod("t", &format!("p{n}"), "")).unwrap();
    }
    let ask = || ask_with(&cluster, "GET", "/api/v1/pods", &[], None);
    cluster.api().inject(Fault::reset().once());
    assert!(ask().await.is_err());
    cluster.api().inject(Fault::half_body().once());
    assert!(ask().await.is_err());
    cluster.api().inject(Fault::garbage("{\"items\": [").once());
    assert_eq!(ask().await.unwrap().body.as_ref(), b"{\"items\": [");
    cluster.api().inject(
        Fault::rewrite(|mut list| {
            list["items"][0]["spec"] = json!(7);
            list
        })
        .once(),
    );
    assert_eq!(json_of(&ask().await.unwrap())["items"][0]["spec"], 7);
    let hang = cluster.api().inject(Fault::hang().once());
    let waiting = tokio::time::timeout(Duration::from_millis(50), ask()).await;
    assert!(waiting.is_err() && hang.hits() == 1);
    cluster.api().insert_raw(
        &PODS,
        "t",
        "broken",
        json!({"metadata": {"name": "broken", "namespace": "t"}, "spec": "text"}),
    );
    assert!(
        json_of(&ask().await.unwrap())["items"].as_array().unwrap().iter().any(|pod| pod["spec"] == "text")
    );
}

#[tokio::test]
async fn an_api_server_that_is_away_comes_back_on_its_port() {
    let cluster = cluster().await;
    let url = cluster.url();
    let mut watch = Watching::start(&cluster, "/api/v1/nodes?watch=true").await;
    cluster.api().pause().await;
    assert_eq!(watch.next().await, None);
    assert!(ask_with(&cluster, "GET", "/version", &[], None).await.is_err());
    cluster.api().create(&PODS, pod("t", "meanwhile", "")).unwrap();
    cluster.api().resume().await.unwrap();
    assert_eq!(cluster.url(), url);
    assert_eq!(ask(&cluster, "GET", "/api/v1/namespaces/t/pods/meanwhile", None).await.status, 200);
}

#[tokio::test]
async fn a_delete_takes_effect_although_nobody_waits_for_its_answer() {
    let bench = bench(|_| {}).await;
    let address = "10.244.1.50";
    bench.node.agent().put_endpoint(EndpointSpec::new("t", "p", "aaaa", address.parse().unwrap())).unwrap();
    bench.node.agent().inject(Fault::late_answer(Duration::from_hours(1)).on("DELETE"));
    let asking = bench.agent("DELETE", "/v1/endpoint/cni-attachment-id:aaaa:eth0", None);
    assert!(tokio::time::timeout(Duration::from_millis(50), asking).await.is_err());
    assert_eq!(bench.agent("GET", &format!("/v1/endpoint/ipv4:{address}"), None).await.status, 404);

    bench.node.agent().put_endpoint(EndpointSpec::new("t", "p", "bbbb", address.parse().unwrap())).unwrap();
    bench.node.agent().clear_faults();
    bench.node.agent().inject(Fault::late_effect(Duration::from_millis(80)).on("DELETE"));
    let asking = bench.agent("DELETE", "/v1/endpoint/cni-attachment-id:bbbb:eth0", None);
    assert!(tokio::time::timeout(Duration::from_millis(10), asking).await.is_err());
    bench
        .cluster
        .wait_for("the late effect", |_| bench.node.agent().holder(ip(address)).is_none())
        .await
        .unwrap();
}
