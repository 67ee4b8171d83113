//! Worlds made at random, each with a truth that the rules do not see. Whatever is observed of a world in which the
//! holder is in use, nobody disconnects it; and no read that failed ever leads to a remedy.

use jiff::Timestamp;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;

use super::fixtures::{HOLDER, IP, SANDBOX, ago, failure, holder, ip, message, name, pod, running, stale};
use crate::domain::{
    CiliumEndpoint, CiliumNode, Containers, EndpointState, Event, Events, Holder, IpamMode, Limits, LogEntry,
    Lookup, Observation, Phase, Pod, Read, ReadFailure, Remedy, SliceEntry, Unreadable, judge,
};

fn unread<T>() -> Read<T> {
    Err(Unreadable { what: "GET it".to_owned(), why: ReadFailure::Timeout })
}

/// How the agent tells whose the endpoint is.
#[derive(Debug, Clone, Copy)]
enum Naming {
    Identifiers,
    Controller,
    Nameless,
    NoNamespace,
}

/// What Cilium's objects say of the endpoint: the truth, or what an agent adopted from a former pod of that name.
#[derive(Debug, Clone, Copy)]
enum Told {
    NotServed,
    Unread,
    Nothing,
    Truth,
    Adopted,
}

#[derive(Debug, Clone)]
struct World {
    /// Seconds before now at which the endpoint was made.
    made: i64,
    /// Seconds before now of the newest failure of the wedged pod.
    failed: i64,
    count: u32,
    naming: Naming,
    endpoints: Told,
    slices: Told,
    /// The log was cut to its last part by the agent's ring, or could not be read.
    log: Option<bool>,
    state: EndpointState,
    owner_read: bool,
    users_read: bool,
    node_pods_read: bool,
    agent_started: Option<i64>,
    attachment: &'static str,
    /// The live owner: its own sandbox is the holder.
    owner: Pod,
}

fn naming() -> impl Strategy<Value = Naming> {
    select(vec![Naming::Identifiers, Naming::Controller, Naming::Nameless, Naming::NoNamespace])
}

fn told() -> impl Strategy<Value = Told> {
    select(vec![Told::NotServed, Told::Unread, Told::Nothing, Told::Truth, Told::Adopted])
}

/// A live pod that has this address: it lists it, or its status has not come yet.
fn live_owner() -> impl Strategy<Value = Pod> {
    let phases =
        select(vec![Phase::Pending, Phase::Running, Phase::Unknown, Phase::Failed, Phase::Succeeded]);
    let listed = select(vec![vec![], vec![IP], vec![IP, "fd00::1"], vec!["fd00::1"], vec!["169.254.3.4"]]);
    (phases, any::<bool>(), any::<bool>(), listed, any::<bool>()).prop_map(
        |(phase, is_running, deleting, listed, mirror)| {
            let is_running = is_running || phase.is_terminal();
            Pod {
                phase,
                deleting,
                containers: Containers { running: is_running, ended: false, ever_ran: is_running },
                mirror: mirror.then(|| "config".to_owned()),
                ..running("backup/agent-0", "owner", &listed)
            }
        },
    )
}

fn world() -> impl Strategy<Value = World> {
    let states = select(vec![
        EndpointState::Ready,
        EndpointState::Regenerating,
        EndpointState::WaitingForIdentity,
        EndpointState::Other,
    ]);
    let times = (0_i64..2000, -90_i64..700, 1_u32..4);
    let reads = (any::<bool>(), any::<bool>(), any::<bool>(), option::of(0_i64..1000));
    let attachment = select(vec!["eth0", "net1", ""]);
    (times, naming(), told(), told(), option::of(any::<bool>()), states, reads, attachment, live_owner())
        .prop_map(
            |((made, failed, count), naming, endpoints, slices, log, state, reads, attachment, owner)| {
                let (owner_read, users_read, node_pods_read, agent_started) = reads;
                // A pod starts before its endpoint is made.
                let owner = Pod { started: Some(ago(made + 3)), created: Some(ago(made + 3)), ..owner };
                World {
                    made,
                    failed,
                    count,
                    naming,
                    endpoints,
                    slices,
                    log,
                    state,
                    owner_read,
                    users_read,
                    node_pods_read,
                    agent_started,
                    attachment,
                    owner,
                }
            },
        )
}

impl World {
    fn holder(&self) -> Holder {
        let container = if self.attachment.is_empty() {
            HOLDER.to_owned()
        } else {
            format!("{HOLDER}:{}", self.attachment)
        };
        let whole = vec![
            Self::entry(self.made - 1, EndpointState::Ready),
            Self::entry(self.made, EndpointState::WaitingForIdentity),
        ];
        let nameless =
            Holder { controllers: Vec::new(), attachment: Some(container.parse().unwrap()), ..holder() };
        let nameless = Holder {
            state: self.state,
            log: self.log.map(|cut| if cut { whole[..1].to_vec() } else { whole }),
            ..nameless
        };
        match self.naming {
            Naming::Identifiers => Holder { named: Some(self.owner.name.clone()), ..nameless },
            Naming::Controller => {
                Holder { controllers: vec![format!("resolve-labels-{}", self.owner.name)], ..nameless }
            }
            Naming::Nameless => nameless,
            Naming::NoNamespace => Holder { labels: vec!["reserved:init".to_owned()], ..nameless },
        }
    }

    fn entry(seconds_ago: i64, state: EndpointState) -> LogEntry {
        LogEntry { at: ago(seconds_ago), state }
    }

    fn uid(told: Told) -> &'static str {
        if matches!(told, Told::Truth) { "owner" } else { "former" }
    }

    fn endpoint(&self) -> CiliumEndpoint {
        CiliumEndpoint {
            name: self.owner.name.clone(),
            id: Some(self.holder().id),
            attachment: self.holder().attachment,
            container: None,
            owners: vec![(self.owner.name.name().to_owned(), Self::uid(self.endpoints).parse().unwrap())],
        }
    }

    fn slice(&self) -> SliceEntry {
        let uid = Self::uid(self.slices).parse().unwrap();
        SliceEntry {
            name: self.owner.name.clone(),
            ips: vec![ip(IP)],
            node: Some(ip("192.0.2.11")),
            uid: Some(uid),
        }
    }

    fn objects<T>(told: Told, object: impl Fn() -> T) -> Read<Option<Vec<T>>> {
        match told {
            Told::NotServed => Ok(None),
            Told::Unread => unread(),
            Told::Nothing => Ok(Some(Vec::new())),
            Told::Truth | Told::Adopted => Ok(Some(vec![object()])),
        }
    }

    /// What a watchdog sees of it while `wedged` hangs on the address.
    fn observed(&self, wedged: Pod, failures: Vec<Event>) -> Observation {
        let owner = self.owner.clone();
        let lists = owner.lists(ip(IP));
        let cilium_node = CiliumNode { addresses: vec![ip("192.0.2.11")], ..CiliumNode::default() };
        Observation {
            agent_started: self.agent_started.map(ago),
            lookup: Lookup::Held(Box::new(self.holder())),
            holder_first_seen: None,
            ipam_mode: Ok(IpamMode("cluster-pool".to_owned())),
            cilium_node: Ok(Some(cilium_node)),
            endpoints: Self::objects(self.endpoints, || self.endpoint()),
            slices: Self::objects(self.slices, || self.slice()),
            owner: if self.owner_read { Ok(Some(owner.clone())) } else { unread() },
            address_users: if self.users_read {
                Ok(Some(owner.clone()).into_iter().filter(|_| lists).collect())
            } else {
                unread()
            },
            node_pods: if self.node_pods_read { Ok(vec![owner, wedged.clone()]) } else { unread() },
            ..Observation::new(
                super::fixtures::now(),
                super::fixtures::node(),
                wedged,
                Events { known: failures, unreadable: None },
            )
        }
    }
}

fn disconnects(obs: &Observation) -> bool {
    judge(obs, &Limits::default())
        .finding()
        .is_some_and(|finding| matches!(finding.remedy, Remedy::DisconnectEndpoint(_)))
}

/// Which read fails. A pod is moved off a reserved address on the word of the holder alone: there, three matter.
fn unknown() -> impl Strategy<Value = (bool, usize)> {
    any::<bool>().prop_flat_map(|reserved| (Just(reserved), 0..if reserved { 3_usize } else { 8 }))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4_000, failure_persistence: None, ..ProptestConfig::default() })]

    /// Another pod hangs on the address of a pod that is alive.
    #[test]
    fn the_endpoint_of_a_live_pod_is_never_disconnected(world in world()) {
        let wedged = pod("tenant-a/web-1", "wedged");
        let events = vec![Event { count: world.count, ..failure(&wedged, world.failed) }];
        prop_assert!(!disconnects(&world.observed(wedged, events)));
    }

    /// The wedged pod's own new sandbox holds the address: it was made after the failure, or it is the refused one.
    #[test]
    fn the_wedged_pods_own_new_sandbox_is_never_disconnected(world in world(), is_refused in any::<bool>(), since in 0_i64..600) {
        let mut world = world;
        let wedged = Pod { started: Some(ago(world.failed + 5)), ..pod("backup/agent-0", "owner") };
        world.owner = wedged.clone();
        world.made = if is_refused { world.made } else { world.failed - since };
        let sandbox = if is_refused { HOLDER } else { SANDBOX };
        let newest = Event { count: world.count, message: message(&format!("ipv4:{IP}"), sandbox), ..failure(&wedged, world.failed) };
        // A refused sandbox is the newest one: no older failure names it, and the former pod's UID is not told for it.
        if is_refused {
            world.endpoints = Told::Truth;
            world.slices = Told::Truth;
        }
        prop_assert!(!disconnects(&world.observed(wedged, vec![newest])));
    }

    /// Of all that a remedy rests on, each read that fails takes it away.
    #[test]
    fn no_unknown_ever_gives_a_remedy((reserved, which) in unknown(), seconds in 6_i64..590) {
        let mut obs = stale();
        obs.events.known[0].at = Some(ago(seconds));
        if reserved {
            obs.lookup = Lookup::Held(Box::new(Holder { labels: vec!["reserved:ingress".to_owned()], ..holder() }));
        }
        prop_assert!(remedy(&obs) != "none");
        match which {
            0 => obs.events.unreadable = unread::<()>().err(),
            1 => obs.lookup = Lookup::Unknown(unread::<()>().unwrap_err()),
            2 => obs.agent_started = None,
            3 => obs.owner = unread(),
            4 => obs.cilium_node = unread(),
            5 => obs.address_users = unread(),
            6 => obs.ipam_mode = unread(),
            _ => obs.cilium_node = Ok(None),
        }
        prop_assert_eq!(remedy(&obs), "none");
    }

    /// Neither text nor numbers of any kind break the rules.
    #[test]
    fn no_message_and_no_time_breaks_the_rules(text in ".{0,400}", at in any::<i32>(), started in any::<i32>()) {
        let mut obs = stale();
        obs.events.known[0].message = text;
        obs.events.known[0].at = Timestamp::from_second(i64::from(at)).ok();
        obs.agent_started = Timestamp::from_second(i64::from(started)).ok();
        judge(&obs, &Limits::default());
        obs.events.known[0].message = message(&format!("ipv4:{IP}"), SANDBOX);
        judge(&obs, &Limits::default());
    }
}

fn remedy(obs: &Observation) -> &'static str {
    judge(obs, &Limits::default()).finding().map_or("none", |finding| finding.remedy.as_str())
}

/// The worlds are not all refused for one dull reason: with the owner gone, many of them are healed.
#[test]
fn a_world_without_its_owner_is_healed() {
    let mut obs = stale();
    obs.lookup = Lookup::Held(Box::new(Holder { named: Some(name("backup/agent-0")), ..holder() }));
    assert!(disconnects(&obs));
}
