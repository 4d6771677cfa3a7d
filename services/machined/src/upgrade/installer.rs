//! The image of an installer: fetched into containerd, used, and removed again.

use std::path::Path;
use std::time::Duration;

use corten_base::console;
use corten_config::Document;
use corten_config::registries::Registries;
use corten_containerd::client::{Containerd, Image, Purpose};
use corten_containerd::names::full_name;
use corten_kubernetes::own_images;
use corten_server::node::SubmitError;
use corten_supervisor::CONTAINERD_SOCKET;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tonic::Status;

/// Timeout of an installer's pull.
const PULL: Duration = Duration::from_secs(30 * 60);
/// Timeout of its removal (the reference's).
const REMOVAL: Duration = Duration::from_secs(30);

/// The images of one namespace of containerd; tests have their own.
pub(crate) trait Images: Sync {
    /// The image of this name.
    fn find(&self, name: &str) -> impl Future<Output = Result<Option<Image>, Status>> + Send;
    /// Pulls the installer of this full name.
    fn pull(&self, name: &str) -> impl Future<Output = Result<(), Status>> + Send;
    /// Removes all images with this digest, except for these names.
    fn remove(
        &self,
        digest: &str,
        kept: &[String],
    ) -> impl Future<Output = Result<(), Status>> + Send;
}

/// The real images.
#[derive(Debug)]
pub(crate) struct Stored {
    containerd: Containerd,
    namespace: &'static str,
    registries: Registries,
}

impl Stored {
    /// Those of this namespace, pulled by the registries of the config.
    pub(crate) fn new(namespace: &'static str, config: Option<&Document>) -> Stored {
        let registries = config.map(|config| config.registries());
        Stored {
            containerd: Containerd::new(Path::new(CONTAINERD_SOCKET)),
            namespace,
            registries: registries.unwrap_or_default(),
        }
    }
}

impl Images for Stored {
    async fn find(&self, name: &str) -> Result<Option<Image>, Status> {
        self.containerd.started().await;
        self.containerd.image(self.namespace, name).await
    }

    async fn pull(&self, name: &str) -> Result<(), Status> {
        // No client receives the progress.
        let (steps, _) = mpsc::channel(1);
        let (namespace, registries) = (self.namespace, &self.registries);
        let pull = self
            .containerd
            .pull(namespace, name, Purpose::Installer, registries, steps);
        pull.await
    }

    async fn remove(&self, digest: &str, kept: &[String]) -> Result<(), Status> {
        let removal = self.containerd.remove_digest(self.namespace, digest, kept);
        removal.await
    }
}

/// Removes an installer whose version is written, so that a later call by the same name gets the image that the name
/// then has. Names in the config stay. An installer that was not used stays for another attempt.
pub(crate) async fn release(
    images: &impl Images,
    name: &str,
    digest: &str,
    config: Option<&Document>,
) {
    let kept = config.map(own_images).unwrap_or_default();
    let removed = match timeout(REMOVAL, images.remove(digest, &kept)).await {
        Ok(removed) => removed.map_err(|status| status.message().to_owned()),
        Err(_) => Err(format!(
            "containerd does not answer within {} s",
            REMOVAL.as_secs()
        )),
    };
    if let Err(why) = removed {
        console::warn(&format!(
            "the installer {name} ({digest}) stays in containerd until the node removes unused images: {why}"
        ));
    }
}

/// Digest of the installer, which is then in containerd's content store. The node asks the registry again for a tag that
/// it has pulled itself, because the tag may have moved. It uses what an operator has imported or pulled.
///
/// # Errors
/// It cannot be fetched.
pub(crate) async fn obtain(images: &impl Images, image: &str) -> Result<String, SubmitError> {
    let full = full_name(image);
    // An imported image may have a name that no registry resolves.
    for name in [Some(image), full.as_deref().ok()].into_iter().flatten() {
        let found = images.find(name).await.map_err(failed)?;
        let is_current = |found: &Image| !found.is_pulled_installer() || name.contains('@');
        if let Some(found) = found.filter(is_current) {
            return Ok(found.digest);
        }
    }
    let name = full.map_err(|error| {
        SubmitError::Refused(format!(
            "image: {image:?} is not the name of an image ({error})"
        ))
    })?;
    match timeout(PULL, images.pull(&name)).await {
        Ok(pulled) => pulled.map_err(|status| SubmitError::Refused(status.message().to_owned()))?,
        Err(_) => {
            return Err(SubmitError::Refused(format!(
                "{name} was not pulled within {} s",
                PULL.as_secs()
            )));
        }
    }
    let found = images.find(&name).await.map_err(failed)?;
    found.map(|found| found.digest).ok_or_else(|| {
        SubmitError::Failed(format!(
            "containerd has pulled {name}, but does not list it"
        ))
    })
}

fn failed(status: Status) -> SubmitError {
    SubmitError::Failed(status.message().to_owned())
}

#[cfg(test)]
#[path = "installer_tests.rs"]
mod tests;
