use super::*;

const REFUSED: &str = "unable to create endpoint: [PUT /endpoint/{id}][400] putEndpointIdInvalid \"IP ipv4:10.244.1.1 is already in use\"";

#[tokio::test]
async fn a_pod_gets_its_sandbox_and_loses_it() {
    let bench = bench(|_| {}).await;
    let made = bench.cluster.api().create(&PODS, pod("t", "a", "n1")).unwrap();
    bench.cluster.wait_for("the pod to run", |_| bench.running("t", "a")).await.unwrap();
    let running = bench.cluster.api().get(&PODS, "t", "a").unwrap();
    assert_eq!(running["status"]["podIP"], "10.244.1.1");
    assert_eq!(running["status"]["podIPs"], json!([{"ip": "10.244.1.1"}]));
    assert_eq!(running["status"]["conditions"][0]["type"], "PodReadyToStartContainers");
    assert_eq!(running["status"]["conditions"][0]["status"], "True");
    let sandbox = bench.node.kubelet().sandbox_of(made["metadata"]["uid"].as_str().unwrap()).unwrap();
    let holder = bench.node.agent().holder(ip("10.244.1.1")).unwrap();
    assert_eq!(holder["status"]["external-identifiers"]["cni-attachment-id"], format!("{sandbox}:eth0"));
    bench.cluster.wait_for("the last event", |_| !bench.events("Started").is_empty()).await.unwrap();
    assert_eq!(bench.events("Pulled")[0]["involvedObject"]["fieldPath"], "spec.containers{c}");
    bench.cluster.api().delete(&PODS, "t", "a", &DeleteOptions::default()).unwrap();
    bench.cluster.wait_for("the pod to go", |c| c.api().get(&PODS, "t", "a").is_err()).await.unwrap();
    assert!(bench.node.agent().holder(ip("10.244.1.1")).is_none());
    assert!(!bench.node.agent().ipam_allocations().contains_key(&ip("10.244.1.1")));
}

#[tokio::test]
async fn a_lost_del_wedges_the_next_pod_until_the_endpoint_is_deleted() {
    let bench = bench(|_| {}).await;
    let api = bench.cluster.api();
    let first = api.create(&PODS, pod("t", "a", "n1")).unwrap();
    bench.cluster.wait_for("the first pod", |_| bench.running("t", "a")).await.unwrap();
    let sandbox = bench.node.kubelet().sandbox_of(first["metadata"]["uid"].as_str().unwrap()).unwrap();
    bench.node.kubelet().lose_next_del("t", "a");
    api.delete(&PODS, "t", "a", &DeleteOptions::default()).unwrap();
    bench.cluster.wait_for("the first pod to go", |c| c.api().get(&PODS, "t", "a").is_err()).await.unwrap();
    assert!(bench.node.agent().holder(ip("10.244.1.1")).is_some(), "leaked");

    let second = api.create(&PODS, pod("t", "b", "n1")).unwrap();
    // The tenth try and all later ones are one Event with a count.
    let aggregate = |bench: &Bench| {
        bench.events("FailedCreatePodSandBox").into_iter().find(|event| event["count"].as_u64() >= Some(3))
    };
    bench.cluster.wait_for("the aggregated event", |_| aggregate(&bench).is_some()).await.unwrap();
    let events = bench.events("FailedCreatePodSandBox");
    assert_eq!(events.len(), 10);
    let wedged = api.get(&PODS, "t", "b").unwrap();
    assert_eq!(wedged["status"]["phase"], "Pending");
    assert_eq!(wedged["status"]["conditions"][0]["status"], "False");
    assert_eq!(wedged["status"]["containerStatuses"][0]["state"]["waiting"]["reason"], "ContainerCreating");
    let combined = aggregate(&bench).unwrap();
    assert!(
        combined["message"]
            .as_str()
            .unwrap()
            .starts_with("(combined from similar events): Failed to create pod sandbox: rpc error")
    );
    let single = events.iter().find(|event| event["count"] == 1).unwrap();
    let message = single["message"].as_str().unwrap();
    let rest = message.strip_prefix("Failed to create pod sandbox: rpc error: code = Unknown desc = failed to setup network for sandbox \"").unwrap();
    let (id, rest) = rest.split_at(64);
    assert!(id.bytes().all(|byte| byte.is_ascii_hexdigit()));
    assert_eq!(rest, format!("\": plugin type=\"cilium-cni\" failed (add): {REFUSED}"));
    assert_eq!(single["involvedObject"]["uid"], second["metadata"]["uid"]);
    assert_eq!(single["source"], json!({"component": "kubelet", "host": "n1"}));
    assert_eq!(single["reportingComponent"], "kubelet");

    let reply = bench.agent("DELETE", &format!("/v1/endpoint/cni-attachment-id:{sandbox}:eth0"), None).await;
    assert_eq!(reply.status, 200);
    bench.cluster.wait_for("the wedged pod to run", |_| bench.running("t", "b")).await.unwrap();
    assert_eq!(api.get(&PODS, "t", "b").unwrap()["status"]["podIP"], "10.244.1.1");
}

#[tokio::test]
async fn an_agent_that_is_away_is_told_in_the_event_and_asked_again() {
    let bench = bench(|_| {}).await;
    bench.node.agent().stop().await;
    bench.cluster.api().create(&PODS, pod("t", "a", "n1")).unwrap();
    let failed = |bench: &Bench| bench.events("FailedCreatePodSandBox").first().cloned();
    bench.cluster.wait_for("a failure", |_| failed(&bench).is_some()).await.unwrap();
    assert!(
        failed(&bench).unwrap()["message"]
            .as_str()
            .unwrap()
            .contains("cilium.sock: connect: no such file or directory")
    );
    bench.node.agent().start(bench.cluster.now()).unwrap();
    bench.cluster.wait_for("the pod to run", |_| bench.running("t", "a")).await.unwrap();
}

#[tokio::test]
async fn a_replica_set_moves_off_a_reserved_address_and_a_stateful_set_does_not() {
    let bench = bench(|options| options.agent.ingress_ip = Some("10.244.1.69".parse().unwrap())).await;
    let api = bench.cluster.api();
    let workload = |kind, name: &str| Workload {
        kind,
        namespace: "t".to_owned(),
        name: name.to_owned(),
        replicas: 1,
        template: json!({"metadata": {"labels": {"app": name}, "annotations": {IP_ANNOTATION: "10.244.1.69"}}, "spec": {"nodeName": "n1", "containers": [{"name": "c", "image": "i"}]}}),
    };
    bench.cluster.run_workload(workload(WorkloadKind::ReplicaSet, "web")).unwrap();
    bench.cluster.run_workload(workload(WorkloadKind::StatefulSet, "db")).unwrap();
    let named = |prefix: &'static str| {
        move |c: &Cluster| {
            c.api()
                .list(&EVENTS, "t", "reason=FailedCreatePodSandBox", "")
                .unwrap()
                .iter()
                .any(|e| e["involvedObject"]["name"].as_str().unwrap().starts_with(prefix))
        }
    };
    bench.cluster.wait_for("web to be wedged", named("web-")).await.unwrap();
    bench.cluster.wait_for("db to be wedged", named("db-0")).await.unwrap();
    let pods = api.list(&PODS, "t", "", "app=web").unwrap();
    api.delete(&PODS, "t", pods[0]["metadata"]["name"].as_str().unwrap(), &DeleteOptions::default()).unwrap();
    let old = api.get(&PODS, "t", "db-0").unwrap();
    api.delete(&PODS, "t", "db-0", &DeleteOptions::default()).unwrap();
    bench
        .cluster
        .wait_for("web to run elsewhere", |c| {
            c.api().list(&PODS, "t", "status.phase=Running", "app=web").unwrap().len() == 1
        })
        .await
        .unwrap();
    bench
        .cluster
        .wait_for("db-0 to come back", |c| {
            c.api().get(&PODS, "t", "db-0").is_ok_and(|pod| pod["metadata"]["uid"] != old["metadata"]["uid"])
        })
        .await
        .unwrap();
    assert_eq!(api.get(&PODS, "t", "db-0").unwrap()["metadata"]["annotations"][IP_ANNOTATION], "10.244.1.69");
}

#[tokio::test]
async fn deleting_the_agents_pod_restarts_the_agent() {
    let bench = bench(|options| {
        options.with_agent_pod = true;
        options.agent_restart_time = std::time::Duration::from_millis(10);
    })
    .await;
    let pods =
        |c: &Cluster| c.api().list(&PODS, "kube-system", "status.phase=Running", "k8s-app=cilium").unwrap();
    bench.cluster.wait_for("the agent's pod", |c| pods(c).len() == 1).await.unwrap();
    let (first, started) = (
        pods(&bench.cluster)[0]["metadata"]["name"].as_str().unwrap().to_owned(),
        bench.node.agent().started(),
    );
    bench.cluster.api().delete(&PODS, "kube-system", &first, &DeleteOptions::default()).unwrap();
    bench
        .cluster
        .wait_for("the agent's next pod", |c| {
            pods(c).iter().any(|pod| pod["metadata"]["name"] != first.as_str())
        })
        .await
        .unwrap();
    assert!(bench.node.agent().started() > started);
    assert!(bench.node.agent().socket().exists());
}
