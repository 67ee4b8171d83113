use std::collections::BTreeMap;

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
#[case("heal_latency_seconds_bucket{le=\"900.0\"} 0")]
#[case("heal_latency_seconds_count 0")]
#[case("check_ok{check=\"pod-watch\"} 0")]
#[case("check_ok{check=\"fence\"} 0")]
#[case("stream_clients 0")]
#[case("stream_clients_refused_total{reason=\"limit\"} 0")]
#[case("stream_clients_dropped_total{reason=\"slow\"} 0")]
#[case("stream_events_total{type=\"held-back\"} 0")]
#[case("auth_decisions_total{outcome=\"unauthenticated\"} 0")]
#[case("ledger_write_errors_total 0")]
fn starts_at_zero(#[case] series: &str) {
    assert_eq!(lines(&Metrics::new(), series), [""], "{}", Metrics::new().encode().unwrap());
}

#[test]
fn tells_its_build_and_start() {
    let metrics = Metrics::new();
    assert_eq!(lines(&metrics, "build_info"), [format!("{{version=\"{}\"}} 1", env!("CARGO_PKG_VERSION"))]);
    let text = metrics.encode().unwrap();
    let start = text.lines().find_map(|line| line.strip_prefix("process_start_time_seconds ")).unwrap();
    assert!(start.parse::<f64>().unwrap() > 1e9);
    assert!(metrics.encode().unwrap().ends_with("# EOF\n"));
}

#[test]
fn stays_small() {
    // What every node of the cluster adds to the monitoring: 348 series,
    // two thirds of them about requests to the agent and the API server.
    let text = Metrics::new().encode().unwrap();
    let series = text.lines().filter(|line| !line.starts_with('#')).count();
    assert!(series <= 348, "{series} series");
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
fn both_formats_have_the_same_series() {
    let metrics = Metrics::new();
    // Order and spelling differ (a bound is 5.0 or 5), the number of series of a name must not.
    let counts = |text: String| {
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        lines.fold(BTreeMap::<String, usize>::new(), |mut counts, line| {
            *counts.entry(line.split(['{', ' ']).next().unwrap().to_owned()).or_default() += 1;
            counts
        })
    };
    assert_eq!(counts(metrics.encode().unwrap()), counts(metrics.encode_text().unwrap()));
    let text = metrics.encode_text().unwrap();
    assert!(!text.contains("# EOF") && !text.contains("# UNIT"), "{text}");
    assert!(text.contains("# TYPE cilium_leak_healer_acts_total counter\n"), "{text}");
}

#[test]
fn only_the_process_has_names_of_others() {
    let text = Metrics::new().encode().unwrap();
    let foreign =
        text.lines().filter(|line| !line.starts_with('#') && !line.starts_with("cilium_leak_healer_"));
    let mut foreign: Vec<&str> = foreign.map(|line| line.split(' ').next().unwrap()).collect();
    foreign.sort_unstable();
    // Without a limit on file descriptors there is no such series.
    foreign.retain(|name| *name != "process_max_fds");
    let want: &[&str] = if cfg!(target_os = "linux") {
        &[
            "process_cpu_seconds_total",
            "process_open_fds",
            "process_resident_memory_bytes",
            "process_start_time_seconds",
            "process_threads",
            "process_virtual_memory_bytes",
        ]
    } else {
        &["process_start_time_seconds"]
    };
    assert_eq!(foreign, want);
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
    metrics.healed_after(Duration::from_secs(7));
    metrics.set_check("agent", true);
    metrics.set_stream_clients(3);
    metrics.stream_refused();
    metrics.stream_dropped();
    metrics.streamed("judged");
    metrics.auth(AuthOutcome::Forbidden);
    metrics.ledger_write_failed();
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
        "heal_latency_seconds_bucket{le=\"10.0\"}",
        "check_ok{check=\"agent\"}",
        "stream_clients_refused_total{reason=\"limit\"}",
        "stream_clients_dropped_total{reason=\"slow\"}",
        "stream_events_total{type=\"judged\"}",
        "auth_decisions_total{outcome=\"forbidden\"}",
        "ledger_write_errors_total",
        "judgements_total{verdict=\"not-wedged\"}",
    ] {
        assert_eq!(lines(&metrics, series), [" 1"], "{series}");
    }
    assert_eq!(lines(&metrics, "mode{mode=\"observe\"}"), [" 0"]);
    assert_eq!(lines(&metrics, "pods_watched"), [" 250"]);
    assert_eq!(lines(&metrics, "stream_clients "), ["3"]);
    assert_eq!(lines(&metrics, "heal_latency_seconds_bucket{le=\"5.0\"}"), [" 0"]);
    assert_eq!(lines(&metrics, "heal_latency_seconds_sum"), [" 7.0"]);
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
