//! The machine config on its way into the node. A config is used whole or not at all.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;

use corten_base::console;
use corten_config::Document;
use corten_resources::controller::with_causes as describe;
use corten_services::trustd;
use corten_volumes::STATE;
use tokio::task::block_in_place;

use super::{Machine, lock};
use crate::certificates;
use crate::config_store::ConfigStore;
use crate::logging;
use crate::machine_files;
use crate::node::{Apply, Node as _};
use crate::udev_rules;

/// A config that was put into the image when it was built.
const EMBEDDED: &str = "/usr/lib/corten/config.yaml";
/// Where files of the config stand.
const VAR: &str = "/var";

impl Machine {
    /// The config that was kept comes first, then the one in the image.
    pub(super) fn load_config(&self) {
        self.direct_logs();
        if let Some(store) = ConfigStore::on_volume(Path::new(STATE.target)) {
            let loaded = store.load();
            self.node.keep_configs(store);
            for complaint in &loaded.complaints {
                self.refuse(complaint);
            }
            if let Some(document) = loaded.document {
                self.remember(&document);
                return self.judge_kept(self.start_with(document, STATE.target));
            }
            // The newest one says it all.
            if let Some(complaint) = loaded.complaints.into_iter().next() {
                self.judge_kept(Err(complaint));
            }
        }
        self.load_embedded();
    }

    /// Remembers why a config that the node keeps cannot be used: such a node has an owner.
    fn judge_kept(&self, used: Result<(), String>) {
        if let Err(why) = used {
            lock(&self.unusable).get_or_insert(why);
        }
    }

    pub(super) fn start_with(&self, document: Document, whence: &str) -> Result<(), String> {
        if let Err(error) = certificates::check(&document) {
            let why = format!("the config of {whence} is not used: {}", describe(&error));
            self.refuse(&why);
            return Err(why);
        }
        block_in_place(|| {
            self.node.keep_state_encryption(&document);
            self.node.keep_owner(&document);
        });
        self.adopt(document);
        Ok(())
    }

    /// Makes it the node's config; whom the API serves is not touched.
    fn adopt(&self, document: Document) {
        write_udev_rules(&document);
        self.write_registries(&document);
        let signs = document.machine.kind.is_control_plane();
        self.node.set_config(document);
        if signs {
            self.supervisor.declare(trustd());
        }
        self.declare_containerd();
        self.declare_extensions();
        self.direct_logs();
        self.mount_what_waited();
    }

    /// Writes the files of the config; those of a later one wait for the next boot.
    pub(super) fn write_files(&self) {
        let Some(config) = self.node.config() else {
            return;
        };
        for complaint in machine_files::write(Path::new(VAR), &config.machine.files) {
            console::warn(&complaint);
        }
    }

    /// Tells syslogd where logs go, by the config and the volumes of now.
    fn direct_logs(&self) {
        if let Err(error) = logging::direct(self.node.config().as_ref(), &self.cmdline) {
            console::warn(&format!("logs stay in memory only: {error}"));
        }
    }

    /// A config in the image is the operator's own: one that cannot be used locks the node.
    fn load_embedded(&self) {
        match embedded() {
            Ok(Some(document)) => self.judge_kept(self.start_with(document, EMBEDDED)),
            Ok(None) => {}
            Err(why) => {
                let why = format!("{EMBEDDED} is not used: {why}");
                self.refuse(&why);
                self.judge_kept(Err(why));
            }
        }
    }

    pub(super) fn refuse(&self, complaint: &str) {
        console::warn(complaint);
        self.tell_bad_config(complaint);
    }

    /// A config that was accepted takes effect as it was asked to.
    pub(super) fn take_over(self: &Arc<Machine>, document: Document, how: Apply) {
        match how {
            Apply::Now => {
                self.remember(&document);
                self.activate(document);
            }
            Apply::Staged => console::say("a machine config was kept for the next boot"),
            Apply::Install => {
                tokio::spawn(self.clone().install_for_caller(document));
            }
            Apply::Try(patience) => {
                let seconds = patience.as_secs();
                console::say(&format!("a machine config is tried for {seconds} s"));
                self.activate(document);
            }
        }
    }

    /// Should the next config turn out to be unusable, this is what is left.
    fn remember(&self, document: &Document) {
        let Some(store) = self.node.config_store() else {
            return;
        };
        if let Err(error) = store.remember(document.source()) {
            console::warn(&format!(
                "cannot remember the config as a good one: {error}"
            ));
        }
    }

    /// Makes the config the active one and serves by it.
    pub(super) fn activate(&self, document: Document) {
        console::say("a machine config was applied");
        let is_first = self.node.config().is_none();
        self.adopt(document);
        // The first config: for it, the node starts now.
        if is_first {
            self.write_files();
        }
        self.serve_images();
        self.run_by_config();
    }
}

/// The config in the image, if there is one.
pub(super) fn embedded() -> Result<Option<Document>, String> {
    match fs::read(EMBEDDED) {
        Ok(bytes) => Document::parse(&bytes)
            .map(Some)
            .map_err(|problems| problems.to_string()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error.to_string()),
    }
}

/// udevd reads them again by itself.
fn write_udev_rules(document: &Document) {
    let directory = Path::new(udev_rules::DIRECTORY);
    if let Err(error) = udev_rules::write(directory, document.udev_rules()) {
        console::warn(&format!("cannot write the config's device rules: {error}"));
    }
}
