//! The machine config on its way into the node. A config is used whole or not at all.

use std::fs;
use std::io;
use std::path::Path;

use corten_config::Document;

use super::api::keeps_old;
use super::{Machine, describe};
use crate::console;
use crate::identity;
use crate::network::Wishes;
use crate::node::Stage;
use crate::services::ApiMode;

/// A config that was put into the image when it was built.
const EMBEDDED: &str = "/usr/lib/corten/config.yaml";

impl Machine {
    /// A config in the image is the operator's own; one that cannot be used must not keep the API away.
    pub(super) fn load_config(&self) {
        let bytes = match fs::read(EMBEDDED) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return,
            Err(error) => return console::warn(&format!("cannot read {EMBEDDED}: {error}")),
        };
        let usable = match Document::parse(&bytes) {
            Ok(document) => identity::check(&document)
                .map(|()| document)
                .map_err(|error| describe(&error)),
            Err(problems) => Err(problems.to_string()),
        };
        match usable {
            Ok(document) => {
                apply_sysctls(&document);
                self.node.set_config(document);
            }
            Err(why) => console::warn(&format!("{EMBEDDED} is not used: {why}")),
        }
    }

    /// Makes the config the active one and serves by it.
    pub(super) fn activate(&self, document: Document) {
        console::say("a machine config was applied");
        apply_sysctls(&document);
        if let Some(network) = self.network.borrow().as_ref() {
            network.wish(wishes(&document));
        }
        let served_strangers = self.api_mode() == ApiMode::Maintenance;
        self.node.set_config(document);
        match self.certify() {
            Ok(()) => {
                // It reads new certificates by itself, but not whom to serve.
                if served_strangers {
                    self.restart_apid();
                }
                self.node.set_stage(Stage::Running);
            }
            Err(error) => keeps_old(&error),
        }
    }
}

pub(super) fn wishes(document: &Document) -> Wishes {
    Wishes {
        hostname: document.hostname().map(str::to_owned),
        nameservers: document.nameservers(),
    }
}

fn apply_sysctls(document: &Document) {
    for (key, value) in document.sysctls() {
        if let Err(error) = corten_sys::sysctl::write(Path::new("/proc/sys"), key, value) {
            console::warn(&format!("sysctl {key} = {value}: {error}"));
        }
    }
}
