//! What can be said without asking anybody.

use std::time::Duration;

use rstest::rstest;
use tokio::time::Instant;

use super::options;
use crate::domain::{RemedyKind, judge};
use crate::engine::gates::{By, Quiet, by_settings};
use crate::engine::{EngineOptions, Mode, Namespaces};
use crate::kube::Protection;
use crate::ledger::Bound;
use crate::metrics::HELD_BACK;

fn missing() -> Protection {
    Protection::Missing(vec!["the fence is not there".to_owned()])
}

fn unknown() -> Protection {
    Protection::Unknown(vec!["timed out".to_owned()])
}

#[rstest]
#[case::all_is_well(options(judge), Protection::Working, 0, None)]
#[case::observing(EngineOptions { mode: Mode::Observe, ..options(judge) }, Protection::Working, 0, Some(By::Mode))]
#[case::remedy_off(EngineOptions { remedies: vec![RemedyKind::DisconnectEndpoint], ..options(judge) }, Protection::Working, 0, Some(By::Remedy))]
#[case::denied(EngineOptions { namespaces: Namespaces { deny: vec!["shop".to_owned()], ..Namespaces::default() }, ..options(judge) }, Protection::Working, 0, Some(By::Namespace))]
#[case::quiet(options(judge), Protection::Working, 5, Some(By::Quiet))]
#[case::no_fence(options(judge), missing(), 0, Some(By::Fence))]
#[case::nobody_knows_of_a_fence(options(judge), unknown(), 0, Some(By::Fence))]
#[case::no_fence_and_none_required(EngineOptions { require_fence: false, ..options(judge) }, missing(), 0, None)]
#[tokio::test]
async fn by_the_settings(
    #[case] options: EngineOptions,
    #[case] protection: Protection,
    #[case] quiet_for: u64,
    #[case] by: Option<By>,
) {
    let now = Instant::now();
    let quiet = Quiet { until: now + Duration::from_secs(quiet_for), why: "quiet" };
    let said = by_settings(&options, &protection, RemedyKind::DeletePod, "shop", quiet, now);
    assert_eq!(said.err().map(|held| held.by), by);
}

#[test]
fn each_word_is_one_of_the_metric() {
    let own = [
        By::Mode,
        By::Remedy,
        By::Namespace,
        By::Quiet,
        By::Fence,
        By::OptOut,
        By::Paused,
        By::HealFor,
        By::Version,
        By::Lease,
        By::Unreadable,
    ];
    assert_eq!(own.map(By::as_str).to_vec(), HELD_BACK.to_vec());
    for word in Bound::WORDS {
        assert!(!HELD_BACK.contains(&word), "{word} would be counted for two things");
    }
}
