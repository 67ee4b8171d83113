use axum::extract::Request;
use rstest::rstest;
use tokio::time::sleep;
use tower::ServiceExt as _;

use super::*;

/// What was put in force, in order; `bad` is no filter.
#[derive(Clone, Default)]
struct Filters(Arc<Mutex<Vec<String>>>);

impl LogFilter for Filters {
    fn check(&self, filter: &str) -> Result<(), String> {
        if filter == "bad" { Err("bad is no log filter".to_owned()) } else { Ok(()) }
    }

    fn set(&self, filter: &str) -> Result<(), String> {
        self.0.lock().unwrap().push(filter.to_owned());
        Ok(())
    }
}

impl Filters {
    fn set_so_far(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

async fn ask(router: &Router, method: &str, query: &str, body: impl Into<Body>) -> (u16, String) {
    let request = Request::builder().method(method).uri(format!("{PATH}{query}")).body(body.into()).unwrap();
    let answer = router.clone().oneshot(request).await.unwrap();
    let status = answer.status().as_u16();
    let body = to_bytes(answer.into_body(), 1 << 16).await.unwrap();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

fn level() -> (Router, Filters) {
    let filters = Filters::default();
    (log_level(filters.clone(), "info"), filters)
}

#[rstest]
#[case::without_a_time("", "debug\nback to info in 1800 s\n")]
#[case::with_one("?for=10m", "debug\nback to info in 600 s\n")]
#[case::for_a_day("?for=24h", "debug\nback to info in 86400 s\n")]
#[tokio::test(start_paused = true)]
async fn a_filter_stays_for_its_time(#[case] query: &str, #[case] shown: &str) {
    let (router, filters) = level();
    assert_eq!(ask(&router, "GET", "", "").await, (200, "info\n".to_owned()));
    assert_eq!(ask(&router, "PUT", query, "debug\n").await, (200, shown.to_owned()));
    assert_eq!(ask(&router, "GET", "", "").await, (200, shown.to_owned()));
    let seconds: u64 = shown.split(' ').nth(4).unwrap().parse().unwrap();
    sleep(Duration::from_millis(1000 * seconds - 1)).await;
    assert_eq!(filters.set_so_far(), ["debug"]);
    sleep(Duration::from_millis(2)).await;
    assert_eq!(filters.set_so_far(), ["debug", "info"]);
    assert_eq!(ask(&router, "GET", "", "").await, (200, "info\n".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn a_later_change_has_its_own_time() {
    let (router, filters) = level();
    ask(&router, "PUT", "?for=10m", "debug").await;
    sleep(Duration::from_mins(5)).await;
    ask(&router, "PUT", "?for=20m", "kube=trace").await;
    sleep(Duration::from_mins(19)).await;
    assert_eq!(filters.set_so_far(), ["debug", "kube=trace"], "the first time has no say any more");
    sleep(Duration::from_mins(2)).await;
    assert_eq!(filters.set_so_far(), ["debug", "kube=trace", "info"]);
    ask(&router, "PUT", "?for=10m", "debug").await;
    assert_eq!(ask(&router, "PUT", "", "info").await, (200, "info\n".to_owned()), "set back by hand");
    sleep(Duration::from_hours(1)).await;
    assert_eq!(filters.set_so_far()[3..], ["debug", "info"]);
}

#[rstest]
#[case::no_filter("", "bad", 400, "bad is no log filter\n")]
#[case::no_unit("?for=10", "debug", 400, "for=10 is no duration")]
#[case::zero("?for=0s", "debug", 400, "for=0s is no duration")]
#[case::negative("?for=-5m", "debug", 400, "for=-5m is no duration")]
#[case::for_ever("?for=25h", "debug", 400, "for=25h is no duration")]
#[case::another_parameter("?four=10m", "debug", 400, "\"four=10m\" is not known here")]
#[tokio::test]
async fn what_is_wrong_is_said_and_changes_nothing(
    #[case] query: &str,
    #[case] body: &str,
    #[case] status: u16,
    #[case] begins: &str,
) {
    let (router, filters) = level();
    let (code, said) = ask(&router, "PUT", query, body.to_owned()).await;
    assert_eq!(code, status);
    assert!(said.starts_with(begins), "{said}");
    assert!(filters.set_so_far().is_empty());
    assert_eq!(ask(&router, "GET", "", "").await.1, "info\n");
}

#[tokio::test(start_paused = true)]
async fn a_body_is_bounded_in_size_and_in_time() {
    let (router, filters) = level();
    assert_eq!(ask(&router, "PUT", "", "x".repeat(LONGEST + 1)).await.0, 413);
    let slow = Body::from_stream(futures::stream::pending::<Result<Vec<u8>, std::io::Error>>());
    let start = Instant::now();
    assert_eq!(ask(&router, "PUT", "", slow).await.0, 408);
    assert_eq!(start.elapsed().as_secs(), 5);
    assert!(filters.set_so_far().is_empty());
    assert_eq!(ask(&router, "PUT", "", "x".repeat(LONGEST)).await.0, 200);
}
