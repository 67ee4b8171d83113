//! The ledger as the engine holds it: when it is opened and written, and what is counted where that fails.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use rstest::rstest;
use tempfile::TempDir;

use super::days::directory;
use super::fixtures::waiting_pod;
use super::node;
use super::telling::ip;
use crate::domain::{ActOutcome, Cause, RemedyKind, Verdict};
use crate::engine::Book;
use crate::engine::book::Opened;
use crate::ledger::{
    Act, ActId, Bound, BoundOptions, BreakerView, BucketOptions, Ending, Intent, Ledger, Refusal,
};
use crate::metrics::Metrics;

fn after(seconds: u64) -> Timestamp {
    "2026-06-18T10:00:00Z".parse::<Timestamp>().unwrap() + Duration::from_secs(seconds)
}

/// A book in its directory, and what it counts.
struct Desk {
    book: Book,
    place: PathBuf,
    metrics: Arc<Metrics>,
    _dir: TempDir,
}

impl Desk {
    fn closed(bounds: BoundOptions) -> Self {
        let (dir, metrics) = (directory(), Arc::new(Metrics::new()));
        let place = dir.path().join("ledger");
        let book = Book::at(place.clone(), node(), bounds, Arc::clone(&metrics));
        Self { book, place, metrics, _dir: dir }
    }

    fn open(bounds: BoundOptions) -> Self {
        let mut desk = Self::closed(bounds);
        assert!(matches!(desk.book.open(after(0)), Opened::Now(None)));
        desk
    }

    /// The writes that failed, by the metric.
    fn errors(&self) -> u64 {
        let text = self.metrics.encode().unwrap();
        let line = text.lines().find(|line| line.contains("ledger_write_errors_total ")).unwrap();
        line.rsplit_once(' ').unwrap().1.parse().unwrap()
    }

    fn refuse(&mut self, word: &str, at: Timestamp) {
        let refusal = Refusal {
            pod: waiting_pod().name,
            pod_uid: waiting_pod().uid,
            ip: None,
            verdict: Verdict::LiveDuplicate,
            remedy: None,
            word: word.to_owned(),
            why: String::new(),
            correlation_id: "c".to_owned(),
        };
        self.book.refuse(refusal, at);
    }

    /// The refusals on the disk.
    fn refusals(&self) -> Vec<String> {
        let kept = Ledger::read(&self.place).unwrap();
        kept.state().refusals().iter().map(|it| it.refusal().word.clone()).collect()
    }

    fn check(&mut self, remedy: RemedyKind, at: Timestamp) -> Result<(), Bound> {
        self.book.check(remedy, &cause(), &waiting_pod().uid, at)
    }

    fn begin(&mut self, remedy: RemedyKind, number: u64, at: Timestamp) -> Result<ActId, Bound> {
        let intent = Intent {
            remedy,
            pod: waiting_pod().name,
            pod_uid: format!("u-{number}").parse().unwrap(),
            cause: Cause { of: format!("Pod/shop/waits/u-{number}"), ..cause() },
            target: None,
            container: None,
            verdict: Verdict::StaleEndpoint,
            reason: String::new(),
            correlation_id: "c".to_owned(),
        };
        self.book.begin(intent, at)
    }

    fn healed(&mut self, id: ActId, at: Timestamp) {
        self.book.end(id, Ending::new(ActOutcome::Healed, ""), at);
    }
}

fn cause() -> Cause {
    Cause { of: "Pod/shop/waits/waits".to_owned(), ip: ip() }
}

fn is_locked(why: &str) -> bool {
    why.contains("another process has this ledger")
}

#[tokio::test(start_paused = true)]
async fn what_another_process_has_is_tried_again_after_half_a_minute_and_holds_back_all_acts() {
    let mut desk = Desk::closed(BoundOptions::default());
    let bounds = BoundOptions::default();
    assert_eq!(desk.book.flush(after(0)), Err("not opened yet".to_owned()));
    let (other, _) = Ledger::open(&desk.place, &node(), bounds.clone(), after(0)).unwrap();
    assert!(matches!(desk.book.open(after(0)), Opened::Not(why) if is_locked(&why)));
    assert!(matches!(desk.book.flush(after(0)), Err(why) if is_locked(&why)));
    for bound in [
        desk.check(RemedyKind::DeletePod, after(0)).err(),
        desk.begin(RemedyKind::DeletePod, 1, after(0)).err(),
    ] {
        assert!(matches!(&bound, Some(Bound::Unrecorded(why)) if is_locked(why)), "{bound:?}");
    }
    assert_eq!((desk.book.tokens(RemedyKind::DeletePod, after(0)), desk.book.breaker(after(0))), (0, None));
    assert_eq!((desk.book.acts().count(), desk.book.last_restart(), desk.errors()), (0, None, 0));

    drop(other);
    tokio::time::advance(Duration::from_millis(29_999)).await;
    assert!(matches!(desk.book.open(after(29)), Opened::Same));
    assert!(desk.check(RemedyKind::DeletePod, after(29)).is_err());
    tokio::time::advance(Duration::from_millis(1)).await;
    assert!(matches!(desk.book.open(after(30)), Opened::Now(None)));
    assert_eq!(desk.check(RemedyKind::DeletePod, after(30)), Ok(()));
    assert_eq!(desk.book.tokens(RemedyKind::DeletePod, after(30)), bounds.delete_pod.burst);
    assert_eq!(desk.book.breaker(after(30)), Some(BreakerView::Closed));
    tokio::time::advance(Duration::from_mins(1)).await;
    assert!(matches!(desk.book.open(after(90)), Opened::Same));
}

#[tokio::test(start_paused = true)]
async fn what_may_wait_is_written_every_five_seconds_and_at_the_end() {
    let mut desk = Desk::open(BoundOptions::default());
    desk.refuse("first", after(1));
    assert_eq!(desk.refusals(), [""; 0], "it may wait");
    assert_eq!(desk.book.flush(after(1)), Ok(()));
    assert_eq!(desk.refusals(), ["first"]);
    desk.refuse("second", after(2));
    tokio::time::advance(Duration::from_millis(4999)).await;
    assert_eq!(desk.book.flush(after(5)), Ok(()));
    assert_eq!(desk.refusals(), ["first"], "written less than five seconds ago");
    tokio::time::advance(Duration::from_millis(1)).await;
    assert_eq!(desk.book.flush(after(6)), Ok(()));
    assert_eq!(desk.refusals(), ["first", "second"]);
    desk.refuse("third", after(7));
    assert_eq!(desk.refusals(), ["first", "second"], "it may wait");
    desk.book.close(after(7));
    assert_eq!(
        (desk.refusals(), desk.errors()),
        (["first", "second", "third"].map(str::to_owned).to_vec(), 0)
    );
}

fn no_directory(place: &Path) {
    std::fs::remove_dir_all(place).unwrap();
}

#[tokio::test(start_paused = true)]
async fn each_write_that_fails_is_counted() {
    let mut desk = Desk::open(BoundOptions::default());
    no_directory(&desk.place);
    desk.refuse("first", after(60));
    assert_eq!(desk.errors(), 1, "the refusal");
    let trouble = desk.book.flush(after(60)).unwrap_err();
    assert_eq!(desk.errors(), 2, "the next try");
    assert!(trouble.contains("ledger.json"), "{trouble}");
    tokio::time::advance(Duration::from_millis(4999)).await;
    assert_eq!((desk.book.flush(after(64)), desk.errors()), (Err(trouble.clone()), 2), "not tried, and told");
    tokio::time::advance(Duration::from_millis(1)).await;
    assert_eq!((desk.book.flush(after(65)), desk.errors()), (Err(trouble), 3));
    let checked = desk.check(RemedyKind::DeletePod, after(65));
    assert!(matches!(checked, Err(Bound::Unrecorded(_))), "{checked:?}");
    assert_eq!(desk.errors(), 4, "the look before an act");
    assert!(matches!(desk.begin(RemedyKind::DeletePod, 1, after(65)), Err(Bound::Unrecorded(_))));
    assert_eq!((desk.errors(), desk.book.acts().count()), (5, 0), "the intent of one");
    desk.book.close(after(66));
    assert_eq!(desk.errors(), 6, "the last try");

    std::fs::create_dir(&desk.place).unwrap();
    desk.book.close(after(67));
    assert_eq!((desk.errors(), desk.refusals().len()), (6, 1));
}

#[tokio::test(start_paused = true)]
async fn a_bound_and_an_act_that_is_over_are_no_failed_writes() {
    let none = BucketOptions { burst: 0, refill: Duration::from_secs(1) };
    let mut desk = Desk::open(BoundOptions { delete_pod: none, ..BoundOptions::default() });
    assert!(matches!(desk.check(RemedyKind::DeletePod, after(1)), Err(Bound::Budget { .. })));
    assert!(matches!(desk.begin(RemedyKind::DeletePod, 1, after(1)), Err(Bound::Budget { .. })));
    let id = desk.begin(RemedyKind::DisconnectEndpoint, 2, after(1)).unwrap();
    desk.healed(id, after(2));
    desk.healed(id, after(3));
    desk.book.sent(id, "late", after(3));
    assert_eq!(desk.errors(), 0);
}

/// What an act has come to.
#[derive(Clone, Copy)]
enum Came {
    Meant,
    Sent,
    SentAndEnded,
    Aborted,
}

/// The remedies with what became of each, ten seconds apart, and the number of the one that the agent was restarted by last.
#[rstest]
#[case::none_at_all(&[], None)]
#[case::other_remedies_are_none(&[(RemedyKind::DisconnectEndpoint, Came::SentAndEnded), (RemedyKind::DeletePod, Came::Meant)], None)]
#[case::one_that_may_have_been_sent(&[(RemedyKind::RestartAgent, Came::Meant)], Some(0))]
#[case::one_that_was_sent(&[(RemedyKind::RestartAgent, Came::Sent)], Some(0))]
#[case::one_that_is_over(&[(RemedyKind::RestartAgent, Came::SentAndEnded), (RemedyKind::DeletePod, Came::Sent)], Some(0))]
#[case::one_that_was_not_done(&[(RemedyKind::RestartAgent, Came::Aborted)], None)]
#[case::the_last_of_two(&[(RemedyKind::RestartAgent, Came::SentAndEnded), (RemedyKind::RestartAgent, Came::Sent)], Some(1))]
#[case::the_last_that_was_done(&[(RemedyKind::RestartAgent, Came::SentAndEnded), (RemedyKind::RestartAgent, Came::Aborted)], Some(0))]
#[tokio::test(start_paused = true)]
async fn the_last_restart_of_the_agent(#[case] acts: &[(RemedyKind, Came)], #[case] last: Option<u64>) {
    let often = BucketOptions { burst: 9, refill: Duration::from_hours(1) };
    let mut desk = Desk::open(BoundOptions { restart_agent: often, ..BoundOptions::default() });
    let mut began = Vec::new();
    for (number, (remedy, came)) in (0..).zip(acts) {
        let at = after(10 * number);
        let id = desk.begin(*remedy, number, at).unwrap();
        began.push(at);
        if matches!(came, Came::Sent | Came::SentAndEnded) {
            desk.book.sent(id, "", at);
        }
        match came {
            Came::Meant | Came::Sent => {}
            Came::SentAndEnded => desk.healed(id, at),
            Came::Aborted => desk.book.end(id, Ending::new(ActOutcome::Aborted, ""), at),
        }
    }
    assert_eq!(desk.book.last_restart(), last.map(|number| after(10 * number)));
    assert_eq!(desk.book.acts().map(Act::began).collect::<Vec<_>>(), began);
    let left =
        9 - u32::try_from(acts.iter().filter(|(it, _)| *it == RemedyKind::RestartAgent).count()).unwrap();
    assert_eq!(desk.book.tokens(RemedyKind::RestartAgent, after(60)), left);
}
