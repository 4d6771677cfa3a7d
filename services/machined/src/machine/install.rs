//! The installation to a disk in the node's life: a node whose config wants it is installed before it is anything else.

use std::sync::Arc;
use std::time::Duration;

use corten_base::console;
use corten_config::Document;
use corten_config::installation::Installation;
use tokio::sync::mpsc;
use tokio::task::block_in_place;
use tokio::time::{Instant, sleep};

use super::{Machine, lock};
use crate::install::{self, By, Installed};
use crate::node::SubmitError;

/// Between two attempts of a node that nobody else can give a config: the first, and the longest.
const FIRST_PAUSE: Duration = Duration::from_secs(10);
const LONGEST_PAUSE: Duration = Duration::from_secs(300);
/// For the disk to be there at first, and between two looks for it.
const DISK: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_secs(1);

impl Machine {
    /// Installs the node by the config that a caller has applied. One that cannot be installed goes on waiting for a config.
    pub(super) async fn install_for_caller(self: Arc<Machine>, document: Document) {
        let Some(wanted) = document.installation() else {
            return;
        };
        match self.install_once(&wanted, (&document, By::Caller)).await {
            Ok(done) => self.restart_into(&done),
            Err(why) => self.refuse(&format!(
                "the node is not installed: {why}; it goes on waiting for a machine config"
            )),
        }
    }

    /// Whether a config from `whence` has the node installed first: then it is, for as long as it takes, and the node answers
    /// nobody without a certificate meanwhile.
    pub(super) fn installs_by(self: &Arc<Machine>, document: &Document, whence: &str) -> bool {
        let Some(wanted) = document.installation() else {
            return false;
        };
        if !self.node.is_without_disk() {
            return false;
        }
        let field = wanted.disk.field();
        let why = format!("the config of {whence} has this node installed first ({field})");
        console::say(&why);
        *lock(&self.unusable) = Some(why);
        let (machine, document) = (self.clone(), document.clone());
        tokio::spawn(async move { machine.install_for_ever(wanted, document).await });
        true
    }

    /// A disk may come, and so may a registry.
    async fn install_for_ever(self: Arc<Machine>, wanted: Installation, document: Document) {
        self.supervisor.up("udevd").await;
        // What udevd has found is not all known yet.
        let begun = Instant::now();
        let is_there =
            || block_in_place(|| install::take(&self.node, &wanted, By::Machine)).is_ok();
        while begun.elapsed() < DISK && !is_there() {
            sleep(LOOK).await;
        }
        let mut pause = FIRST_PAUSE;
        loop {
            match self.install_once(&wanted, (&document, By::Machine)).await {
                Ok(done) => return self.restart_into(&done),
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
        if wanted.image.is_some() {
            self.want_containerd();
            self.supervisor.up(corten_services::CONTAINERD).await;
        }
        // Nobody listens.
        let (tell, _) = mpsc::channel(1);
        self.node
            .install_by(wanted, (Some(document), by), &tell)
            .await
    }

    fn restart_into(&self, done: &Installed) {
        let Installed { version, disk } = done;
        let _ = self
            .restarts
            .send(format!("version {version} was installed on {disk}"));
    }
}
