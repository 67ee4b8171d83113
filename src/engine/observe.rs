//! Fills an [`Observation`] from whatever can read: a live cluster, or a file that holds one.
//!
//! It asks in the order of the verdict table and stops where the table is decided, so that nothing is read in vain.
//! What was not asked stays unknown, and unknown refuses: leaving a read out can only make a verdict more careful.

use std::net::IpAddr;

use jiff::Timestamp;

use crate::domain::{
    CiliumEndpoint, CiliumNode, Events, Failure, Holder, IpamMode, Lookup, NewestFailure, NodeName,
    Observation, Pod, PodName, Read, SandboxEvents, SliceEntry,
};

/// What can be asked about one node's wedges. Each answer is live, or says that nobody knows.
pub trait Sources {
    /// The pod's Events.
    fn events(&self, pod: &Pod) -> impl Future<Output = Events>;
    /// The agent's answer to a look-up by address, with the holder's whole log.
    fn lookup(&self, ip: IpAddr) -> impl Future<Output = Lookup>;
    /// When the agent started.
    fn agent_started(&self) -> impl Future<Output = Option<Timestamp>>;
    /// The agent's IPAM mode.
    fn ipam_mode(&self) -> impl Future<Output = Read<IpamMode>>;
    /// The CiliumNode of this node.
    fn cilium_node(&self) -> impl Future<Output = Read<Option<CiliumNode>>>;
    /// A pod by name.
    fn pod(&self, name: &PodName) -> impl Future<Output = Read<Option<Pod>>>;
    /// The pods that list an address.
    fn pods_with_address(&self, ip: IpAddr) -> impl Future<Output = Read<Vec<Pod>>>;
    /// All pods of this node; of a nameless holder's namespace, each one.
    fn pods_of_node(&self, namespace: &str) -> impl Future<Output = Read<Vec<Pod>>>;
    /// CiliumEndpoints that may be the holder's: at least those of the pods that are named. `None`: not served.
    fn endpoints(
        &self,
        holder: &Holder,
        pods: &[PodName],
    ) -> impl Future<Output = Read<Option<Vec<CiliumEndpoint>>>>;
    /// Entries of CiliumEndpointSlices for a pod's name. `None`: not served.
    fn slices(&self, pod: &PodName) -> impl Future<Output = Read<Option<Vec<SliceEntry>>>>;
}

/// Observes one pod. `now` is asked once, before anything is read; `first_seen` knows the watchdog's own sightings.
pub async fn observe<S: Sources>(
    sources: &S,
    node: &NodeName,
    pod: Pod,
    now: Timestamp,
    first_seen: impl Fn(IpAddr, &Holder) -> Option<Timestamp>,
) -> Observation {
    if pod.not_waiting().is_some() {
        return Observation::new(now, node.clone(), pod, Events::default());
    }
    let events = sources.events(&pod).await;
    let mut obs = Observation::new(now, node.clone(), pod, events);
    let NewestFailure::Refusal(Failure { addresses, .. }) =
        SandboxEvents::of(&obs.pod, node, &obs.events.known).newest()
    else {
        return obs;
    };
    let &[ip] = addresses.as_slice() else {
        obs.agent_started = sources.agent_started().await;
        return obs;
    };
    obs.lookup = sources.lookup(ip).await;
    // Asked after the look-up: a restart in between shows as a start that is later than now.
    obs.agent_started = sources.agent_started().await;
    if matches!(obs.lookup, Lookup::Unknown(_)) {
        return obs;
    }
    obs.cilium_node = sources.cilium_node().await;
    let Lookup::Held(holder) = obs.lookup.clone() else {
        return obs;
    };
    let reserved = obs
        .cilium_node
        .as_ref()
        .is_ok_and(|node| node.as_ref().is_some_and(|node| node.reserved_use(ip).is_some()));
    if reserved || holder.reserved_label().is_some() {
        return obs;
    }
    obs.holder_first_seen = first_seen(ip, &holder);
    obs.ipam_mode = sources.ipam_mode().await;
    find_owner(sources, &mut obs, &holder).await;
    obs.address_users = sources.pods_with_address(ip).await;
    obs
}

/// Reads what names the owner, the owner, and what gives the endpoint's UID.
async fn find_owner<S: Sources>(sources: &S, obs: &mut Observation, holder: &Holder) {
    let by_agent = holder.owner_by_agent();
    if by_agent.pod().is_none() {
        let mut candidates = Vec::new();
        if let Some(namespace) = holder.namespace_label() {
            obs.node_pods = sources.pods_of_node(namespace).await;
            let pods = obs.node_pods.iter().flatten();
            candidates =
                pods.filter(|pod| pod.name.namespace() == namespace).map(|pod| pod.name.clone()).collect();
        }
        obs.endpoints = sources.endpoints(holder, &candidates).await;
    }
    let named = match &obs.endpoints {
        Ok(Some(endpoints)) => holder.owner(endpoints),
        Ok(None) | Err(_) => by_agent,
    };
    let Some(name) = named.pod() else {
        return;
    };
    obs.owner = sources.pod(name).await;
    // Only a live pod of this name on this node makes the endpoint's UID matter.
    let Ok(Some(owner)) = &obs.owner else {
        return;
    };
    if !owner.is_live() || owner.node.as_ref() != Some(&obs.node) {
        return;
    }
    if obs.endpoints.is_err() {
        obs.endpoints = sources.endpoints(holder, std::slice::from_ref(name)).await;
    }
    // An endpoint's UID that is the pod's settles it; any other one may be adopted, and a slice may know better.
    let is_holders = |cep: &&CiliumEndpoint| {
        cep.id == Some(holder.id) && cep.container().is_some() && cep.container() == holder.container()
    };
    let endpoints = obs.endpoints.iter().flatten().flatten().filter(is_holders);
    let is_owners = endpoints.flat_map(|cep| &cep.owners).any(|(_, uid)| *uid == owner.uid);
    if !is_owners {
        obs.slices = sources.slices(name).await;
    }
}
