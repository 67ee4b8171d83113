//! Who may read what names pods and addresses, and who may change anything.
//!
//! By the connection: the node's own loopback is open, since who is there can read the log; elsewhere a bearer token is asked
//! for, or nothing is shown. Every doubt ends in a refusal. It must not know the Kubernetes API, nor what the routes do.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::str::FromStr as _;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use futures::future::BoxFuture;
use tokio::sync::Semaphore;

use super::routes::text;
use super::server::Ends;
use crate::metrics::AuthOutcome;
use crate::text::plain;

/// A stream that a token opened ends after this long, so that a token that was revoked does not read on.
const TOKEN_STREAM: Duration = Duration::from_mins(10);
/// Requests that wait for the API server's word at one time; they and the streams together leave places for probes.
const AT_ONCE: usize = 16;
/// Characters of a user's name in an answer.
const NAME: usize = 256;

const OFF: &str = "this page is open on the node's loopback address only (kubectl port-forward reaches it); start the \
                   watchdog with --auth=token to ask for a token here, or with --auth=none to show it to everybody\n";
const NO_CHANGE: &str = "nothing is changed from here without a token: ask on the node's loopback address (kubectl \
                         port-forward reaches it), or start the watchdog with --auth=token\n";
const HOST: &str =
    "the Host of the request must be an IP address or localhost: another name may be a trick of a web page\n";
const SITE: &str = "a page of another site may not ask this\n";
const UNAUTHENTICATED: &str = "a bearer token is needed that the cluster's API server knows\n";
const UNAVAILABLE: &str =
    "the API server cannot be asked now about this token; the watchdog's log says why\n";

/// What is asked of a client off the loopback address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Auth {
    /// Nothing: who can connect may read.
    None,
    /// A bearer token whose user may, by RBAC, `get` the path.
    Token,
    /// It is turned away.
    Off,
}

/// What the API server says of a token and a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// The user may.
    Allowed,
    /// It knows no such token.
    Unauthenticated,
    /// The user may not.
    Forbidden {
        /// The user's name.
        user: String,
    },
    /// It could not be asked.
    Unavailable,
}

/// Asks whether the bearer of a token may do something. `verb` is an HTTP method in lower case, as RBAC has it for paths.
pub trait Authorizer: Send + Sync {
    /// The answer, in a bounded time.
    fn allow<'a>(&'a self, token: &'a str, verb: &'a str, path: &'a str) -> BoxFuture<'a, Decision>;
}

/// How long an answer may go on, as an extension of each guarded request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamLimit(pub Option<Duration>);

/// The rule; clones share what it asks.
#[derive(Clone)]
pub struct Access {
    auth: Auth,
    authorizer: Arc<dyn Authorizer>,
    on_decision: Arc<dyn Fn(AuthOutcome) + Send + Sync>,
    asking: Arc<Semaphore>,
}

impl Access {
    /// The authorizer is asked with [`Auth::Token`] only. `on_decision` hears of each guarded request what became of it.
    pub fn new(
        auth: Auth,
        authorizer: Arc<dyn Authorizer>,
        on_decision: impl Fn(AuthOutcome) + Send + Sync + 'static,
    ) -> Self {
        let asking = Arc::new(Semaphore::new(AT_ONCE));
        Self { auth, authorizer, on_decision: Arc::new(on_decision), asking }
    }

    /// Why a request is refused, or how long its answer may go on.
    async fn decide(&self, request: &Parts) -> Result<StreamLimit, Refusal> {
        let changes = !matches!(request.method, Method::GET | Method::HEAD);
        // Both ends: some settings of the kernel let packets from elsewhere reach 127.0.0.1.
        let loopback = request.extensions.get::<Ends>().is_some_and(|ends| {
            [ends.local, ends.remote].iter().all(|end| end.ip().to_canonical().is_loopback())
        });
        match (loopback, self.auth) {
            (false, Auth::Off) => return Err(Refusal::Forbidden(OFF.to_owned())),
            (false, Auth::None) if changes => return Err(Refusal::Forbidden(NO_CHANGE.to_owned())),
            (false, Auth::Token) => return self.ask(request).await,
            (true, _) | (false, Auth::None) => {}
        }
        // No browser may do here what its user did not ask for. A page of another site can send requests to this address, but
        // reads no answer, since no answer has a CORS header, and it changes nothing, since a browser asks with OPTIONS before
        // any PUT, in vain. A page whose own name leads here (DNS rebinding) has that name as Host. And one that only takes up
        // places is turned away by what browsers say of it. (A token is sent by no browser by itself.)
        if !names_this_machine(&request.uri, &request.headers) {
            return Err(Refusal::Misdirected);
        }
        let site = request.headers.get("sec-fetch-site").map(HeaderValue::as_bytes);
        if !matches!(site, None | Some(b"same-origin" | b"none")) {
            return Err(Refusal::Forbidden(SITE.to_owned()));
        }
        Ok(StreamLimit(None))
    }

    async fn ask(&self, request: &Parts) -> Result<StreamLimit, Refusal> {
        let token = bearer(&request.headers).ok_or(Refusal::Unauthenticated)?;
        let verb = match request.method {
            Method::HEAD => "get".to_owned(),
            ref method => method.as_str().to_ascii_lowercase(),
        };
        let Ok(_place) = self.asking.try_acquire() else {
            return Err(Refusal::Unavailable);
        };
        let path = request.uri.path();
        match self.authorizer.allow(token, &verb, path).await {
            Decision::Allowed => Ok(StreamLimit(Some(TOKEN_STREAM))),
            Decision::Unauthenticated => Err(Refusal::Unauthenticated),
            Decision::Forbidden { user } => {
                let user = plain(&user, NAME);
                Err(Refusal::Forbidden(format!("user \"{user}\" cannot {verb} path \"{path}\"\n")))
            }
            Decision::Unavailable => Err(Refusal::Unavailable),
        }
    }
}

/// The same routes, each behind the rule.
pub fn guard(private: Router, access: Access) -> Router {
    private.layer(from_fn_with_state(access, check))
}

async fn check(State(access): State<Access>, request: Request, next: Next) -> Response {
    let (mut request, body) = request.into_parts();
    match access.decide(&request).await {
        Ok(limit) => {
            (access.on_decision)(AuthOutcome::Allowed);
            request.extensions.insert(limit);
            next.run(Request::from_parts(request, body)).await
        }
        Err(refusal) => {
            (access.on_decision)(refusal.outcome());
            refusal.answer()
        }
    }
}

/// Why a request is refused.
enum Refusal {
    Unauthenticated,
    Forbidden(String),
    Misdirected,
    Unavailable,
}

impl Refusal {
    fn outcome(&self) -> AuthOutcome {
        match self {
            Self::Unauthenticated => AuthOutcome::Unauthenticated,
            Self::Forbidden(_) | Self::Misdirected => AuthOutcome::Forbidden,
            Self::Unavailable => AuthOutcome::Error,
        }
    }

    fn answer(self) -> Response {
        let (status, body, more) = match self {
            Self::Unauthenticated => (
                StatusCode::UNAUTHORIZED,
                UNAUTHENTICATED.to_owned(),
                Some((header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"))),
            ),
            Self::Forbidden(why) => (StatusCode::FORBIDDEN, why, None),
            Self::Misdirected => (StatusCode::MISDIRECTED_REQUEST, HOST.to_owned(), None),
            Self::Unavailable => (
                StatusCode::SERVICE_UNAVAILABLE,
                UNAVAILABLE.to_owned(),
                Some((header::RETRY_AFTER, HeaderValue::from_static("5"))),
            ),
        };
        let mut answer = text(status, body);
        answer.headers_mut().extend(more);
        answer
    }
}

/// The token of the one `Authorization` header.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = only(headers, header::AUTHORIZATION)?.split_once(' ')?;
    let token = token.trim_matches(' ');
    let graphic = !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic());
    (scheme.eq_ignore_ascii_case("bearer") && graphic).then_some(token)
}

/// Whether the request is addressed to an IP address or to localhost, at any port.
fn names_this_machine(uri: &Uri, headers: &HeaderMap) -> bool {
    let host = only(headers, header::HOST).and_then(|host| Authority::from_str(host).ok());
    host.is_some_and(|host| is_literal(&host)) && uri.authority().is_none_or(is_literal)
}

fn is_literal(authority: &Authority) -> bool {
    let host = authority.host();
    let v6 = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let literal = v6.map_or_else(|| host.parse::<Ipv4Addr>().is_ok(), |v6| v6.parse::<Ipv6Addr>().is_ok());
    (literal || host.eq_ignore_ascii_case("localhost")) && !authority.as_str().contains('@')
}

/// The value of a header that is there once.
fn only(headers: &HeaderMap, name: header::HeaderName) -> Option<&str> {
    let mut values = headers.get_all(name).iter();
    values.next().filter(|_| values.next().is_none())?.to_str().ok()
}

#[cfg(test)]
mod tests;
