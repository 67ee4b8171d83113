//! Who may read what names pods, wired: the flag, and the API server's word on a token.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;

use crate::admin::{Access, Auth, Authorizer, Decision};
use crate::kube::{Bearer, Reader, TokenReviews};
use crate::metrics::Metrics;

/// The rule, and what it asks once [`Reviews::begin`] was called.
pub(super) fn access(auth: Auth, addresses: &[SocketAddr], metrics: Arc<Metrics>) -> (Access, Arc<Reviews>) {
    let beyond = addresses.iter().find(|address| !address.ip().to_canonical().is_loopback());
    match (beyond, auth) {
        (Some(address), Auth::None) => tracing::warn!(
            %address,
            "--auth=none: whoever reaches this address reads the names of pods and their addresses under /v1"
        ),
        (Some(address), Auth::Off) => {
            tracing::info!(%address, "/v1 is closed at this address: neither --auth=token nor --auth=none is set");
        }
        (Some(_), Auth::Token) | (None, _) => {}
    }
    let reviews = Arc::new(Reviews::default());
    let authorizer = Arc::clone(&reviews) as Arc<dyn Authorizer>;
    let access = Access::new(auth, authorizer, move |outcome| metrics.auth(outcome));
    (access, reviews)
}

/// The API server's word. The server of pages is there before the client is: until then nobody's token is known.
#[derive(Default)]
pub(super) struct Reviews {
    reviews: OnceLock<TokenReviews>,
    /// Why it could not be asked, as it was told last.
    told: Mutex<Option<String>>,
}

impl Reviews {
    pub(super) fn begin(&self, reader: &Arc<Reader>, timeout: Duration) {
        self.reviews.get_or_init(|| TokenReviews::new(Arc::clone(reader), timeout));
    }

    /// Told once: who has no token must not be able to fill the log.
    fn tell(&self, why: Option<String>) {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        match (&why, &*told) {
            (Some(reason), told) if told.as_ref() != Some(reason) => {
                tracing::warn!(
                    reason,
                    "bearer tokens cannot be reviewed: /v1 is closed to them (rbac/auth.yaml gives the rights)"
                );
            }
            (None, Some(_)) => tracing::info!("bearer tokens are reviewed again"),
            _ => {}
        }
        *told = why;
    }
}

impl Authorizer for Reviews {
    fn allow<'a>(&'a self, token: &'a str, verb: &'a str, path: &'a str) -> BoxFuture<'a, Decision> {
        async move {
            let Some(reviews) = self.reviews.get() else {
                return Decision::Unavailable;
            };
            let bearer = reviews.review(token, verb, path).await;
            self.tell(if let Bearer::Unknown(why) = &bearer { Some(why.clone()) } else { None });
            match bearer {
                Bearer::Allowed => Decision::Allowed,
                Bearer::Unauthenticated => Decision::Unauthenticated,
                Bearer::Forbidden { user } => Decision::Forbidden { user },
                Bearer::Unknown(_) => Decision::Unavailable,
            }
        }
        .boxed()
    }
}
