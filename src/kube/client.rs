//! The client: where its configuration comes from, its time-outs, and no retries of its own.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use kube::client::ClientBuilder;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use tokio::sync::watch;

use super::count::CountLayer;
use crate::metrics::Metrics;

/// How to reach the API server.
#[derive(Debug, Clone)]
pub struct ClientOptions {
    /// A kubeconfig file; without it the pod's service account, else `$KUBECONFIG` or `~/.kube/config`.
    pub kubeconfig: Option<PathBuf>,
    /// A context of the kubeconfig other than its current one.
    pub context: Option<String>,
    /// Bound on a connect, and on the head of any answer.
    pub timeout: Duration,
}

/// Why no client could be made. Nothing was sent yet.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The file that `--kubeconfig` names cannot be read or is no kubeconfig.
    #[error("--kubeconfig {}: {error}", path.display())]
    Kubeconfig {
        /// The file.
        path: PathBuf,
        /// What came of it; no `source`, or the cause would be printed twice.
        error: Box<kube::config::KubeconfigError>,
    },
    /// The context that `--context` names cannot be used.
    #[error("--context: {0}")]
    Context(Box<kube::config::KubeconfigError>),
    /// Neither a service account nor a kubeconfig was found.
    #[error("no cluster to talk to: {0}; run inside a pod, or give --kubeconfig")]
    Infer(Box<kube::config::InferConfigError>),
    /// The configuration cannot be used, for example a certificate that is none.
    #[error("the cluster configuration cannot be used: {0}")]
    Client(Box<kube::Error>),
}

/// Tells when a watch was answered: the head of the answer, which no stream of events shows.
#[derive(Debug, Clone)]
pub struct WatchOpened(watch::Receiver<u64>);

impl WatchOpened {
    /// Waits for the next one; forever once the client is gone.
    pub(super) async fn next(&mut self) {
        if self.0.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// Makes a client. It connects with the first call.
pub async fn connect(
    options: &ClientOptions,
    metrics: &Arc<Metrics>,
) -> Result<(Client, WatchOpened), ConnectError> {
    let mut config = configuration(options).await?;
    config.connect_timeout = Some(options.timeout);
    config.write_timeout = Some(options.timeout);
    // Retries are the engine's, which looks at everything again before it does so.
    config.default_retry = false;
    let (layer, opened) = counted(options.timeout, metrics);
    let builder = ClientBuilder::try_from(config).map_err(|error| ConnectError::Client(Box::new(error)))?;
    Ok((builder.with_layer(&layer).build(), opened))
}

/// What every client has around its connection.
fn counted(timeout: Duration, metrics: &Arc<Metrics>) -> (CountLayer, WatchOpened) {
    let (sender, receiver) = watch::channel(0);
    (CountLayer::new(Arc::clone(metrics), timeout, sender), WatchOpened(receiver))
}

/// A client over a service of one's own, in memory: for the simulated API server on paused time.
#[cfg(feature = "sim")]
pub fn connect_to<S, B>(service: S, timeout: Duration, metrics: &Arc<Metrics>) -> (Client, WatchOpened)
where
    S: tower::Service<http::Request<kube::client::Body>, Response = http::Response<B>> + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Into<tower::BoxError>,
    B: hyper::body::Body<Data = hyper::body::Bytes> + Send + 'static,
    B::Error: Into<tower::BoxError>,
{
    let (layer, opened) = counted(timeout, metrics);
    (Client::new(tower::Layer::layer(&layer, service), "default"), opened)
}

async fn configuration(options: &ClientOptions) -> Result<Config, ConnectError> {
    let selection = KubeConfigOptions { context: options.context.clone(), ..KubeConfigOptions::default() };
    if let Some(path) = &options.kubeconfig {
        let failed = |error| ConnectError::Kubeconfig { path: path.clone(), error: Box::new(error) };
        let kubeconfig = Kubeconfig::read_from(path).map_err(failed)?;
        return Config::from_custom_kubeconfig(kubeconfig, &selection).await.map_err(failed);
    }
    if options.context.is_some() {
        return Config::from_kubeconfig(&selection)
            .await
            .map_err(|source| ConnectError::Context(Box::new(source)));
    }
    Config::infer().await.map_err(|error| ConnectError::Infer(Box::new(error)))
}
