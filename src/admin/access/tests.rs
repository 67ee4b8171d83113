use std::net::SocketAddr;
use std::sync::Mutex;

use axum::body::{Body, to_bytes};
use axum::routing::get;
use rstest::rstest;
use tokio::time::timeout;
use tower::ServiceExt as _;

use super::*;

const LOOPBACK: &str = "127.0.0.1:9969";
const NODE: &str = "10.0.0.5:9969";
const TOLD: &str = "open for 600 s";

/// An API server that knows three tokens; `hang` never gets an answer.
#[derive(Default)]
struct Known(Mutex<Vec<String>>);

impl Authorizer for Known {
    fn allow<'a>(&'a self, token: &'a str, verb: &'a str, path: &'a str) -> BoxFuture<'a, Decision> {
        self.0.lock().unwrap().push(format!("{token} {verb} {path}"));
        Box::pin(async move {
            match token {
                "good" => Decision::Allowed,
                "poor" => Decision::Forbidden { user: "ja\n\u{202e}ne".to_owned() },
                "down" => Decision::Unavailable,
                "hang" => std::future::pending().await,
                _ => Decision::Unauthenticated,
            }
        })
    }
}

struct Scene {
    router: Router,
    asked: Arc<Known>,
    counted: Arc<Mutex<Vec<&'static str>>>,
}

fn scene(auth: Auth) -> Scene {
    let (asked, counted) = (Arc::new(Known::default()), Arc::new(Mutex::new(Vec::new())));
    let count = Arc::clone(&counted);
    let access = Access::new(auth, Arc::clone(&asked) as Arc<dyn Authorizer>, move |outcome| {
        count.lock().unwrap().push(outcome.as_str());
    });
    let told = async |request: Request| match request.extensions().get::<StreamLimit>() {
        Some(StreamLimit(Some(limit))) => format!("open for {} s", limit.as_secs()),
        Some(StreamLimit(None)) => "open".to_owned(),
        None => "no limit is told".to_owned(),
    };
    Scene { router: guard(Router::new().route("/v1/state", get(told).put(told)), access), asked, counted }
}

fn request(method: &str, local: &str, headers: &[(&str, &str)]) -> Request {
    let local: SocketAddr = local.parse().unwrap();
    let remote = SocketAddr::new(local.ip(), 40_000);
    let mut request =
        Request::builder().method(method).uri("/v1/state?a=b").extension(Ends { local, remote });
    if !headers.iter().any(|(name, _)| *name == "host") {
        request = request.header("host", local.to_string());
    }
    for (name, value) in headers.iter().filter(|(_, value)| !value.is_empty()) {
        request = request.header(*name, *value);
    }
    request.body(Body::empty()).unwrap()
}

async fn answer(scene: &Scene, request: Request) -> (u16, HeaderMap, String) {
    let (head, body) = scene.router.clone().oneshot(request).await.unwrap().into_parts();
    let body = to_bytes(body, 1 << 16).await.unwrap();
    (head.status.as_u16(), head.headers, String::from_utf8(body.to_vec()).unwrap())
}

#[rstest]
#[case::loopback(Auth::Off, "GET", LOOPBACK, "", 200, "open", "allowed")]
#[case::loopback_v6(Auth::Off, "GET", "[::1]:9969", "", 200, "open", "allowed")]
#[case::loopback_of_a_dual_socket(Auth::Off, "GET", "[::ffff:127.0.0.1]:9969", "", 200, "open", "allowed")]
#[case::loopback_head(Auth::Off, "HEAD", LOOPBACK, "", 200, "", "allowed")]
#[case::loopback_change(Auth::Off, "PUT", LOOPBACK, "", 200, "open", "allowed")]
#[case::loopback_asks_no_token(Auth::Token, "GET", LOOPBACK, "", 200, "open", "allowed")]
#[case::loopback_minds_no_token(Auth::Token, "PUT", LOOPBACK, "Bearer nobody", 200, "open", "allowed")]
#[case::off(Auth::Off, "GET", NODE, "Bearer good", 403, "--auth=token", "forbidden")]
#[case::off_change(Auth::Off, "PUT", NODE, "Bearer good", 403, "--auth=none", "forbidden")]
#[case::off_any(Auth::Off, "GET", "[::ffff:10.0.0.5]:9969", "", 403, "--auth=token", "forbidden")]
#[case::off_unspecified(Auth::Off, "GET", "0.0.0.0:9969", "", 403, "--auth=token", "forbidden")]
#[case::none(Auth::None, "GET", NODE, "", 200, "open", "allowed")]
#[case::none_v6(Auth::None, "GET", "[fd00::5]:9969", "", 200, "open", "allowed")]
#[case::none_change(Auth::None, "PUT", NODE, "Bearer good", 403, "without a token", "forbidden")]
#[case::none_odd_method(Auth::None, "OPTIONS", NODE, "", 403, "without a token", "forbidden")]
#[case::token(Auth::Token, "GET", NODE, "Bearer good", 200, TOLD, "allowed")]
#[case::token_of_any_case(Auth::Token, "GET", NODE, "bearer good", 200, TOLD, "allowed")]
#[case::token_head(Auth::Token, "HEAD", NODE, "Bearer good", 200, "", "allowed")]
#[case::token_change(Auth::Token, "PUT", NODE, "Bearer good", 200, TOLD, "allowed")]
#[case::token_missing(Auth::Token, "GET", NODE, "", 401, "a bearer token is needed", "unauthenticated")]
#[case::token_empty(Auth::Token, "GET", NODE, "Bearer  ", 401, "a bearer token", "unauthenticated")]
#[case::token_of_two_words(Auth::Token, "GET", NODE, "Bearer good poor", 401, "a bearer", "unauthenticated")]
#[case::password(Auth::Token, "GET", NODE, "Basic good", 401, "a bearer token is needed", "unauthenticated")]
#[case::token_unknown(Auth::Token, "GET", NODE, "Bearer x", 401, "a bearer token", "unauthenticated")]
#[case::token_poor(
    Auth::Token,
    "GET",
    NODE,
    "Bearer poor",
    403,
    "\"ja  ne\" cannot get path \"/v1/state\"",
    "forbidden"
)]
#[case::token_poor_head(Auth::Token, "HEAD", NODE, "Bearer poor", 403, "", "forbidden")]
#[case::token_poor_change(
    Auth::Token,
    "PUT",
    NODE,
    "Bearer poor",
    403,
    "\"ja  ne\" cannot put path",
    "forbidden"
)]
#[case::token_not_asked(
    Auth::Token,
    "GET",
    NODE,
    "Bearer down",
    503,
    "the API server cannot be asked",
    "error"
)]
#[tokio::test]
async fn the_rule(
    #[case] auth: Auth,
    #[case] method: &str,
    #[case] local: &str,
    #[case] authorization: &str,
    #[case] status: u16,
    #[case] words: &str,
    #[case] counted: &str,
) {
    let scene = scene(auth);
    let (got, headers, body) =
        answer(&scene, request(method, local, &[("authorization", authorization)])).await;
    assert_eq!(got, status, "{body}");
    assert!(body.contains(words), "{body}");
    assert_eq!(*scene.counted.lock().unwrap(), [counted]);
    assert_eq!(headers.get("www-authenticate").is_some_and(|it| it == "Bearer"), status == 401);
    assert_eq!(headers.contains_key("retry-after"), status == 503);
    assert!(!headers.keys().any(|name| name.as_str().starts_with("access-control")), "{headers:?}");
}

#[rstest]
#[case::get("GET", "good get /v1/state")]
#[case::head("HEAD", "good get /v1/state")]
#[case::put("PUT", "good put /v1/state")]
#[tokio::test]
async fn the_api_server_is_asked_for_the_path_alone(#[case] method: &str, #[case] asked: &str) {
    let scene = scene(Auth::Token);
    answer(&scene, request(method, NODE, &[("authorization", "Bearer good")])).await;
    assert_eq!(*scene.asked.0.lock().unwrap(), [asked]);
}

#[tokio::test]
async fn without_a_token_nobody_is_asked() {
    let scene = scene(Auth::Token);
    answer(&scene, request("GET", NODE, &[])).await;
    let two = request("GET", NODE, &[("authorization", "Bearer good"), ("authorization", "Bearer poor")]);
    assert_eq!(answer(&scene, two).await.0, 401);
    assert!(scene.asked.0.lock().unwrap().is_empty());
}

#[rstest]
#[case::from_elsewhere(LOOPBACK, Some("10.0.0.9:40000"))]
#[case::from_nowhere(LOOPBACK, None)]
#[tokio::test]
async fn a_connection_of_doubt_is_not_loopback(#[case] local: &str, #[case] remote: Option<&str>) {
    let scene = scene(Auth::Off);
    let mut asked = request("GET", local, &[]);
    asked.extensions_mut().remove::<Ends>();
    if let Some(remote) = remote {
        asked
            .extensions_mut()
            .insert(Ends { local: local.parse().unwrap(), remote: remote.parse().unwrap() });
    }
    assert_eq!(answer(&scene, asked).await.0, 403);
}

#[rstest]
#[case::v4("127.0.0.1", true)]
#[case::v4_port("127.0.0.1:80", true)]
#[case::another_address("192.0.2.7:9969", true)]
#[case::v6("[::1]", true)]
#[case::v6_port("[::1]:9969", true)]
#[case::localhost("localhost", true)]
#[case::localhost_port("LocalHost:8080", true)]
#[case::name("evil.example", false)]
#[case::name_like_an_address("127.0.0.1.evil.example", false)]
#[case::name_below_localhost("a.localhost", false)]
#[case::short_address("127.1", false)]
#[case::number("2130706433", false)]
#[case::user("evil.example@127.0.0.1", false)]
#[case::v6_without_brackets("::1", false)]
#[case::v4_in_brackets("[127.0.0.1]", false)]
#[case::missing("", false)]
#[tokio::test]
async fn a_rebound_name_is_refused(#[case] host: &str, #[case] taken: bool) {
    for (auth, local) in [(Auth::Off, LOOPBACK), (Auth::Token, LOOPBACK), (Auth::None, NODE)] {
        let (status, _, body) = answer(&scene(auth), request("GET", local, &[("host", host)])).await;
        assert_eq!(status, if taken { 200 } else { 421 }, "{auth:?}: {body}");
        assert!(taken || body.contains("localhost"), "{body}");
    }
}

#[tokio::test]
async fn two_hosts_or_a_name_in_the_target_are_refused() {
    let scene = scene(Auth::Off);
    let two = request("GET", LOOPBACK, &[("host", "127.0.0.1"), ("host", "evil.example")]);
    assert_eq!(answer(&scene, two).await.0, 421);
    let mut absolute = request("GET", LOOPBACK, &[]);
    *absolute.uri_mut() = "http://evil.example/v1/state".parse().unwrap();
    assert_eq!(answer(&scene, absolute).await.0, 421);
}

#[tokio::test]
async fn with_a_token_any_name_may_lead_here() {
    let headers = [("host", "watchdog.example"), ("authorization", "Bearer good")];
    assert_eq!(answer(&scene(Auth::Token), request("GET", NODE, &headers)).await.0, 200);
}

#[rstest]
#[case::the_address_bar("none", 200)]
#[case::its_own_page("same-origin", 200)]
#[case::another_port("same-site", 403)]
#[case::another_site("cross-site", 403)]
#[case::a_new_word("x", 403)]
#[tokio::test]
async fn a_page_of_another_site_is_refused(#[case] site: &str, #[case] status: u16) {
    for method in ["GET", "PUT"] {
        let asked = request(method, LOOPBACK, &[("sec-fetch-site", site)]);
        assert_eq!(answer(&scene(Auth::Off), asked).await.0, status, "{method}");
    }
}

/// A browser asks this before it sends a PUT of another site.
#[tokio::test]
async fn a_preflight_gets_nothing() {
    let headers = [("origin", "http://evil.example"), ("access-control-request-method", "PUT")];
    let (status, headers, _) = answer(&scene(Auth::Off), request("OPTIONS", LOOPBACK, &headers)).await;
    assert_eq!(status, 405);
    assert!(!headers.keys().any(|name| name.as_str().starts_with("access-control")), "{headers:?}");
}

#[tokio::test(start_paused = true)]
async fn those_who_wait_for_the_api_server_are_few() {
    let scene = scene(Auth::Token);
    let ask = |token: &str| {
        let token = format!("Bearer {token}");
        scene.router.clone().oneshot(request("GET", NODE, &[("authorization", &token)]))
    };
    let mut waiting: Vec<_> = (0..AT_ONCE).map(|_| Box::pin(ask("hang"))).collect();
    for one in &mut waiting {
        assert!(timeout(Duration::from_secs(1), one).await.is_err());
    }
    assert_eq!(ask("good").await.unwrap().status(), 503);
    waiting.pop();
    assert_eq!(ask("good").await.unwrap().status(), 200);
}

#[tokio::test]
async fn open_pages_stay_open_beside_them() {
    let Scene { router, .. } = scene(Auth::Off);
    let all = Router::new()
        .route("/livez", get(async || "ok"))
        .fallback(async || (StatusCode::NOT_FOUND, "not found\n"))
        .merge(router);
    let ask = async |path: &str| {
        let mut asked = request("GET", NODE, &[("host", "probe.example")]);
        *asked.uri_mut() = path.parse().unwrap();
        all.clone().oneshot(asked).await.unwrap().status().as_u16()
    };
    assert_eq!(ask("/livez").await, 200);
    assert_eq!(ask("/v1/state").await, 403);
    assert_eq!(ask("/v1/other").await, 404);
}
