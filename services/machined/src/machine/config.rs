//! Loads and activates the machine config. A config takes effect as a whole or not at all.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;

use corten_base::console;
use corten_config::Document;
use corten_controllers::logging;
use corten_credentials::certificates;
use corten_persistence::config_store::ConfigStore;
use corten_resources::controller::with_causes as describe;
use corten_server::node::{Apply, Node as _};
use corten_supervisor::trustd;
use corten_volumes::STATE;
use tokio::task::block_in_place;

use super::{Machine, lock};
use crate::machine_files;
use crate::udev_rules;

/// Path of the config that was built into the image.
const EMBEDDED: &str = "/usr/lib/corten/config.yaml";
/// Directory of the config's files.
const VAR: &str = "/var";

impl Machine {
    /// Loads the stored config, or else the one in the image.
    pub(super) fn load_config(&self) {
        self.direct_logs();
        if let Some(store) = ConfigStore::on_volume(Path::new(STATE.target)) {
            let loaded = store.load();
            self.node.keep_configs(store);
            for complaint in &loaded.complaints {
                self.refuse(complaint);
            }
            if let Some(document) = loaded.document {
                // The last good config stays: an older version, to which the node may return, can read it.
                match loaded.complaints.into_iter().next() {
                    Some(complaint) => *lock(&self.fallback) = Some(complaint),
                    None => self.remember(&document),
                }
                return self.judge_kept(self.start_with(document, STATE.target));
            }
            // The newest complaint is enough.
            if let Some(complaint) = loaded.complaints.into_iter().next() {
                self.judge_kept(Err(complaint));
            }
        }
        self.load_embedded();
    }

    /// Records why a stored config is unusable: a node with a stored config has an owner.
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

    /// Makes the document the node's config, without a change of the callers that the API serves.
    fn adopt(&self, document: Document) {
        write_udev_rules(&document);
        self.write_registries(Some(&document));
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

    /// Writes the files of the config. Files of a later config are written at the next boot.
    pub(super) fn write_files(&self) {
        let Some(config) = self.node.config() else {
            return;
        };
        for complaint in machine_files::write(Path::new(VAR), &config.machine.files) {
            console::warn(&complaint);
        }
    }

    /// Tells syslogd the destinations of logs, by the current config and volumes.
    fn direct_logs(&self) {
        if let Err(error) = logging::direct(self.node.config().as_ref(), &self.cmdline) {
            console::warn(&format!("logs stay in memory only: {error}"));
        }
    }

    /// Loads the config in the image. It belongs to the operator, so an unusable one locks the node.
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

    /// Applies an accepted config in the requested mode.
    pub(super) fn take_over(self: &Arc<Machine>, document: Document, how: Apply) {
        match how {
            Apply::Now => {
                self.remember(&document);
                *lock(&self.fallback) = None;
                self.activate(document);
            }
            Apply::Staged => console::say("a machine config was stored for the next boot"),
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

    /// Keeps a copy of the config in case the next one turns out to be unusable.
    fn remember(&self, document: &Document) {
        let Some(store) = self.node.config_store() else {
            return;
        };
        if let Err(error) = store.remember(document.source()) {
            console::warn(&format!(
                "cannot store the config as the last good one: {error}"
            ));
        }
    }

    /// Makes the config the active one, and serves by it.
    pub(super) fn activate(&self, document: Document) {
        console::say("a machine config was applied");
        let is_first = self.node.config().is_none();
        self.adopt(document);
        // The node starts its services for the first config.
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

/// Writes the udev rules; udevd reloads them by itself.
fn write_udev_rules(document: &Document) {
    let directory = Path::new(udev_rules::DIRECTORY);
    if let Err(error) = udev_rules::write(directory, document.udev_rules()) {
        console::warn(&format!("cannot write the config's device rules: {error}"));
    }
}
