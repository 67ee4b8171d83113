//! A layer around the client: counts and times every request, and bounds the wait for an answer's head.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use http::{Method, Request, Response, Uri};
use tokio::sync::watch;
use tower::{BoxError, Layer, Service};

use crate::metrics::{ApiOutcome, ApiResource, ApiVerb, Metrics};

/// Wraps the client's service.
#[derive(Clone)]
pub(super) struct CountLayer {
    metrics: Arc<Metrics>,
    timeout: Duration,
    /// Counts the watches that were answered.
    opened: watch::Sender<u64>,
}

impl CountLayer {
    pub(super) fn new(metrics: Arc<Metrics>, timeout: Duration, opened: watch::Sender<u64>) -> Self {
        Self { metrics, timeout, opened }
    }
}

impl<S> Layer<S> for CountLayer {
    type Service = Count<S>;

    fn layer(&self, inner: S) -> Count<S> {
        Count { inner, layer: self.clone() }
    }
}

/// The wrapped service.
#[derive(Clone)]
pub(super) struct Count<S> {
    inner: S,
    layer: CountLayer,
}

impl<S, B, R> Service<Request<B>> for Count<S>
where
    S: Service<Request<B>, Response = Response<R>>,
    S::Error: Into<BoxError>,
    S::Future: Send + 'static,
    R: 'static,
{
    type Response = Response<R>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Response<R>, BoxError>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let (verb, resource) = classify(request.method(), request.uri());
        let tally = Tally {
            metrics: Arc::clone(&self.layer.metrics),
            verb,
            resource,
            since: Instant::now(),
            outcome: ApiOutcome::Timeout,
        };
        let CountLayer { timeout, opened, .. } = self.layer.clone();
        let answer = self.inner.call(request);
        Box::pin(async move {
            // Moved in as a whole: a part of it would be recorded before the answer is there.
            let mut tally = tally;
            let Ok(answer) = tokio::time::timeout(timeout, answer).await else {
                return Err(format!("no answer within {} s", timeout.as_secs_f32()).into());
            };
            let answer = answer.map_err(Into::into);
            tally.outcome = answer
                .as_ref()
                .map_or(ApiOutcome::Error, |response| ApiOutcome::of_status(response.status().as_u16()));
            if tally.verb == ApiVerb::Watch && tally.outcome == ApiOutcome::Ok {
                opened.send_modify(|count| *count = count.wrapping_add(1));
            }
            answer
        })
    }
}

/// Records the request when it is over, also when its caller gave up waiting.
struct Tally {
    metrics: Arc<Metrics>,
    verb: ApiVerb,
    resource: ApiResource,
    since: Instant,
    outcome: ApiOutcome,
}

impl Drop for Tally {
    fn drop(&mut self) {
        self.metrics.api_request(self.verb, self.resource, self.outcome, self.since.elapsed());
    }
}

/// Verb and resource, as RBAC names them.
fn classify(method: &Method, uri: &Uri) -> (ApiVerb, ApiResource) {
    let mut path = uri.path().trim_matches('/').split('/');
    let known = match (path.next(), path.next(), path.next()) {
        (Some("api"), Some("v1"), next) => next.map(|next| (next, path)),
        (Some("apis"), Some(_), Some(_)) => path.next().map(|next| (next, path)),
        _ => None,
    };
    let Some((mut name, mut path)) = known else {
        return (ApiVerb::Get, ApiResource::Discovery);
    };
    // What follows a namespace's name is in it; without that the namespace itself is meant.
    if name == "namespaces" && path.clone().nth(1).is_some() {
        name = path.nth(1).unwrap_or_default();
    }
    let resource = match name {
        "pods" => ApiResource::Pods,
        "events" => ApiResource::Events,
        "namespaces" => ApiResource::Namespaces,
        "nodes" => ApiResource::Nodes,
        "daemonsets" => ApiResource::DaemonSets,
        "leases" => ApiResource::Leases,
        "selfsubjectreviews" => ApiResource::SelfSubjectReviews,
        "selfsubjectaccessreviews" => ApiResource::SelfSubjectAccessReviews,
        "tokenreviews" => ApiResource::TokenReviews,
        "subjectaccessreviews" => ApiResource::SubjectAccessReviews,
        "ciliumnodes" => ApiResource::CiliumNodes,
        "ciliumendpoints" => ApiResource::CiliumEndpoints,
        "ciliumendpointslices" => ApiResource::CiliumEndpointSlices,
        _ => ApiResource::Other,
    };
    let watches = uri
        .query()
        .is_some_and(|query| query.split('&').any(|pair| matches!(pair, "watch=true" | "watch=1")));
    let verb = match (method, path.next()) {
        (&Method::DELETE, _) => ApiVerb::Delete,
        (&Method::POST, _) => ApiVerb::Create,
        (&Method::PATCH, _) => ApiVerb::Patch,
        (&Method::PUT, _) => ApiVerb::Update,
        (_, Some(_)) => ApiVerb::Get,
        (_, None) if watches => ApiVerb::Watch,
        (_, None) => ApiVerb::List,
    };
    (verb, resource)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[rstest::rstest]
    #[case("GET", "/api/v1/pods?fieldSelector=spec.nodeName%3Dn1&limit=50", ("list", "pods"))]
    #[case("GET", "/api/v1/pods?&watch=true&timeoutSeconds=290", ("watch", "pods"))]
    #[case("GET", "/api/v1/namespaces/pods/pods/events", ("get", "pods"))]
    #[case("DELETE", "/api/v1/namespaces/a/pods/b", ("delete", "pods"))]
    #[case("GET", "/api/v1/namespaces/a/events?fieldSelector=involvedObject.uid%3Dx", ("list", "events"))]
    #[case("GET", "/apis/cilium.io/v2/ciliumnodes/n1", ("get", "ciliumnodes"))]
    #[case("GET", "/apis/cilium.io/v2/namespaces/a/ciliumendpoints/b", ("get", "ciliumendpoints"))]
    #[case("GET", "/apis/cilium.io/v2alpha1/ciliumendpointslices?limit=100", ("list", "ciliumendpointslices"))]
    #[case("POST", "/apis/events.k8s.io/v1/namespaces/a/events", ("create", "events"))]
    #[case("PATCH", "/apis/events.k8s.io/v1/namespaces/default/events/b.1", ("patch", "events"))]
    #[case("GET", "/apis/coordination.k8s.io/v1/namespaces/a/leases/b", ("get", "leases"))]
    #[case("PUT", "/apis/coordination.k8s.io/v1/namespaces/a/leases/b", ("update", "leases"))]
    #[case("GET", "/api/v1/namespaces/a", ("get", "namespaces"))]
    #[case("GET", "/api/v1/namespaces/namespaces", ("get", "namespaces"))]
    #[case("GET", "/api/v1/namespaces", ("list", "namespaces"))]
    #[case("GET", "/api/v1/nodes/n1", ("get", "nodes"))]
    #[case("GET", "/apis/apps/v1/namespaces/a/daemonsets/b", ("get", "daemonsets"))]
    #[case("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", ("create", "selfsubjectreviews"))]
    #[case("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", ("create", "selfsubjectaccessreviews"))]
    #[case("POST", "/apis/authentication.k8s.io/v1/tokenreviews", ("create", "tokenreviews"))]
    #[case("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", ("create", "subjectaccessreviews"))]
    #[case("DELETE", "/api/v1/namespaces/a/pods/b?dryRun=All", ("delete", "pods"))]
    #[case("GET", "/apis/cilium.io/v2", ("get", "discovery"))]
    #[case("GET", "/version", ("get", "discovery"))]
    fn requests_are_named_as_rbac_names_them(
        #[case] method: Method,
        #[case] uri: Uri,
        #[case] want: (&str, &str),
    ) {
        let (verb, resource) = classify(&method, &uri);
        assert_eq!((verb.as_str(), resource.as_str()), want);
    }
}
