//! The log line of each event. `docs/log.md` has the fields.

use tracing::field::display as show;

use super::options::Mode;
use crate::snapshot::EvidenceLine;
use crate::stream::Event;

/// Logs an event.
pub(super) fn log(event: &Event, mode: Mode) {
    match event {
        Event::Judged(it) => {
            let about = &it.about;
            let Some(verdict) = &about.verdict else {
                return tracing::info!(
                    pod = about.pod,
                    pod_uid = about.pod_uid,
                    node = about.node,
                    verdict = "none",
                    reason = it.reason,
                    correlation_id = about.correlation_id,
                    "judged"
                );
            };
            tracing::warn!(
                pod = about.pod,
                pod_uid = about.pod_uid,
                node = about.node,
                ip = about.ip.map(show),
                verdict,
                remedy = it.remedy,
                target = it.target,
                owner = it.owner,
                reason = it.reason,
                evidence = evidence(&it.evidence),
                correlation_id = about.correlation_id,
                "judged"
            );
        }
        Event::HeldBack(it) => tracing::warn!(
            pod = it.about.pod,
            node = it.about.node,
            mode = mode.as_str(),
            ip = it.about.ip.map(show),
            remedy = it.remedy,
            by = it.by,
            reason = it.reason,
            correlation_id = it.about.correlation_id,
            "held back"
        ),
        Event::Acting(it) => tracing::warn!(
            pod = it.about.pod,
            node = it.about.node,
            ip = it.about.ip.map(show),
            remedy = it.remedy,
            target = it.target,
            reason = it.reason,
            correlation_id = it.about.correlation_id,
            "acting"
        ),
        Event::Acted(it) => tracing::warn!(
            pod = it.about.pod,
            node = it.about.node,
            remedy = it.remedy,
            outcome = it.outcome,
            reason = it.reason,
            correlation_id = it.about.correlation_id,
            "acted"
        ),
        Event::Over(it) => tracing::info!(
            pod = it.about.pod,
            node = it.about.node,
            reason = it.reason,
            correlation_id = it.about.correlation_id,
            "over"
        ),
        // These are told in the log by those who know of them.
        Event::Started(_)
        | Event::Stopping(_)
        | Event::CheckChanged(_)
        | Event::Heartbeat(_)
        | Event::Gap(_) => {}
    }
}

/// All checks in one line.
fn evidence(all: &[EvidenceLine]) -> String {
    let each = all.iter().map(|it| format!("{} {}: {}", it.check, it.outcome, it.observed));
    each.collect::<Vec<_>>().join("; ")
}
