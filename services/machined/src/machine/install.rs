//! Installation to a disk in the life of a node: a node whose config requests it is installed before it does anything
//! else.

use std::sync::Arc;
use std::time::Duration;

use corten_base::console;
use corten_config::Document;
use corten_config::installation::Installation;
use corten_config::kinds::UnattendedInstallConfig;
use corten_server::node::{Node as _, Stage, SubmitError};
use corten_types::unattended_install::{Phase, UnattendedInstallStatus};
use tokio::sync::mpsc;
use tokio::task::block_in_place;
use tokio::time::{Instant, sleep};

use super::{Machine, lock};
use crate::install::{self, By, Installed};

/// First and longest pause between the attempts of a node that cannot get another config.
const FIRST_PAUSE: Duration = Duration::from_secs(10);
const LONGEST_PAUSE: Duration = Duration::from_secs(300);
/// Time for the disk to appear, and interval of the checks for it.
const DISK: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_secs(1);

impl Machine {
    /// Installs the node by the config that a caller applied. If that fails, the node goes on waiting for a config.
    pub(super) async fn install_for_caller(self: Arc<Machine>, document: Document) {
        let Some(wanted) = document.installation() else {
            return;
        };
        match self.install_once(&wanted, (&document, By::Caller)).await {
            Ok(done) => self.end_installation(&done, &wanted),
            Err(why) => {
                self.forget_network();
                self.refuse(&format!(
                    "the node is not installed: {why}; waiting for another machine config"
                ));
            }
        }
    }

    /// Whether a config from `whence` requests an installation. If so, starts it and retries until it succeeds;
    /// meanwhile the node refuses anonymous callers.
    pub(super) fn installs_by(self: &Arc<Machine>, document: &Document, whence: &str) -> bool {
        let Some(wanted) = document.installation() else {
            return false;
        };
        if !self.node.is_without_disk() {
            return false;
        }
        let field = wanted.disk.field();
        let why = format!("the config of {whence} installs this node first ({field})");
        console::say(&why);
        *lock(&self.unusable) = Some(why);
        let (machine, document) = (self.clone(), document.clone());
        tokio::spawn(async move { machine.install_for_ever(wanted, document).await });
        true
    }

    /// Retries without end: a disk or a registry may become available.
    async fn install_for_ever(self: Arc<Machine>, wanted: Installation, document: Document) {
        self.supervisor.up("udevd").await;
        // udevd may not have found every disk yet.
        let begun = Instant::now();
        let is_there =
            || block_in_place(|| install::take(&self.node, &wanted, By::Machine)).is_ok();
        while begun.elapsed() < DISK && !is_there() {
            sleep(LOOK).await;
        }
        let mut pause = FIRST_PAUSE;
        // A disk that appears late may bring a config: then the node is installed already.
        while self.node.config().is_none() {
            match self.install_once(&wanted, (&document, By::Machine)).await {
                Ok(done) => return self.end_installation(&done, &wanted),
                Err(_) if self.node.config().is_some() => return,
                Err(why) => {
                    let why = format!("the node is not installed: {why}");
                    let seconds = pause.as_secs();
                    self.refuse(&format!("{why}; trying again in {seconds} s"));
                    self.lock_node(&why);
                }
            }
            sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    async fn install_once(
        &self,
        wanted: &Installation,
        (document, by): (&Document, By),
    ) -> Result<Installed, SubmitError> {
        self.show(document, Phase::Installing, String::new());
        let done = self.try_to_install(wanted, (document, by)).await;
        match &done {
            Ok(_) => self.show(document, Phase::WaitingForReboot, String::new()),
            Err(why) => self.show(document, Phase::Failed, why.to_string()),
        }
        done
    }

    /// Shows the progress of the installation to clients, if an `UnattendedInstallConfig` requests it.
    fn show(&self, document: &Document, phase: Phase, error: String) {
        let kind = document.all::<UnattendedInstallConfig>().next();
        let status = kind.map(|kind| UnattendedInstallStatus {
            image: kind.installer.image.clone().unwrap_or_default(),
            phase,
            error,
        });
        self.node.set_installation(status);
    }

    async fn try_to_install(
        &self,
        wanted: &Installation,
        (document, by): (&Document, By),
    ) -> Result<Installed, SubmitError> {
        if wanted.image.is_some() {
            // The config is not in effect, but says where its own image comes from, and how to get there.
            self.node.prepare_network(Some(document.clone()));
            self.write_registries(Some(document));
            self.want_containerd();
            self.supervisor.up(corten_supervisor::CONTAINERD).await;
        }
        // No client receives the progress.
        let (tell, _) = mpsc::channel(1);
        self.node
            .install_by(wanted, (Some(document), by), &tell)
            .await
    }

    /// Takes back what [`Machine::install_once`] took from a config whose installation failed.
    fn forget_network(&self) {
        if self.node.config().is_none() {
            self.node.prepare_network(None);
            self.write_registries(None);
            self.declare_containerd();
        }
    }

    /// Restarts into the installed version, unless the config leaves that to the operator.
    fn end_installation(&self, done: &Installed, wanted: &Installation) {
        let Installed { version, disk } = done;
        let installed = format!("version {version} was installed on {disk}");
        if wanted.restarts {
            let _ = self.restarts.send(installed);
            return;
        }
        let waits = format!(
            "{installed}, and runs after the next start of this machine (UnattendedInstallConfig.reboot: false)"
        );
        console::say(&waits);
        if self.node.stage() == Stage::Locked {
            self.node.set_lock(Some(waits));
        }
    }
}
