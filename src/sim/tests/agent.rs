use std::os::unix::fs::MetadataExt as _;

use rstest::rstest;

use super::*;

const CONTAINER: &str = "aaaa1111bbbb2222cccc3333dddd4444eeee5555ffff6666aaaa7777bbbb8888";

/// What the CNI plugin sends, as in the transcripts.
fn cni(pod: &str, container: &str, ipv4: &str) -> Value {
    json!({
        "id": 0, "container-id": container, "container-interface-name": "eth0", "interface-name": "lxcaaaa1111", "interface-index": 0,
        "mac": "0a:00:00:00:00:01", "host-mac": "5e:b8:ca:47:69:b7", "k8s-namespace": "tenant-a", "k8s-pod-name": pod,
        "state": "waiting-for-identity", "sync-build-endpoint": true, "addressing": {"ipv4": ipv4}
    })
}

async fn without_kubelet(change: impl FnOnce(&mut NodeOptions)) -> Bench {
    bench(|options| {
        options.kubelet.enabled = false;
        options.agent.ingress_ip = Some("10.244.1.69".parse().unwrap());
        change(options);
    })
    .await
}

const PUT: &str = "/v1/endpoint/cilium-local:0";

#[tokio::test]
async fn the_leak_is_told_as_in_the_transcripts() {
    let bench = without_kubelet(|_| {}).await;
    let api = bench.cluster.api();
    let owner = api.create(&PODS, pod("tenant-a", "pod-a", "n1")).unwrap();
    let by_ip = "/v1/endpoint/ipv4:10.244.1.50";
    // leak-01
    let reply = bench.agent("GET", by_ip, None).await;
    assert_eq!(
        (reply.status, reply.body.as_ref(), reply.headers["content-length"].to_str().unwrap()),
        (404, b"".as_slice(), "0")
    );
    // leak-02
    let reply = bench.agent("PUT", PUT, Some(cni("pod-a", CONTAINER, "10.244.1.50"))).await;
    assert_eq!((reply.status, json_of(&reply)["status"]["state"].clone()), (201, json!("regenerating")));
    assert_eq!(reply.headers["transfer-encoding"], "chunked");
    // leak-03
    let live = json_of(&bench.agent("GET", by_ip, None).await);
    assert_eq!(
        live["status"]["external-identifiers"],
        json!({"cni-attachment-id": format!("{CONTAINER}:eth0")})
    );
    // leak-04
    let log = json_of(&bench.agent("GET", &format!("{by_ip}/log"), None).await);
    let states: Vec<&str> =
        log.as_array().unwrap().iter().map(|entry| entry["state"].as_str().unwrap()).collect();
    assert_eq!(
        states,
        ["ready", "ready", "ready", "regenerating", "waiting-to-regenerate", "ready", "waiting-for-identity"]
    );
    assert_eq!(log[6]["message"], "Endpoint creation");
    // leak-05, leak-06
    let entry = &json_of(&bench.agent("GET", "/v1/ip?cidr=10.244.1.50/32", None).await)[0];
    assert_eq!(
        entry["metadata"],
        json!({"name": "pod-a", "namespace": "tenant-a", "source": "custom-resource"})
    );
    assert_eq!(entry["hostIP"], "192.168.77.10");
    let cep = api.get(&CILIUM_ENDPOINTS, "tenant-a", "pod-a").unwrap();
    assert_eq!(
        cep["metadata"]["ownerReferences"],
        json!([{"apiVersion": "v1", "kind": "Pod", "name": "pod-a", "uid": owner["metadata"]["uid"]}])
    );
    assert_eq!(cep["status"]["id"], live["id"]);
    // leak-07
    api.delete(&PODS, "tenant-a", "pod-a", &DeleteOptions::now()).unwrap();
    let other = "bbbb9999cccc2222cccc3333dddd4444eeee5555ffff6666aaaa7777bbbb8888";
    let reply = bench.agent("PUT", PUT, Some(cni("pod-b", other, "10.244.1.50"))).await;
    assert_eq!(
        (reply.status, reply.body.as_ref()),
        (400, b"\"IP ipv4:10.244.1.50 is already in use\"\n".as_slice())
    );
    // leak-08, leak-09, leak-10
    let leaked = json_of(&bench.agent("GET", by_ip, None).await);
    assert_eq!(leaked["status"]["external-identifiers"], live["status"]["external-identifiers"]);
    bench
        .cluster
        .wait_for("the CiliumEndpoint to go", |c| {
            c.api().get(&CILIUM_ENDPOINTS, "tenant-a", "pod-a").is_err()
        })
        .await
        .unwrap();
    let reply = bench.agent("GET", "/v1/ip?cidr=10.244.1.50/32", None).await;
    assert_eq!((reply.status, reply.body.len()), (404, 0));
    assert_eq!(bench.agent("GET", "/v1/endpoint/cep-name:tenant-a%2Fpod-a", None).await.status, 200);
    // leak-11, leak-12, leak-13
    let delete = format!("/v1/endpoint/cni-attachment-id:{CONTAINER}:eth0");
    let reply = bench.agent("DELETE", &delete, None).await;
    assert_eq!((reply.status, reply.body.len()), (200, 0));
    let reply = bench.agent("DELETE", &delete, None).await;
    assert_eq!((reply.status, reply.body.len()), (404, 0));
    assert_eq!(bench.agent("PUT", PUT, Some(cni("pod-b", other, "10.244.1.50"))).await.status, 201);
}

#[rstest]
#[case::raw_slash(
    "GET",
    "/v1/endpoint/cep-name:tenant-a/db-0",
    None,
    404,
    "{\"code\":404,\"message\":\"path /v1/endpoint/cep-name:tenant-a/db-0 was not found\"}"
)]
#[case::dropped_prefix(
    "GET",
    "/v1/endpoint/container-id:aaaa",
    None,
    400,
    "\"unknown endpoint ID prefix \\\"container-id\\\"\"\n"
)]
#[case::upper_case("GET", "/v1/endpoint/ipv6:FD00:10:244:1::50", None, 404, "")]
#[case::colon_encoded("GET", "/v1/endpoint/ipv4%3A10.244.1.99", None, 404, "")]
#[case::no_state("PUT", PUT, Some(json!({})), 422, "{\"code\":602,\"message\":\"state in body is required\"}")]
#[case::on_ingress(
    "PUT",
    PUT,
    Some(cni("victim", "d1", "10.244.1.69")),
    400,
    "\"IP ipv4:10.244.1.69 is already in use\"\n"
)]
#[case::delete_ingress(
    "DELETE",
    "/v1/endpoint/ipv4:10.244.1.69",
    None,
    400,
    "\"endpoint may not be associated reserved labels\"\n"
)]
#[case::no_address(
    "PUT",
    PUT,
    Some(cni("p", "d1", "10.0.0.256")),
    400,
    "\"unable to parse endpoint parameters: ParseAddr(\\\"10.0.0.256\\\"): IPv4 field has value >255\"\n"
)]
#[case::other_state(
    "PUT",
    PUT,
    Some(json!({"state": "x"})),
    422,
    "{\"code\":606,\"message\":\"state in body should be one of [waiting-for-identity not-ready waiting-to-regenerate regenerating restoring ready disconnecting disconnected invalid]\"}"
)]
#[case::slash_at_the_end("GET", "/v1/endpoint/ipv4:10.244.1.99/", None, 404, "")]
#[case::broken_escape("GET", "/v1/endpoint/%zz", None, 400, "400 Bad Request")]
#[case::not_there(
    "GET",
    "/v2/endpoint",
    None,
    404,
    "{\"code\":404,\"message\":\"path /v2/endpoint was not found\"}"
)]
#[tokio::test]
async fn answers_byte_for_byte(
    #[case] method: &str,
    #[case] uri: &str,
    #[case] body: Option<Value>,
    #[case] status: u16,
    #[case] text: &str,
) {
    let reply = without_kubelet(|_| {}).await.agent(method, uri, body).await;
    assert_eq!((reply.status, std::str::from_utf8(&reply.body).unwrap()), (status, text));
}

#[tokio::test]
async fn a_router_address_meets_no_refusal() {
    let bench = without_kubelet(|_| {}).await;
    assert_eq!(bench.agent("PUT", PUT, Some(cni("p", "d1", "10.244.1.250"))).await.status, 201);
}

#[tokio::test]
async fn ipv6_is_refused_in_its_canonical_form() {
    let bench = without_kubelet(|_| {}).await;
    let mut first = cni("p", "d1", "10.244.1.50");
    first["addressing"] = json!({"ipv4": "10.244.1.50", "ipv6": "fd00:10:244:1::50"});
    assert_eq!(bench.agent("PUT", PUT, Some(first)).await.status, 201);
    let mut second = cni("q", "d2", "10.244.1.51");
    second["addressing"] = json!({"ipv4": "10.244.1.51", "ipv6": "FD00:0010:0244:0001:0:0:0:0050"});
    let reply = bench.agent("PUT", PUT, Some(second)).await;
    assert_eq!(reply.body.as_ref(), b"\"IP ipv6:fd00:10:244:1::50 is already in use\"\n");
}

#[tokio::test]
async fn reserved_endpoints_are_listed_and_written_to_the_node() {
    let bench = without_kubelet(|_| {}).await;
    let list = json_of(&bench.agent("GET", "/v1/endpoint/", None).await);
    let mut labels: Vec<&str> = list
        .as_array()
        .unwrap()
        .iter()
        .map(|e| e["status"]["identity"]["labels"][0].as_str().unwrap())
        .collect();
    labels.sort_unstable();
    assert_eq!(labels, ["reserved:health", "reserved:host", "reserved:ingress"]);
    let node = bench.cluster.api().get(&CILIUM_NODES, "", "n1").unwrap();
    assert_eq!(node["spec"]["ingress"], json!({"ipv4": "10.244.1.69"}));
    assert_eq!(node["spec"]["addresses"][1], json!({"ip": "10.244.1.250", "type": "CiliumInternalIP"}));
    assert_eq!(node["spec"]["ipam"]["podCIDRs"], json!(["10.244.1.0/24"]));
}

#[tokio::test]
async fn the_agent_tells_about_itself() {
    let bench = without_kubelet(|options| options.agent.ipam_mode = "cluster-pool".to_owned()).await;
    let spec = EndpointSpec::new("tenant-a", "pod-a", CONTAINER, "10.244.1.50".parse().unwrap());
    bench.node.agent().put_endpoint(spec).unwrap();
    let health = json_of(&bench.agent("GET", "/v1/healthz", None).await);
    assert_eq!(health["ipam"]["allocations"]["10.244.1.50"], "tenant-a/pod-a");
    assert_eq!(health["ipam"]["allocations"]["10.244.1.250"], "router");
    assert_eq!(health["cni-chaining"]["mode"], "none");
    let config = json_of(&bench.agent("GET", "/v1/config", None).await);
    assert_eq!(config["status"]["ipam-mode"], "cluster-pool");
    assert_eq!(config["status"]["daemonConfigurationMap"]["IPAM"], "cluster-pool");
    let brief = call(
        Peer::Unix(bench.node.agent().socket()),
        Method::GET,
        "/v1/healthz",
        &[(HeaderName::from_static("brief"), "true")],
        None,
    )
    .await
    .unwrap();
    assert_eq!(json_of(&brief).get("ipam"), None);
}

#[tokio::test]
async fn deletes_end_with_206_403_503() {
    let bench = without_kubelet(|_| {}).await;
    let agent = bench.node.agent();
    let spec = EndpointSpec {
        cleanup_errors: 1,
        ..EndpointSpec::new("t", "p", "c9", "10.244.1.80".parse().unwrap())
    };
    agent.put_endpoint(spec).unwrap();
    let uri = "/v1/endpoint/cni-attachment-id:c9:eth0";
    agent.set_ready(false);
    let reply = bench.agent("DELETE", uri, None).await;
    assert_eq!((reply.status, reply.body.as_ref()), (503, b"\"api not ready\"\n".as_slice()));
    agent.set_ready(true);
    agent.deny_delete(true);
    let reply = bench.agent("DELETE", uri, None).await;
    assert_eq!(
        (reply.status, reply.headers["content-type"].to_str().unwrap()),
        (403, "text/plain; charset=utf-8")
    );
    assert_eq!(
        reply.body.as_ref(),
        b"This API is administratively disabled. Contact your administrator for more details."
    );
    agent.deny_delete(false);
    let reply = bench.agent("DELETE", uri, None).await;
    assert_eq!((reply.status, reply.body.as_ref()), (206, b"1\n".as_slice()));
    assert!(agent.holder(ip("10.244.1.80")).is_none());
}

#[tokio::test]
async fn a_restart_makes_the_socket_anew_and_restores_by_name() {
    let bench = without_kubelet(|_| {}).await;
    let (api, agent) = (bench.cluster.api(), bench.node.agent());
    api.create(&PODS, pod("t", "web-0", "n1")).unwrap();
    agent.put_endpoint(EndpointSpec::new("t", "web-0", "c1", "10.244.1.60".parse().unwrap())).unwrap();
    agent.put_endpoint(EndpointSpec::new("t", "gone", "c2", "10.244.1.61".parse().unwrap())).unwrap();
    // A successor of the same name, with another UID.
    api.delete(&PODS, "t", "web-0", &DeleteOptions::now()).unwrap();
    api.create(&PODS, pod("t", "web-0", "n1")).unwrap();
    let health = api.get(&CILIUM_NODES, "", "n1").unwrap()["spec"]["health"].clone();
    agent.stop().await;
    assert!(!agent.socket().exists());
    let start = bench.cluster.now() - jiff::SignedDuration::from_secs(60);
    agent.start(start).unwrap();
    assert_eq!(std::fs::metadata(agent.socket()).unwrap().mtime(), start.as_second());
    assert!(agent.holder(ip("10.244.1.60")).is_some());
    assert!(agent.holder(ip("10.244.1.61")).is_none());
    let node = api.get(&CILIUM_NODES, "", "n1").unwrap();
    assert_ne!(node["spec"]["health"], health);
    assert_eq!(node["spec"]["ingress"], json!({"ipv4": "10.244.1.69"}));
    let log = json_of(&bench.agent("GET", "/v1/endpoint/ipv4:10.244.1.60/log", None).await);
    assert_eq!(log.as_array().unwrap().last().unwrap()["state"], "restoring");
}

#[tokio::test]
async fn a_pod_that_the_agent_never_found_is_init() {
    let bench = without_kubelet(|_| {}).await;
    bench.agent("PUT", PUT, Some(cni("ghost-0", "c9", "10.244.1.70"))).await;
    let model = json_of(&bench.agent("GET", "/v1/endpoint/ipv4:10.244.1.70", None).await);
    assert_eq!(model["status"]["identity"], json!({"id": 5, "labels": ["reserved:init"]}));
    let names: Vec<&str> = model["status"]["controllers"]
        .as_array()
        .unwrap()
        .iter()
        .map(|c| c["name"].as_str().unwrap())
        .collect();
    assert!(names.contains(&"resolve-labels-tenant-a/ghost-0"));
    assert!(bench.cluster.api().get(&CILIUM_ENDPOINTS, "tenant-a", "ghost-0").is_err());
}
