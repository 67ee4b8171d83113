//! The engine in worlds made for it, over simulated days on paused time.

mod act;
mod answers;
mod book;
mod days;
pub(super) mod fixtures;
mod gates;
mod hands;
mod heal;
#[cfg(feature = "sim")]
mod live;
mod memory;
mod observe;
mod patience;
mod restart;
mod second_opinion;
mod settle;
mod telling;
mod turns;
mod wedge;
mod world;

use std::time::Duration;

use tokio::time::Instant;

use super::{EngineOptions, Judge, Mode, Namespaces};
use crate::domain::{Limits, NodeName, RemedyKind};

fn node() -> NodeName {
    "n1".parse().unwrap()
}

pub(super) fn options(judge: Judge) -> EngineOptions {
    EngineOptions {
        node: node(),
        own_namespace: "cilium-leak-healer".to_owned(),
        mode: Mode::Heal,
        remedies: vec![RemedyKind::DisconnectEndpoint, RemedyKind::DeletePod],
        namespaces: Namespaces::default(),
        require_fence: true,
        heal_for: None,
        unknown_versions: false,
        judge,
        limits: Limits::default(),
        startup_quiet: Duration::from_secs(10),
        confirm_gap: Duration::from_secs(2),
        event_delay: Duration::from_secs(3),
        verify_timeout: Duration::from_mins(1),
        restart_timeout: Duration::from_mins(10),
        restart_quiet: Duration::from_mins(5),
        judge_timeout: Duration::from_mins(1),
    }
}

/// Ends in the millisecond in which it is so, within ten minutes.
async fn until(mut is_so: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < Duration::from_mins(10), "not within ten minutes");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}
