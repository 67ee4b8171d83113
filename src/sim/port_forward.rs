//! `pods/portforward` as the kubelet serves it over a WebSocket: two channels a port, for its bytes and for one error.
//!
//! Where a port leads is a table. Must not know: what is spoken there.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Mutex;

use futures::{SinkExt as _, StreamExt as _};
use hyper::Response;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::{Error, Message};

use super::access::{User, attributes, authorize};
use super::apiserver::Shared;
use super::clock::lock;
use super::exec::{Socket, frame, socket, switching};
use super::http::{Body, Call};
use super::resource::{PODS, Target, key, text};
use super::routes::{Query, Result};
use super::status::Status;

const PROTOCOL: &str = "v4.channel.k8s.io";
const DATA: u8 = 0;
const ERROR: u8 = 1;

/// Where the ports of pods lead, by the pod's key and the port.
#[derive(Debug, Default)]
pub(crate) struct Forwards(Mutex<BTreeMap<(String, u16), SocketAddr>>);

impl Forwards {
    pub(crate) fn set(&self, namespace: &str, pod: &str, port: u16, to: Option<SocketAddr>) {
        let mut table = lock(&self.0);
        let key = (key(namespace, pod), port);
        match to {
            Some(address) => drop(table.insert(key, address)),
            None => drop(table.remove(&key)),
        }
    }

    pub(crate) fn get(&self, namespace: &str, pod: &str, port: u16) -> Option<SocketAddr> {
        lock(&self.0).get(&(key(namespace, pod), port)).copied()
    }
}

/// Answers a request for `pods/{name}/portforward`, of one port.
pub(crate) fn answer_forward(
    shared: &Shared,
    user: &User,
    target: &Target,
    call: &Call,
    query: &Query,
) -> Result<Response<Body>> {
    // From 1.35 on the server asks for the right to create as well, whatever the method of the upgrade.
    let mut wish = attributes(&user.name, call, Some(target), query);
    "create".clone_into(&mut wish.verb);
    authorize(shared, &wish, Some(target.resource))?;
    let pod = shared.lifecycle.store.get(PODS.storage, &key(&target.namespace, &target.name));
    let pod = pod.ok_or_else(|| Status::not_found(&PODS, &target.name))?;
    if text(&pod, "/spec/nodeName").is_empty() {
        return Err(Status::bad_request(format!("pod {} does not have a host assigned", target.name)));
    }
    let ports = query.get("ports");
    let port: u16 = ports.parse().map_err(|_| Status::bad_request(format!("unable to parse {ports:?}")))?;
    let upgrade = call.upgrade.take().ok_or_else(|| Status::for_code(500))?;
    let to = shared.forwards.get(&target.namespace, &target.name, port);
    let name = target.name.clone();
    tokio::spawn(async move {
        if let Ok(upgraded) = upgrade.await {
            // A client that went away is part of the play.
            let _ = carry(socket(upgraded).await, &name, port, to).await;
        }
    });
    Ok(switching(call, PROTOCOL))
}

async fn carry(
    socket: Socket,
    pod: &str,
    port: u16,
    to: Option<SocketAddr>,
) -> std::result::Result<(), Error> {
    let (mut sink, mut source) = socket.split();
    for channel in [DATA, ERROR] {
        sink.send(frame(channel, &port.to_le_bytes())).await?;
    }
    let stream = match to {
        Some(address) => TcpStream::connect(address).await.ok(),
        None => None,
    };
    let Some(stream) = stream else {
        let why = format!(
            "error forwarding port {port} to pod {pod}, uid : failed to execute portforward in network namespace \"host\": failed to connect to localhost:{port} inside namespace \"\", IPv4: dial tcp4 127.0.0.1:{port}: connect: connection refused"
        );
        sink.send(frame(ERROR, why.as_bytes())).await?;
        return sink.close().await;
    };
    let (mut reader, mut writer) = stream.into_split();
    let from_pod = async {
        let mut bytes = vec![0; 32 * 1024];
        loop {
            match reader.read(&mut bytes).await {
                Ok(count) if count > 0 => sink.send(frame(DATA, &bytes[..count])).await?,
                _ => return Ok::<(), Error>(()),
            }
        }
    };
    let to_pod = async {
        while let Some(message) = source.next().await {
            match message? {
                Message::Binary(bytes) if bytes.first() == Some(&DATA) => {
                    writer.write_all(&bytes[1..]).await?;
                }
                Message::Close(_) => break,
                _ => {}
            }
        }
        Ok::<(), Error>(())
    };
    tokio::select! { ended = from_pod => ended?, ended = to_pod => ended? }
    sink.close().await
}
