//! Gets a config for a node without one from the source that the kernel parameters name.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use corten_acquire::{Facts, Server, Source, Sources};
use corten_base::console;
use corten_base::mode::USER_DATA;
use corten_base::sysfs;
use corten_config::Document;
use corten_credentials::certificates;
use corten_resources::controller::with_causes as describe;
use corten_server::node::Node;
use tokio::time::{sleep, timeout};

use super::{ADDRESS_PATIENCE, Fatal, Machine};

/// First and longest pause between attempts. After an hour's outage of a server, its nodes recover within half a
/// minute.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// Mount point of a volume with a config.
const MOUNT_POINT: &str = "/run/config-source";
/// Name of the source of a config that comes from the kernel parameters alone.
const PARAMETERS: &str = "the kernel's parameters";

impl Machine {
    /// Queries the source that the kernel parameters name. A server is queried until it returns a usable config, a
    /// platform until it answers; a volume is searched for half a minute. Meanwhile no operator can supply a config.
    /// Without a source, the parameters themselves may hold a whole config; otherwise the node waits for an operator.
    ///
    /// # Errors
    /// The volumes' directories cannot be made.
    pub(super) async fn acquire_config(self: &Arc<Machine>) -> Result<(), Fatal> {
        let serial = sysfs::read(Path::new("/sys/class/dmi/id/product_serial"));
        let sources = match Sources::read(&self.cmdline, &serial) {
            Ok(sources) => sources,
            Err(complaint) => {
                self.refuse(&complaint);
                return Ok(());
            }
        };
        if sources.is_empty() {
            return Ok(());
        }
        // A stored config takes precedence, even if udevd must load the driver of its disk first.
        self.mount_late_volumes().await?;
        if self.node.config().is_some() {
            return Ok(());
        }
        let found = match &sources.platform {
            None => self.usable(&sources, None, PARAMETERS),
            Some(source @ Source::Volume { labels, file }) => {
                let shown = source.to_string();
                match self.look_for(labels, file, &shown).await {
                    Ok(Some(bytes)) => self.usable(&sources, Some(&bytes), &shown),
                    Ok(None) if sources.hold_some() => {
                        console::warn(&format!(
                            "there is no {shown}: the config in {PARAMETERS} must be complete"
                        ));
                        self.usable(&sources, None, PARAMETERS)
                    }
                    Ok(None) => {
                        console::warn(&format!("no config: there is no {shown}"));
                        None
                    }
                    Err(why) => {
                        self.refuse(&format!("{shown} is not used: {why}"));
                        None
                    }
                }
            }
            Some(source @ Source::Runtime) => {
                let shown = source.to_string();
                let variable = std::env::var(USER_DATA).ok();
                match corten_acquire::user_data(variable.as_deref()) {
                    Ok(Some(bytes)) => self.usable(&sources, Some(&bytes), &shown),
                    Ok(None) => None,
                    Err(why) => {
                        self.refuse(&why);
                        None
                    }
                }
            }
            Some(source @ Source::Platform(_)) => {
                let shown = source.to_string();
                match self.config_of_platform().await {
                    Some(bytes) => self.usable(&sources, Some(&bytes), &shown),
                    None if sources.hold_some() => self.usable(&sources, None, PARAMETERS),
                    None => {
                        console::warn(&format!(
                            "no config: {shown} has no user data for this machine"
                        ));
                        None
                    }
                }
            }
            Some(source @ Source::Url(template)) => Some(
                self.ask_server(&sources, template, &source.to_string())
                    .await,
            ),
        };
        if let Some(document) = found.filter(|document| !self.installs_by(document, PARAMETERS)) {
            self.keep(&document);
            // A failure has been reported already.
            let _ = self.start_with(document, PARAMETERS);
        }
        Ok(())
    }

    /// Reads the file; `None` if there is no such volume or file.
    async fn look_for(
        &self,
        labels: &'static [&'static str],
        file: &'static str,
        shown: &str,
    ) -> Result<Option<Vec<u8>>, String> {
        self.supervisor.up("udevd").await;
        let find = move || corten_acquire::read_volume(labels, [file], Path::new(MOUNT_POINT));
        let found = corten_acquire::look(shown, find).await?;
        Ok(found.and_then(|[bytes]| bytes))
    }

    /// Queries the server without end, and reports the result of each attempt.
    async fn ask_server(&self, sources: &Sources, template: &str, shown: &str) -> Document {
        let _ = timeout(ADDRESS_PATIENCE, self.network.reachable()).await;
        let mut server = Server::new(template, sources.oauth.clone());
        let mut pause = FIRST_PAUSE;
        loop {
            console::say(&format!("asking {shown} for the machine config"));
            match server.ask(|| self.facts()).await {
                Ok(bytes) => {
                    if let Some(document) = self.usable(sources, Some(&bytes), shown) {
                        return document;
                    }
                }
                Err(why) => console::warn(&format!("{shown}: {why}")),
            }
            console::say(&format!("asking again in {} s", pause.as_secs()));
            sleep(pause).await;
            pause = pause.saturating_mul(2).min(LONGEST_PAUSE);
        }
    }

    pub(super) fn facts(&self) -> Facts {
        const CODE: u8 = 0x0b;
        let meta = self.node.meta().watch();
        let code = corten_meta::Tag::new(CODE).and_then(|tag| meta.borrow().get(&tag).cloned());
        let code = String::from_utf8_lossy(&code.unwrap_or_default()).into_owned();
        let hostname = self.network.status().hostname;
        Facts::read(Path::new("/sys"), hostname, code)
    }

    fn usable(&self, sources: &Sources, platform: Option<&[u8]>, whence: &str) -> Option<Document> {
        let merged = sources
            .merge(platform)
            .map_err(|problems| problems.to_string());
        let checked = merged.and_then(|document| match certificates::check(&document) {
            Ok(()) => Ok(document),
            Err(error) => Err(describe(&error)),
        });
        match checked {
            Ok(document) => {
                console::say(&format!("using the machine config of {whence}"));
                Some(document)
            }
            Err(why) => {
                self.refuse(&format!("the config of {whence} is not used: {why}"));
                None
            }
        }
    }

    /// Stores the config, so that the next boot needs no server.
    fn keep(&self, document: &Document) {
        let kept = self
            .node
            .config_store()
            .map(|store| store.save(document.source()));
        if let Some(Err(error)) = kept {
            console::warn(&format!("cannot store the config: {error}"));
        }
    }
}
