//! Shows the progress of an installation without an operator.

use corten_config::Document;
use corten_config::kinds::UnattendedInstallConfig;
use corten_resources::Draft;
use corten_resources::controller::{Context, Controller, Failure, Output};
use corten_types::unattended_install::{Phase, UnattendedInstallStatus};
use tokio::sync::watch;

#[derive(Debug, Clone)]
pub(super) struct UnattendedInstalls {
    pub(super) config: watch::Receiver<Option<Document>>,
    /// The installation of this boot.
    pub(super) installation: watch::Receiver<Option<UnattendedInstallStatus>>,
}

impl Controller for UnattendedInstalls {
    fn name(&self) -> &'static str {
        "runtime.UnattendedInstallController"
    }

    fn outputs(&self) -> Vec<Output> {
        vec![Output::exclusive::<UnattendedInstallStatus>()]
    }

    async fn run(mut self, context: &mut Context) -> Result<(), Failure> {
        context.event().await;
        loop {
            let config = self.config.borrow_and_update().clone();
            let of_this_boot = self.installation.borrow_and_update().clone();
            let status = match &config {
                Some(config) => installed(config),
                None => of_this_boot,
            };
            context.start_outputs();
            if let Some(status) = status {
                context.put(Draft::new(UnattendedInstallStatus::ID, status))?;
            }
            context.remove_others::<UnattendedInstallStatus>()?;
            tokio::select! {
                Ok(()) = self.config.changed() => {}
                Ok(()) = self.installation.changed() => {}
                else => return Ok(()),
            }
        }
    }
}

/// The status of a node with this active config. A node that is to be installed takes its config only from its disk.
fn installed(config: &Document) -> Option<UnattendedInstallStatus> {
    let kind = config.all::<UnattendedInstallConfig>().next()?;
    Some(UnattendedInstallStatus {
        image: kind.installer.image.clone().unwrap_or_default(),
        phase: Phase::Installed,
        error: String::new(),
    })
}

#[cfg(test)]
mod tests {
    use corten_base::sample;
    use corten_resources::Store;
    use corten_resources::controller::Runtime;

    use super::*;

    const ID: &str = UnattendedInstallStatus::ID;

    #[tokio::test]
    async fn installation_of_this_boot_is_shown_and_later_that_the_node_is_installed() {
        let config = watch::Sender::new(None);
        let installation = watch::Sender::new(None);
        let store = Store::new();
        let mut runtime = Runtime::new(store.clone());
        let controller = UnattendedInstalls {
            config: config.subscribe(),
            installation: installation.subscribe(),
        };
        runtime.add(controller).unwrap();
        tokio::spawn(runtime.run(|notice| panic!("{notice}")));
        let shows = async |expected: Option<(Phase, &str)>| {
            sample::until::<UnattendedInstallStatus>(&store, ID, |shown| {
                shown.map(|shown| (shown.phase, shown.error.as_str())) == expected
            })
            .await;
        };
        let failed = UnattendedInstallStatus {
            image: String::new(),
            phase: Phase::Failed,
            error: "the disk is full".to_owned(),
        };
        installation.send_replace(Some(failed));
        shows(Some((Phase::Failed, "the disk is full"))).await;
        // A failure of this boot says nothing about the config that follows.
        let install =
            "UnattendedInstallConfig\nprovisioning: {diskSelector: {match: 'disk.size > 1u'}}";
        config.send_replace(Some(sample::kind(install)));
        shows(Some((Phase::Installed, ""))).await;
        config.send_replace(Some(sample::config("", "")));
        shows(None).await;
    }
}
