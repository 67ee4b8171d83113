//! Whose token it is, and whether they may: `TokenReview`, then `SubjectAccessReview` for a path.
//!
//! No token is kept, logged or counted, and only answers that are clear are remembered. It must not know who asks.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher as _, RandomState};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::Deserialize;
use serde_json::json;
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep, timeout};

use super::access::AccessAnswer;
use super::reader::{Reader, undecodable};
use crate::domain::Read;

const TOKEN_REVIEWS: &str = "/apis/authentication.k8s.io/v1/tokenreviews";
const ACCESS_REVIEWS: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
/// How long a right that was taken away may still be used.
const ALLOWED_FOR: Duration = Duration::from_mins(1);
/// How long a right that was given may still be missed.
const REFUSED_FOR: Duration = Duration::from_secs(10);
/// Answers that are remembered.
const MOST: usize = 64;
/// Reviews at one time.
const AT_ONCE: usize = 4;
/// How long a review that allowed nothing keeps its place: who invents tokens costs the API server [`AT_ONCE`] a second.
const PENALTY: Duration = Duration::from_secs(1);

/// What the API server says of the bearer of a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Bearer {
    /// They may.
    Allowed,
    /// It knows no such token.
    Unauthenticated,
    /// They may not.
    Forbidden {
        /// The user's name.
        user: String,
    },
    /// Nobody knows, and why.
    Unknown(String),
}

/// Asks the API server, and remembers for a short time what it said.
pub struct TokenReviews {
    reader: Arc<Reader>,
    timeout: Duration,
    asking: Arc<Semaphore>,
    /// Two keyed hashes make 128 bits that nobody outside can aim at; the keys are of this process.
    keys: [RandomState; 2],
    answers: Mutex<HashMap<Key, (Bearer, Instant)>>,
}

type Key = [u64; 2];

impl TokenReviews {
    /// `timeout` bounds a whole answer, however many requests it takes.
    pub fn new(reader: Arc<Reader>, timeout: Duration) -> Self {
        let asking = Arc::new(Semaphore::new(AT_ONCE));
        Self { reader, timeout, asking, keys: <[RandomState; 2]>::default(), answers: Mutex::default() }
    }

    /// Whether the bearer may do this at this path: `get`, `/v1/state`.
    pub async fn review(&self, token: &str, verb: &str, path: &str) -> Bearer {
        let key: Key = [0, 1].map(|at: usize| self.keys[at].hash_one((token, verb, path)));
        if let Some(bearer) = self.remembered(&key) {
            return bearer;
        }
        let asked = timeout(self.timeout, self.in_turn(token, verb, path)).await;
        let bearer =
            asked.unwrap_or_else(|_| Bearer::Unknown(format!("no answer within {:?}", self.timeout)));
        self.remember(key, &bearer);
        bearer
    }

    async fn in_turn(&self, token: &str, verb: &str, path: &str) -> Bearer {
        let Ok(place) = Arc::clone(&self.asking).acquire_owned().await else {
            return Bearer::Unknown("the reviews are over".to_owned());
        };
        // Also where the caller gives up waiting.
        let mut place = Place(Some(place));
        let bearer =
            self.ask(token, verb, path).await.unwrap_or_else(|error| Bearer::Unknown(error.to_string()));
        if bearer == Bearer::Allowed {
            place.0 = None;
        }
        bearer
    }

    async fn ask(&self, token: &str, verb: &str, path: &str) -> Read<Bearer> {
        let what = "POST tokenreviews";
        let review = json!({
            "apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token},
        });
        let TokenAnswer { status } = self.reader.post(what, TOKEN_REVIEWS, &review).await?;
        if !status.authenticated {
            return Ok(Bearer::Unauthenticated);
        }
        let User { username, uid, groups, extra } = status.user;
        if username.is_empty() {
            return Err(undecodable(what, "it names no user"));
        }
        let what = "POST subjectaccessreviews";
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
            "spec": {
                "user": username, "uid": uid, "groups": groups, "extra": extra,
                "nonResourceAttributes": {"path": path, "verb": verb},
            },
        });
        let AccessAnswer { status } = self.reader.post(what, ACCESS_REVIEWS, &review).await?;
        match status.evaluation_error.filter(|error| !error.is_empty()) {
            _ if status.allowed && !status.denied => Ok(Bearer::Allowed),
            // An authorizer failed: what it would have said is not known.
            Some(error) if !status.denied => Err(undecodable(what, &error)),
            _ => Ok(Bearer::Forbidden { user: username }),
        }
    }

    fn remembered(&self, key: &Key) -> Option<Bearer> {
        let answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        let (bearer, until) = answers.get(key)?;
        (*until > Instant::now()).then(|| bearer.clone())
    }

    fn remember(&self, key: Key, bearer: &Bearer) {
        let lives = match bearer {
            Bearer::Allowed => ALLOWED_FOR,
            Bearer::Unauthenticated | Bearer::Forbidden { .. } => REFUSED_FOR,
            Bearer::Unknown(_) => return,
        };
        let now = Instant::now();
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        answers.retain(|_, (_, until)| *until > now);
        if answers.len() >= MOST {
            // What ends first: who invents tokens drives out other refusals before those who may.
            let first = answers.iter().min_by_key(|(_, (_, until))| *until).map(|(key, _)| *key);
            first.map(|key| answers.remove(&key));
        }
        answers.insert(key, (bearer.clone(), now + lives));
    }
}

/// The place of a review; unless it is given back, it is kept for the penalty.
struct Place(Option<OwnedSemaphorePermit>);

impl Drop for Place {
    fn drop(&mut self) {
        let (Some(place), Ok(runtime)) = (self.0.take(), Handle::try_current()) else {
            return;
        };
        runtime.spawn(async move {
            sleep(PENALTY).await;
            drop(place);
        });
    }
}

#[derive(Deserialize)]
struct TokenAnswer {
    status: TokenStatus,
}

/// The API server leaves `authenticated` out where it is false.
#[derive(Deserialize)]
struct TokenStatus {
    #[serde(default)]
    authenticated: bool,
    #[serde(default)]
    user: User,
}

#[derive(Deserialize, Default)]
struct User {
    #[serde(default)]
    username: String,
    #[serde(default)]
    uid: String,
    #[serde(default)]
    groups: Vec<String>,
    #[serde(default)]
    extra: BTreeMap<String, Vec<String>>,
}
