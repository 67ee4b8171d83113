//! One fault between any two calls: a heal, a refusal and a move, with each request in turn going wrong in each way.

use std::time::Duration;

use cilium_leak_healer::sim::WorkloadKind;

use crate::in_memory::on_paused_time;
use crate::run::{Outcome, run};
use crate::scene::{INGRESS, Pull, START, Scene};
use crate::trouble::{Change, How, Kill, Meanwhile, Planned, Target, Trouble, What};

/// Until the leak is healed and the pod on Cilium's own address is moved, where nothing goes wrong: the quiet period after
/// the start is two minutes of it.
const ALL_DONE: Duration = Duration::from_secs(150);
/// Longer than every time-out of a request.
const LATE: Duration = Duration::from_secs(12);

/// A leak, a live duplicate, and a pod on Cilium's own address; it lasts until they must be healed, left and moved.
async fn three_wedges(scene: &Scene) -> Result<(), String> {
    scene.pod("shop", "web-1", "10.244.1.21");
    scene.pod("shop", "old", "10.244.1.40");
    scene.go_on(Duration::from_secs(5)).await?;
    scene.remove("shop", "old", true);
    scene.go_on(Duration::from_secs(3)).await?;
    scene.pod("shop", "new", "10.244.1.40");
    scene.pod("shop", "copy", "10.244.1.21");
    scene.workload(WorkloadKind::ReplicaSet, "front", INGRESS);
    scene.go_on(ALL_DONE).await
}

/// A run in which this goes wrong, from the first instant on.
fn with(trouble: Option<Trouble>) -> Outcome {
    let lasts = ALL_DONE + Duration::from_mins(1);
    let planned = trouble.map(|trouble| Planned { at: Duration::ZERO, lasts, trouble });
    let pull = Pull { takes: Duration::ZERO, reported: true };
    on_paused_time(1, run(1, ("delegated-plugin", pull), planned.into_iter().collect(), three_wedges))
}

/// How many requests the watchdog makes at each server while the wedges are healed, where nothing goes wrong.
pub(crate) fn requests() -> (Outcome, u64, u64) {
    let outcome = with(None);
    let end = (START.parse::<jiff::Timestamp>().expect("a time") + ALL_DONE).to_string();
    let early = |line: &&String| line.as_str() < end.as_str();
    let acts = outcome.requests.iter().filter(early).filter(|line| {
        line.contains(" DELETE /v1/endpoint/") || line.contains(" DELETE /api/v1/namespaces/shop/pods/front-")
    });
    assert_eq!(acts.count(), 2, "the heal and the move are within the time in which each request goes wrong");
    let made = |by: &str| {
        let of = |line: &&String| line.split(' ').nth(1) == Some(by);
        outcome.requests.iter().filter(early).filter(of).count() as u64
    };
    let (api, agent) = (made("in-memory"), made(""));
    (outcome, api, agent)
}

/// Everything that can happen to one request.
pub(crate) fn troubles(target: Target, nth: u64) -> Vec<Trouble> {
    let statuses: &[u16] = match target {
        Target::Api => &[401, 403, 404, 409, 410, 422, 429, 500, 503],
        Target::Agent => &[400, 403, 404, 429, 500, 503],
    };
    let mut all: Vec<What> = statuses.iter().map(|status| What::Status(*status)).collect();
    all.extend([
        What::Hang,
        What::Reset,
        What::HalfBody,
        What::Garbage,
        What::LateAnswer(LATE),
        What::LateEffect(LATE),
    ]);
    let fails = all.into_iter().map(|what| match target {
        Target::Api => Trouble::Api(How::nth(what, nth)),
        Target::Agent => Trouble::Agent(How::nth(what, nth)),
    });
    let dies = [false, true].map(|after| Trouble::KillWithin(Kill { target, method: None, nth, after }));
    let changes = Change::ALL.map(|change| Trouble::Meanwhile(Meanwhile { target, nth, change }));
    fails.chain(dies).chain(changes).collect()
}

/// What is wrong after this trouble.
pub(crate) fn failure(trouble: &Trouble) -> Option<String> {
    let outcome = with(Some(trouble.clone()));
    outcome.failure.or_else(|| {
        // A heal whose answer is lost may be found done: then it takes no second disconnect.
        let needs_none =
            matches!(trouble, Trouble::Meanwhile(Meanwhile { change: Change::Reuse | Change::Leaves, .. }));
        let wrong = (outcome.disconnected == 0 && !needs_none) || outcome.deleted > 1;
        wrong.then(|| format!("{} disconnects, {} deletions", outcome.disconnected, outcome.deleted))
    })
}
