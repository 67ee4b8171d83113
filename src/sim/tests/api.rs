use std::sync::Arc;

use hyper::header::AUTHORIZATION;
use rstest::rstest;

use super::*;

#[tokio::test]
async fn a_list_in_pages_shows_one_revision() {
    let cluster = cluster().await;
    for name in ["a", "b", "c", "d", "e"] {
        cluster.api().create(&PODS, pod("t", name, "n1")).unwrap();
    }
    let first = json_of(&ask(&cluster, "GET", "/api/v1/pods?limit=2", None).await);
    assert_eq!(first["kind"], "PodList");
    assert_eq!(first["items"].as_array().unwrap().len(), 2);
    assert_eq!(first["metadata"]["remainingItemCount"], 3);
    assert_eq!(first["items"][0].get("kind"), None, "items of core lists carry no kind");
    // Deleted between the pages, and still in the second one.
    cluster.api().delete(&PODS, "t", "c", &DeleteOptions::now()).unwrap();
    let token = first["metadata"]["continue"].as_str().unwrap();
    let second =
        json_of(&ask(&cluster, "GET", &format!("/api/v1/pods?limit=2&continue={token}"), None).await);
    let names: Vec<&str> = second["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|pod| pod["metadata"]["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["c", "d"]);
    assert_eq!(second["metadata"]["resourceVersion"], first["metadata"]["resourceVersion"]);
    // With a selector nobody counts what remains.
    let selected =
        json_of(&ask(&cluster, "GET", "/api/v1/pods?limit=2&fieldSelector=spec.nodeName%3Dn1", None).await);
    assert_eq!(selected["metadata"].get("remainingItemCount"), None);
    assert!(selected["metadata"]["continue"].is_string());
}

#[tokio::test]
async fn an_expired_token_is_a_410_that_offers_another() {
    let cluster = cluster().await;
    for name in ["a", "b", "c"] {
        cluster.api().create(&PODS, pod("t", name, "n1")).unwrap();
    }
    let first = json_of(&ask(&cluster, "GET", "/api/v1/pods?limit=1", None).await);
    cluster.api().delete(&PODS, "t", "b", &DeleteOptions::now()).unwrap();
    cluster.api().compact();
    let token = first["metadata"]["continue"].as_str().unwrap();
    let reply = ask(&cluster, "GET", &format!("/api/v1/pods?limit=1&continue={token}"), None).await;
    let status = json_of(&reply);
    assert_eq!((reply.status, &status["reason"], &status["code"]), (410, &json!("Expired"), &json!(410)));
    let offered = status["metadata"]["continue"].as_str().unwrap();
    let rest =
        json_of(&ask(&cluster, "GET", &format!("/api/v1/pods?limit=5&continue={offered}"), None).await);
    assert_eq!(rest["items"][0]["metadata"]["name"], "c");
    let reply = ask(&cluster, "GET", "/api/v1/pods?continue=rubbish", None).await;
    assert_eq!((reply.status, json_of(&reply)["reason"].clone()), (400, json!("BadRequest")));
}

#[rstest]
#[case::unknown_field(
    "/api/v1/pods?fieldSelector=spec.nodename%3Dn1",
    400,
    "field label not supported: spec.nodename"
)]
#[case::no_object("/api/v1/namespaces/t/pods/x", 404, "pods \"x\" not found")]
#[case::no_resource_of_a_served_group(
    "/api/v1/secrets",
    404,
    "the server could not find the requested resource"
)]
#[case::no_custom_object("/apis/cilium.io/v2/ciliumnodes/x", 404, "ciliumnodes.cilium.io \"x\" not found")]
#[tokio::test]
async fn failures_are_statuses(#[case] uri: &str, #[case] code: u16, #[case] message: &str) {
    let reply = ask(&cluster().await, "GET", uri, None).await;
    let status = json_of(&reply);
    assert_eq!(
        (reply.status, status["kind"].as_str(), status["message"].as_str()),
        (code, Some("Status"), Some(message))
    );
    assert_eq!(status["status"], "Failure");
}

#[tokio::test]
async fn what_is_not_served_is_plain_text() {
    let mut options = ClusterOptions::default();
    options.api.serve_cilium_endpoints = false;
    options.api.serve_cilium_endpoint_slices = false;
    let cluster = Cluster::start(options).await.unwrap();
    for uri in
        ["/apis/cilium.io/v2/ciliumendpoints", "/apis/cilium.io/v2alpha1/ciliumendpointslices", "/nonsense"]
    {
        let reply = ask(&cluster, "GET", uri, None).await;
        assert_eq!((reply.status, reply.body.as_ref()), (404, b"404 page not found\n".as_slice()), "{uri}");
        assert_eq!(reply.headers["content-type"], "text/plain; charset=utf-8");
    }
    let list = json_of(&ask(&cluster, "GET", "/apis/cilium.io/v2", None).await);
    let names: Vec<&str> =
        list["resources"].as_array().unwrap().iter().map(|r| r["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["ciliumnodes", "ciliumnodes/status"]);
    assert_eq!(ask(&cluster, "GET", "/apis/cilium.io/v2alpha1", None).await.status, 404);
}

#[tokio::test]
async fn discovery_tells_what_is_served() {
    let cluster = cluster().await;
    assert_eq!(json_of(&ask(&cluster, "GET", "/version", None).await)["gitVersion"], "v1.36.3");
    assert_eq!(json_of(&ask(&cluster, "GET", "/api", None).await)["versions"], json!(["v1"]));
    let groups = json_of(&ask(&cluster, "GET", "/apis", None).await);
    let cilium =
        groups["groups"].as_array().unwrap().iter().find(|group| group["name"] == "cilium.io").unwrap();
    assert_eq!(cilium["preferredVersion"]["version"], "v2");
    assert_eq!(cilium["versions"].as_array().unwrap().len(), 2);
    let core = json_of(&ask(&cluster, "GET", "/api/v1", None).await);
    assert!(core["resources"].as_array().unwrap().iter().any(|r| r["name"] == "pods/status"));
}

#[tokio::test]
async fn a_delete_answers_the_pod_or_a_status() {
    let cluster = cluster().await;
    cluster.api().create(&PODS, pod("t", "p", "n1")).unwrap();
    let body = json!({"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": {"uid": "other"}});
    let reply = ask(&cluster, "DELETE", "/api/v1/namespaces/t/pods/p", Some(body)).await;
    assert_eq!((reply.status, json_of(&reply)["reason"].clone()), (409, json!("Conflict")));
    let reply = ask(&cluster, "DELETE", "/api/v1/namespaces/t/pods/p", None).await;
    assert_eq!(
        (reply.status, json_of(&reply)["metadata"]["deletionGracePeriodSeconds"].clone()),
        (200, json!(30))
    );
    let reply = ask(&cluster, "DELETE", "/api/v1/namespaces/t/pods/p?gracePeriodSeconds=0", None).await;
    assert_eq!(json_of(&reply)["kind"], "Pod");
    assert_eq!(ask(&cluster, "DELETE", "/api/v1/namespaces/t/pods/p", None).await.status, 404);
    cluster.api().create(&CILIUM_ENDPOINTS, json!({"metadata": {"name": "e", "namespace": "t"}})).unwrap();
    let reply =
        json_of(&ask(&cluster, "DELETE", "/apis/cilium.io/v2/namespaces/t/ciliumendpoints/e", None).await);
    assert_eq!(
        (&reply["kind"], &reply["status"], &reply["details"]["kind"]),
        (&json!("Status"), &json!("Success"), &json!("ciliumendpoints"))
    );
}

#[tokio::test]
async fn a_client_writes_only_what_it_may() {
    let cluster = cluster().await;
    let mut object = pod("t", "p", "");
    object["status"] = json!({"phase": "Running"});
    let made = json_of(&ask(&cluster, "POST", "/api/v1/namespaces/t/pods", Some(object)).await);
    assert_eq!(made["status"]["phase"], "Pending", "a status cannot be made");
    let uri = "/api/v1/namespaces/t/pods/p";
    let merge = "application/merge-patch+json";
    let patched = json_of(
        &patch(
            &cluster,
            uri,
            merge,
            json!({"metadata": {"labels": {"x": "y"}}, "status": {"phase": "Failed"}}),
        )
        .await,
    );
    assert_eq!(
        (&patched["metadata"]["labels"]["x"], &patched["status"]["phase"]),
        (&json!("y"), &json!("Pending"))
    );
    let patched = json_of(
        &patch(
            &cluster,
            &format!("{uri}/status"),
            merge,
            json!({"status": {"phase": "Failed"}, "metadata": {"labels": null}}),
        )
        .await,
    );
    assert_eq!(
        (&patched["metadata"]["labels"]["x"], &patched["status"]["phase"]),
        (&json!("y"), &json!("Failed"))
    );
    let reply = ask(&cluster, "PUT", uri, Some(made)).await;
    assert_eq!((reply.status, json_of(&reply)["reason"].clone()), (409, json!("Conflict")));
    let reply =
        ask(&cluster, "POST", "/api/v1/namespaces/t/pods", Some(json!({"metadata": {"name": "q"}}))).await;
    assert_eq!(
        (reply.status, json_of(&reply)["message"].clone()),
        (422, json!("Pod \"q\" is invalid: spec.containers: Required value"))
    );
}

#[tokio::test]
async fn events_have_two_faces() {
    let cluster = cluster().await;
    let event = json!({"metadata": {"name": "e", "namespace": "t"}, "regarding": {"kind": "Pod", "name": "p", "uid": "u"}, "reason": "R", "note": "n", "eventTime": "2026-12-01T00:00:00.000000Z", "type": "Normal", "action": "a", "reportingController": "c", "reportingInstance": "i"});
    let made = ask(&cluster, "POST", "/apis/events.k8s.io/v1/namespaces/t/events", Some(event)).await;
    assert_eq!((made.status, json_of(&made)["note"].clone()), (201, json!("n")));
    let core = json_of(
        &ask(&cluster, "GET", "/api/v1/events?fieldSelector=involvedObject.uid%3Du,reason%3DR", None).await,
    );
    assert_eq!(core["items"][0]["message"], "n");
    assert_eq!(core["items"][0]["involvedObject"]["name"], "p");
    assert_eq!(core["items"][0]["reportingComponent"], "c");
}

#[tokio::test]
async fn tokens_name_users_and_an_authorizer_decides() {
    let mut options = ClusterOptions::default();
    options.api.anonymous = false;
    options.api.authorizer = Some(Arc::new(|wish| wish.verb == "get"));
    let cluster = Cluster::start(options).await.unwrap();
    let reply = ask(&cluster, "GET", "/api/v1/pods", None).await;
    assert_eq!((reply.status, json_of(&reply)["message"].clone()), (401, json!("Unauthorized")));
    assert!(cluster.kubeconfig().contains("token: \"sim-token\""));
    let admin = [(AUTHORIZATION, "Bearer sim-token")];
    let reply = ask_with(&cluster, "GET", "/api/v1/pods", &admin, None).await.unwrap();
    let message = "pods is forbidden: User \"system:admin\" cannot list resource \"pods\" in API group \"\" at the cluster scope";
    assert_eq!((reply.status, json_of(&reply)["message"].clone()), (403, json!(message)));
    assert_eq!(
        ask_with(&cluster, "GET", "/api/v1/namespaces/t/pods/x", &admin, None).await.unwrap().status,
        404
    );
    let review = json!({"spec": {"resourceAttributes": {"verb": "list", "resource": "pods"}}});
    let uri = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let reply = ask_with(&cluster, "POST", uri, &admin, Some(review)).await.unwrap();
    assert_eq!(json_of(&reply)["status"]["allowed"], false);
}

#[tokio::test]
async fn the_log_has_every_request() {
    let cluster = cluster().await;
    ask(&cluster, "GET", "/api/v1/pods?limit=1", None).await;
    ask(&cluster, "GET", "/nonsense", None).await;
    let log = cluster.api().take_requests();
    let seen: Vec<_> =
        log.iter().map(|r| (r.method.as_str(), r.path.as_str(), r.query.as_str(), r.status)).collect();
    assert_eq!(seen, [("GET", "/api/v1/pods", "limit=1", 200), ("GET", "/nonsense", "", 404)]);
    assert!(log[0].bytes > 0);
    assert!(cluster.api().requests().is_empty());
}

#[tokio::test]
async fn an_endpoint_goes_with_its_pod() {
    let cluster = cluster().await;
    let made = cluster.api().create(&PODS, pod("t", "p", "")).unwrap();
    let owner = json!([{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": made["metadata"]["uid"]}]);
    for name in ["p", "unowned"] {
        let owners = if name == "p" { owner.clone() } else { json!([]) };
        cluster
            .api()
            .create(
                &CILIUM_ENDPOINTS,
                json!({"metadata": {"name": name, "namespace": "t", "ownerReferences": owners}}),
            )
            .unwrap();
    }
    cluster.api().delete(&PODS, "t", "p", &DeleteOptions::default()).unwrap();
    cluster
        .wait_for("the endpoint to go", |c| c.api().get(&CILIUM_ENDPOINTS, "t", "p").is_err())
        .await
        .unwrap();
    assert!(cluster.api().get(&CILIUM_ENDPOINTS, "t", "unowned").is_ok());
}

#[tokio::test]
async fn a_token_is_told_whose_it_is_and_what_its_user_may_ask_for() {
    let authorizer = |wish: &Attributes| match wish.path.as_str() {
        "/v1/state" => wish.user.ends_with(":viewer") && wish.verb == "get",
        // Without a token nobody may ask about others.
        _ => wish.user != "system:anonymous",
    };
    let api = ApiOptions { authorizer: Some(Arc::new(authorizer)), ..ApiOptions::default() };
    let cluster = Cluster::start(ClusterOptions { api, ..ClusterOptions::default() }).await.unwrap();
    let token = cluster.api().token_of_account("ops", "viewer");
    let admin = [(AUTHORIZATION, "Bearer sim-token")];
    let review = async |uri: &str, spec: Value, headers: &[(HeaderName, &str)]| {
        let reply = ask_with(&cluster, "POST", uri, headers, Some(json!({ "spec": spec }))).await.unwrap();
        (reply.status, json_of(&reply))
    };
    let tokens = "/apis/authentication.k8s.io/v1/tokenreviews";
    let (code, known) = review(tokens, json!({"token": token}), &admin).await;
    assert_eq!((code, &known["status"]["authenticated"]), (201, &Value::Bool(true)));
    assert_eq!(known["status"]["user"]["username"], "system:serviceaccount:ops:viewer");
    let (code, unknown) = review(tokens, json!({"token": "x"}), &admin).await;
    assert_eq!((code, &unknown["status"]["user"]), (201, &json!({})));
    assert_eq!(unknown["status"].get("authenticated"), None);
    assert_eq!(review(tokens, json!({}), &admin).await.0, 400);
    let (code, refused) = review(tokens, json!({"token": token}), &[]).await;
    assert_eq!(code, 403);
    let message = refused["message"].as_str().unwrap();
    assert!(message.starts_with("tokenreviews.authentication.k8s.io is forbidden: User"), "{message}");

    let access = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
    for (verb, allowed) in [("get", true), ("put", false)] {
        let spec = json!({
            "user": "system:serviceaccount:ops:viewer",
            "nonResourceAttributes": {"path": "/v1/state", "verb": verb},
        });
        assert_eq!(review(access, spec.clone(), &admin).await.1["status"]["allowed"], allowed, "{verb}");
        assert_eq!(review(access, spec, &[]).await.0, 403);
    }
}
