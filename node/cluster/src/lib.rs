//! The Kubernetes API, as the node's machined calls it.
//!
//! Owns: applying manifests to a cluster, and the inventory of what was applied.
//! Never does: decide what is applied (`corten-manifests`), or keep anything between two calls.
//! Talks to: one API server, through the crate `kube`.
//! On a laptop: `cargo test -p corten-cluster`.
//!
//! Objects are JSON of any kind; which path a kind has is asked of the server.

mod apply;

use std::time::Duration;

use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

pub use apply::{Report, describe};

/// For one request, from its first byte to its answer's last. A busy machine without hardware virtualisation takes
/// seconds for one.
const PATIENCE: Duration = Duration::from_secs(60);

/// Why the cluster could not be asked.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kubeconfig cannot be used.
    #[error("the kubeconfig of the node cannot be used")]
    Kubeconfig(#[from] kube::config::KubeconfigError),
    /// A request failed, or its answer cannot be read.
    #[error("the Kubernetes API: {}", describe(.0))]
    Api(kube::Error),
    /// No answer came.
    #[error("the Kubernetes API gave no answer within {} s", PATIENCE.as_secs())]
    NoAnswer,
}

/// A cluster, by one of its API servers.
#[derive(Clone)]
pub struct Cluster {
    client: Client,
}

impl std::fmt::Debug for Cluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Cluster")
    }
}

impl Cluster {
    /// The cluster of a kubeconfig (YAML or JSON). Nobody is asked yet.
    ///
    /// # Errors
    /// [`Error::Kubeconfig`], or the certificates in it cannot be used.
    pub async fn of(kubeconfig: &str) -> Result<Cluster, Error> {
        let kubeconfig = Kubeconfig::from_yaml(kubeconfig)?;
        let options = KubeConfigOptions::default();
        let mut config = Config::from_custom_kubeconfig(kubeconfig, &options).await?;
        config.connect_timeout = Some(PATIENCE);
        config.read_timeout = Some(PATIENCE);
        config.write_timeout = Some(PATIENCE);
        // Nobody is between the node and itself, whatever variables machined has.
        config.proxy_url = None;
        let client = Client::try_from(config).map_err(Error::Api)?;
        Ok(Cluster { client })
    }

    /// Whether the API server serves.
    ///
    /// # Errors
    /// It does not, or says that something of it is not ready yet.
    pub async fn ready(&self) -> Result<(), Error> {
        let request = http::Request::get("/readyz").body(Vec::new());
        let request = request.map_err(|error| Error::Api(kube::Error::HttpError(error)))?;
        within(self.client.request_text(request)).await.map(drop)
    }
}

async fn within<T>(request: impl Future<Output = Result<T, kube::Error>>) -> Result<T, Error> {
    match tokio::time::timeout(PATIENCE, request).await {
        Ok(answer) => answer.map_err(Error::Api),
        Err(_) => Err(Error::NoAnswer),
    }
}
