use rstest::rstest;

use super::*;

fn lines(metrics: &Metrics, prefix: &str) -> Vec<String> {
    let text = metrics.encode().unwrap();
    text.lines()
        .filter_map(|line| line.strip_prefix("cilium_leak_healer_")?.strip_prefix(prefix))
        .map(str::to_owned)
        .collect()
}

#[rstest]
#[case("wedges{verdict=\"stale-endpoint\"} 0")]
#[case("wedges{verdict=\"agent-unknown\"} 0")]
#[case("oldest_wedge_seconds 0.0")]
#[case("judgements_total{verdict=\"not-wedged\"} 0")]
#[case("judgements_total{verdict=\"live-duplicate\"} 0")]
#[case("refusals_total{reason=\"ipam-mode-unknown\"} 0")]
#[case("refusals_total{reason=\"live-duplicate\"} 0")]
#[case("acts_total{remedy=\"disconnect-endpoint\",outcome=\"healed\"} 0")]
#[case("acts_total{remedy=\"delete-pod\",outcome=\"not-healed\"} 0")]
#[case("agent_requests_total{call=\"get-endpoint\",outcome=\"too-many-requests\"} 0")]
#[case("agent_requests_total{call=\"delete-endpoint\",outcome=\"partial\"} 0")]
#[case("agent_request_duration_seconds_count{call=\"get-healthz\"} 0")]
#[case("agent_request_duration_seconds_bucket{le=\"+Inf\",call=\"get-config\"} 0")]
#[case("api_requests_total{verb=\"watch\",resource=\"pods\",outcome=\"timeout\"} 0")]
#[case("api_request_duration_seconds_sum{verb=\"list\",resource=\"events\"} 0.0")]
#[case("malformed_objects_total{resource=\"ciliumendpointslices\"} 0")]
#[case("watch_restarts_total 0")]
#[case("pods_watched 0")]
#[case("mode{mode=\"heal\"} 0")]
fn starts_at_zero(#[case] series: &str) {
    assert_eq!(lines(&Metrics::new(), series), [""], "{}", Metrics::new().encode().unwrap());
}

#[test]
fn tells_its_build_and_start() {
    let metrics = Metrics::new();
    assert_eq!(lines(&metrics, "build_info"), [format!("{{version=\"{}\"}} 1", env!("CARGO_PKG_VERSION"))]);
    let start: f64 = lines(&metrics, "start_time_seconds ")[0].parse().unwrap();
    assert!(start > 1e9);
    assert!(metrics.encode().unwrap().ends_with("# EOF\n"));
}

#[test]
fn stays_small() {
    // What every node of the cluster adds to the monitoring.
    let text = Metrics::new().encode().unwrap();
    let series = text.lines().filter(|line| !line.starts_with('#')).count();
    assert!(series < 320, "{series} series");
}

#[test]
fn no_series_is_born_twice_and_each_metric_has_help() {
    let text = Metrics::new().encode().unwrap();
    let mut series: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    let all = series.len();
    series.sort_unstable();
    series.dedup();
    assert_eq!(series.len(), all);
    assert!(text.lines().filter(|line| line.starts_with("# HELP")).all(|line| line.split(' ').count() > 4));
}

#[test]
fn wedges_follow_what_is_there() {
    let metrics = Metrics::new();
    metrics.set_wedges([Verdict::StaleEndpoint, Verdict::Settling, Verdict::Settling]);
    assert_eq!(lines(&metrics, "wedges{verdict=\"settling\"} "), ["2"]);
    metrics.set_wedges([Verdict::StaleEndpoint]);
    assert_eq!(lines(&metrics, "wedges{verdict=\"settling\"} "), ["0"]);
    assert_eq!(lines(&metrics, "wedges{verdict=\"stale-endpoint\"} "), ["1"]);
    metrics.set_oldest_wedge(Some(Duration::from_millis(1500)));
    assert_eq!(lines(&metrics, "oldest_wedge_seconds "), ["1.5"]);
}

#[test]
fn counts() {
    let metrics = Metrics::new();
    metrics.acted(RemedyKind::DisconnectEndpoint, ActOutcome::Healed);
    metrics.agent_request(AgentCall::GetConfig, "ok", Duration::from_millis(50));
    metrics.api_request(ApiVerb::Get, ApiResource::Other, ApiOutcome::of_status(418), Duration::ZERO);
    metrics.set_heal_mode(true);
    metrics.set_pods_watched(250);
    metrics.malformed_object(ApiResource::Pods);
    metrics.watch_restarted();
    metrics.judged(&Judgement::NotWedged(crate::domain::NotWedged {
        reason: String::new(),
        evidence: Vec::new(),
    }));
    for series in [
        "acts_total{remedy=\"disconnect-endpoint\",outcome=\"healed\"}",
        "agent_requests_total{call=\"get-config\",outcome=\"ok\"}",
        "agent_request_duration_seconds_bucket{le=\"0.1\",call=\"get-config\"}",
        "api_requests_total{verb=\"get\",resource=\"other\",outcome=\"4xx\"}",
        "mode{mode=\"heal\"}",
        "malformed_objects_total{resource=\"pods\"}",
        "watch_restarts_total",
        "judgements_total{verdict=\"not-wedged\"}",
    ] {
        assert_eq!(lines(&metrics, series), [" 1"], "{series}");
    }
    assert_eq!(lines(&metrics, "mode{mode=\"observe\"}"), [" 0"]);
    assert_eq!(lines(&metrics, "pods_watched"), [" 250"]);
}

fn finding(verdict: Verdict, withheld: Option<Withheld>) -> Finding {
    Finding {
        ip: None,
        verdict,
        remedy: crate::domain::Remedy::None,
        withheld,
        proof: None,
        owner: None,
        reason: String::new(),
        evidence: Vec::new(),
        failure: None,
        look_again: None,
    }
}

#[rstest]
#[case(Verdict::LiveDuplicate, None, "live-duplicate")]
#[case(Verdict::StaleEndpoint, Some(Withheld::IpamMode), "ipam-mode")]
#[case(Verdict::ReservedHolder, Some(Withheld::NotMovable), "not-movable")]
fn refusals(#[case] verdict: Verdict, #[case] withheld: Option<Withheld>, #[case] reason: &str) {
    let metrics = Metrics::new();
    metrics.refused(&finding(verdict, withheld));
    assert_eq!(lines(&metrics, &format!("refusals_total{{reason=\"{reason}\"}} ")), ["1"]);
}
