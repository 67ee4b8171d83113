//! The way to a pod's port, asked with the client library that the program uses.

use std::sync::Arc;

use futures::AsyncReadExt as _;
use hyper::Request;
use kube::api::Api;
use kube::{Client, Config};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::*;

type Pod = k8s_openapi::api::core::v1::Pod;

/// A pod whose port leads to a listener of the test; requests may do what the function says.
async fn stage(
    allows: impl Fn(&Attributes) -> bool + Send + Sync + 'static,
) -> (Cluster, Client, TcpListener) {
    let mut options = ClusterOptions { seed: Some(1), ..ClusterOptions::default() };
    options.api.authorizer = Some(Arc::new(allows));
    let cluster = Cluster::start(options).await.unwrap();
    cluster.api().create(&PODS, pod("t", "web", "n1")).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    cluster.forward("t", "web", 80, Some(listener.local_addr().unwrap()));
    let config = Config::new(cluster.url().parse().unwrap());
    (cluster, Client::try_from(config).unwrap(), listener)
}

#[tokio::test]
async fn bytes_go_both_ways_and_an_end_is_an_end() {
    let (_cluster, client, listener) = stage(|_| true).await;
    let mut forward = Api::<Pod>::namespaced(client, "t").portforward("web", &[80]).await.unwrap();
    let mut stream = forward.take_stream(80).unwrap();
    let (mut pod, _) = listener.accept().await.unwrap();
    stream.write_all(b"ping").await.unwrap();
    let mut got = [0; 4];
    pod.read_exact(&mut got).await.unwrap();
    assert_eq!(&got, b"ping");
    let long = vec![7; 300_000];
    pod.write_all(&long).await.unwrap();
    drop(pod);
    let mut all = Vec::new();
    stream.read_to_end(&mut all).await.unwrap();
    assert_eq!(all.len(), long.len());
    drop(stream);
    // That the task ends is enough: the library takes a close that crosses the server's for an error.
    drop(forward.join().await);
}

#[tokio::test]
async fn a_port_that_nobody_has_is_told_on_the_channel_of_errors() {
    let (cluster, client, _listener) = stage(|_| true).await;
    cluster.forward("t", "web", 80, None);
    let mut forward = Api::<Pod>::namespaced(client, "t").portforward("web", &[80]).await.unwrap();
    let word = forward.take_error(80).unwrap().await.unwrap();
    assert!(word.ends_with("dial tcp4 127.0.0.1:80: connect: connection refused"), "{word}");
}

#[rstest::rstest]
#[case::get("get", 403, "cannot get resource \"pods/portforward\"")]
#[case::create("create", 403, "cannot create resource \"pods/portforward\"")]
#[case::no_such_pod("", 404, "pods \"other\" not found")]
#[tokio::test]
async fn what_is_refused(#[case] verb: &'static str, #[case] code: u16, #[case] why: &str) {
    let (_cluster, client, _listener) =
        stage(move |wish| wish.subresource != "portforward" || wish.verb != verb).await;
    let name = if verb.is_empty() { "other" } else { "web" };
    let refused = Api::<Pod>::namespaced(client, "t").portforward(name, &[80]).await;
    let Err(kube::Error::Api(status)) = refused else { panic!("not refused") };
    assert_eq!(status.code, code);
    assert!(status.message.contains(why), "{}", status.message);
}

#[tokio::test]
async fn the_proxy_passes_a_body_on_as_it_comes() {
    let (cluster, client, listener) = stage(|_| true).await;
    let request = Request::get("/api/v1/namespaces/t/pods/web:80/proxy/v1/x?a=b").body(Vec::new()).unwrap();
    let pod = async {
        let (mut pod, _) = listener.accept().await.unwrap();
        let mut head = vec![0; 4096];
        let count = pod.read(&mut head).await.unwrap();
        pod.write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\none\r\n").await.unwrap();
        (pod, String::from_utf8_lossy(&head[..count]).into_owned())
    };
    let (stream, (mut pod, head)) = tokio::join!(client.request_stream(request), pod);
    assert!(head.starts_with("GET /v1/x?a=b HTTP/1.1\r\n"), "{head}");
    // As the real one, which names itself to the pod and not the pod.
    assert!(head.contains(&format!("host: {}\r\n", cluster.api().address())), "{head}");
    let mut stream = std::pin::pin!(stream.unwrap());
    let mut got = [0; 3];
    stream.read_exact(&mut got).await.unwrap();
    assert_eq!(&got, b"one", "before the rest is written");
    pod.write_all(b"3\r\ntwo\r\n0\r\n\r\n").await.unwrap();
    let mut rest = String::new();
    stream.read_to_string(&mut rest).await.unwrap();
    assert_eq!(rest, "two");
}

#[rstest::rstest]
#[case::no_right(false, "web:80", 403, "cannot get resource \"pods/proxy\"")]
#[case::nobody_listens(true, "web:81", 503, "error trying to reach service")]
#[case::no_such_pod(true, "other:80", 404, "pods \"other\" not found")]
#[tokio::test]
async fn what_the_proxy_refuses(#[case] may: bool, #[case] name: &str, #[case] code: u16, #[case] why: &str) {
    let (cluster, _client, _listener) = stage(move |wish| may || wish.subresource != "proxy").await;
    let reply = ask(&cluster, "GET", &format!("/api/v1/namespaces/t/pods/{name}/proxy/v1/x"), None).await;
    assert_eq!(reply.status, code);
    assert!(json_of(&reply)["message"].as_str().unwrap().contains(why), "{reply:?}");
}
