//! One heal, one refusal and one leak that is left, in one run, in each format and with each condition.

use serde_json::Value;

use crate::masked::masked;
use crate::stage::Stage;
use crate::story::{ENDINGS, endings, json, read, report, story};

#[tokio::test]
async fn what_was_healed_refused_and_left() {
    let stage = Stage::new(3).await;
    let daemons = story(&stage).await;
    let dir = tempfile::tempdir().expect("a directory");
    let path = |name: &str| dir.path().join(name);
    let (junit, as_json) =
        (path("junit.xml").display().to_string(), path("report.json").display().to_string());

    // What a job wants: the summary printed, JUnit and JSON in files, all of one reading.
    let args =
        ["--format", "junit", "-o", &junit, "--format", "json", "-o", &as_json, "--format", "markdown"];
    let said = report(&stage, &args).await;
    assert_eq!((said.code, said.err.as_str()), (Some(0), ""), "{}", said.out);
    let told: Value = serde_json::from_str(&read(&path("report.json"))).expect("JSON");
    assert_eq!(endings(&told), ENDINGS);
    assert_eq!((&told["complete"], &told["remarks"]), (&Value::Bool(true), &serde_json::json!([])));
    insta::assert_snapshot!("markdown", masked(&said.out));
    insta::assert_snapshot!("json", masked(&read(&path("report.json"))));
    let xml = read(&path("junit.xml"));
    insta::assert_snapshot!("junit", masked(&xml));
    assert_eq!(failures(&xml), 0);

    fail_on(&stage).await;
    since(&stage, &told).await;
    // The proxy leads to the same.
    assert_eq!(endings(&json(&stage, &["--via", "proxy"], 0).await), ENDINGS);
    assert_eq!(endings(&json(&stage, &["--node", "worker-2"], 0).await), ENDINGS[1..2]);
    for daemon in daemons {
        daemon.stop().await;
    }
}

fn failures(xml: &str) -> usize {
    let document = roxmltree::Document::parse(xml).unwrap_or_else(|error| panic!("{error}: {xml}"));
    document.descendants().filter(|it| it.has_tag_name("failure")).count()
}

/// Each condition by itself, and several.
async fn fail_on(stage: &Stage) {
    for (on, failing) in [
        ("heal", &["shop/cart"][..]),
        ("refuse", &["shop/news"]),
        ("unhealed", &["shop/db"]),
        ("open", &[]),
        ("unhealed,heal", &["shop/db", "shop/cart"]),
        ("heal,refuse,unhealed,open", &["shop/db", "shop/news", "shop/cart"]),
    ] {
        let code = if failing.is_empty() { 0 } else { 2 };
        let args = ["--fail-on", on, "--format", "junit"];
        let said = report(stage, &args).await;
        assert_eq!(said.code, Some(code), "{on}: {}{}", said.out, said.err);
        assert_eq!(failures(&said.out), failing.len(), "{on}: {}", said.out);
        let told = json(stage, &args[..2], code).await;
        let fails = |it: &&Value| it["fails"].as_array().is_some_and(|fails| !fails.is_empty());
        let findings = told["findings"].as_array().expect("findings").iter().filter(fails);
        assert_eq!(
            findings.map(|it| it["pod"].as_str().expect("a pod")).collect::<Vec<_>>(),
            failing,
            "{on}"
        );
    }
}

/// What was over before is left out; what still waits is not.
async fn since(stage: &Stage, told: &Value) {
    let healed = told["findings"][2]["lastSeen"].as_str().expect("a time");
    let after: jiff::Timestamp = healed.parse().expect("a time");
    let after = (after + jiff::SignedDuration::from_millis(1)).to_string();
    assert_eq!(endings(&json(stage, &["--since", &after], 0).await), ENDINGS[..2]);
    assert_eq!(endings(&json(stage, &["--since", healed], 0).await), ENDINGS);
    assert_eq!(endings(&json(stage, &["--since", "0s"], 0).await), ENDINGS[..2]);
}

#[rstest::rstest]
#[case(&["--format", "yaml"], "invalid value 'yaml'")]
#[case(&["--fail-on", "everything"], "invalid value 'everything'")]
#[case(&["--since", "yesterday"], "\"yesterday\": give a duration such as 10m, or an instant")]
#[case(&["--format", "json", "--format", "junit"], "only one format can go to standard output")]
#[case(&["-o", "a", "-o", "b"], "there are more --output than --format")]
#[tokio::test]
async fn a_wrong_command_line_is_no_condition_that_is_met(#[case] args: &[&str], #[case] why: &str) {
    let stage = Stage::new(0).await;
    let said = report(&stage, args).await;
    assert_eq!((said.code, said.out.as_str()), (Some(1), ""), "{}", said.err);
    assert!(said.err.contains(why), "no {why:?} in {}", said.err);
    assert!(stage.cluster.api().requests().is_empty());
}

#[tokio::test]
async fn a_file_that_cannot_be_written_is_a_failure() {
    let stage = Stage::new(1).await;
    let daemon = stage.daemon(1).await;
    let said = report(&stage, &["--output", "/nonexistent/report.md"]).await;
    assert_eq!(said.code, Some(1), "{}", said.err);
    assert!(said.err.contains("write /nonexistent/report.md"), "{}", said.err);
    daemon.stop().await;
}
