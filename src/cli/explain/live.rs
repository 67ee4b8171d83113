//! Where the story of a live cluster comes from: the pods that may be meant, and the one that is.
//!
//! Only what is needed is read: one pod by its name, not all pods of the cluster.

use std::net::IpAddr;

use super::pick::{Target, pick};
use super::{candidates, disputed, no_node};
use crate::cli::scan::{OneByOne, Seen};
use crate::domain::{Pod, Read, Unreadable};

/// Finds the pod that is meant and observes it.
pub(super) async fn seen(
    cluster: &OneByOne,
    target: &Target,
    namespace: Option<&str>,
) -> Result<Seen, String> {
    let pods = pods(cluster, target, namespace).await?;
    let mut addresses: Vec<Vec<IpAddr>> = Vec::with_capacity(pods.len());
    for pod in &pods {
        // Events are read where they tell candidates apart.
        let by_address = matches!(target, Target::Ip(_)) || !target.may_be(pod);
        addresses.push(if by_address && pod.not_waiting().is_none() {
            disputed(pod, &cluster.events(pod).await)
        } else {
            Vec::new()
        });
    }
    let pod = pick(target, &candidates(&pods, &addresses, namespace))?.clone();
    let node = pod.node.clone().map_or_else(no_node, Ok)?;
    Ok(cluster.observe(&node, pod).await)
}

/// The pods that may be meant; where none is, those that an error can name.
async fn pods(cluster: &OneByOne, target: &Target, namespace: Option<&str>) -> Result<Vec<Pod>, String> {
    match target {
        Target::Pod(name) => {
            if let Some(pod) = cluster.pod(name).await.map_err(unread)? {
                return Ok(vec![pod]);
            }
            let mut others = known(cluster.neighbours(name.namespace()).await);
            others.extend(known(cluster.refused(Some(name.namespace()), None).await));
            Ok(once(others))
        }
        Target::Name(name) => {
            let all = cluster
                .named(name)
                .await
                .map_err(|why| format!("{}; name the namespace: explain NAMESPACE/{name}", unread(why)))?;
            if !all.is_empty() {
                return Ok(all);
            }
            Ok(known(cluster.refused(None, None).await))
        }
        Target::Ip(ip) => {
            let mut all = cluster.refused(namespace, Some(*ip)).await.map_err(unread)?;
            all.extend(cluster.with_address(*ip).await.map_err(unread)?);
            if all.is_empty() {
                all = known(cluster.refused(namespace, None).await);
            }
            Ok(once(all))
        }
    }
}

/// Names for an error: where they cannot be read, the error does without.
fn known(read: Read<Vec<Pod>>) -> Vec<Pod> {
    read.unwrap_or_default()
}

fn once(mut pods: Vec<Pod>) -> Vec<Pod> {
    pods.sort_by(|a, b| a.name.cmp(&b.name));
    pods.dedup_by(|a, b| a.uid == b.uid);
    pods
}

#[expect(clippy::needless_pass_by_value, reason = "it is given to map_err")]
fn unread(why: Unreadable) -> String {
    why.to_string()
}
