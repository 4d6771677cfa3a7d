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
use corten_platform::holds_no_config;
use corten_resources::controller::with_causes as describe;
use corten_server::node::{Node, Stage};
use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};

use super::platform::Answer;
use super::{ADDRESS_PATIENCE, Fatal, Machine, lock};

/// First and longest pause between attempts. After an hour's outage of a server, its nodes recover within half a
/// minute.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// Time for a platform's answer on a node with `corten.recover=maintenance`.
const RECOVERY_PATIENCE: Duration = Duration::from_secs(60);
/// Mount point of a volume with a config.
const MOUNT_POINT: &str = "/run/config-source";
/// Name of the source of a config that comes from the kernel parameters alone.
const PARAMETERS: &str = "the kernel's parameters";
/// What to do about them.
const CORRECT_PARAMETERS: &str = "correct the kernel's parameters and restart the node";

impl Machine {
    /// Queries the source that the kernel parameters name. A server is queried until it returns a usable config, a
    /// platform until it answers; a volume is searched for half a minute. Meanwhile no operator can supply a config.
    /// Without a source, the parameters themselves may hold a whole config; otherwise the node waits for an operator.
    /// A config that is there but cannot be used has an owner: it locks the node until it is corrected.
    ///
    /// # Errors
    /// The volumes' directories cannot be made.
    pub(super) async fn acquire_config(self: &Arc<Machine>) -> Result<(), Fatal> {
        let serial = sysfs::read(Path::new("/sys/class/dmi/id/product_serial"));
        let sources = match Sources::read(&self.cmdline, &serial) {
            Ok(sources) => sources,
            Err(complaint) => {
                self.doubt(&format!("{complaint}; {CORRECT_PARAMETERS}"));
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
        if let Some(source @ Source::Url(template)) = &sources.platform {
            let shown = source.to_string();
            let document = self.ask_server(&sources, template, &shown).await;
            self.take_up(document);
            return Ok(());
        }
        let answer = self.ask_source(&sources).await;
        if let Some(told) = absence(&sources, &answer) {
            console::warn(&told);
        }
        match choose(&sources, &answer) {
            Ok(None) => {}
            Ok(Some((document, whence))) => {
                say_used(&whence);
                self.take_up(document);
            }
            Err(why) => {
                self.doubt(&why);
                if !self.recovers() {
                    tokio::spawn(self.clone().await_correction(sources, answer, why));
                }
            }
        }
        Ok(())
    }

    /// Uses the config for this boot and keeps it, or installs the node by it. Returns whether it is in effect.
    fn take_up(self: &Arc<Machine>, document: Document) -> bool {
        if self.installs_by(&document, PARAMETERS) {
            return false;
        }
        self.keep(&document);
        // A failure has been reported already.
        self.start_with(document, PARAMETERS).is_ok()
    }

    /// Reports a config that is there but refused. It belongs to an operator, so the node must not enter maintenance.
    fn doubt(&self, why: &str) {
        self.refuse(why);
        *lock(&self.unusable) = Some(why.to_owned());
    }

    /// Queries the locked node's source again until it has a usable config: a platform at each new answer, a volume
    /// after each pause. `known` is the refused answer, and `told` the last reported reason.
    async fn await_correction(
        self: Arc<Machine>,
        sources: Sources,
        mut known: Answer,
        mut told: String,
    ) {
        // The boot locks the node first.
        let is_decided = |stage: &Stage| *stage != Stage::Booting;
        if self.node.stages().wait_for(is_decided).await.is_err() {
            return;
        }
        while let Some(answer) = self.ask_source_again(&sources, &known).await {
            if self.node.stage() != Stage::Locked || self.node.config().is_some() {
                return;
            }
            // If the owner's installation fails, the answer is still new.
            if self.node.is_installing() {
                sleep(LONGEST_PAUSE).await;
                continue;
            }
            match choose_again(&sources, &answer) {
                Ok((document, whence)) => {
                    say_used(&whence);
                    if self.take_up(document) {
                        self.run_by_config();
                    }
                    return;
                }
                Err(why) if why != told => {
                    self.doubt(&why);
                    self.lock_node(&why);
                    told = why;
                }
                Err(_) => {}
            }
            known = answer;
        }
    }

    /// Queries the source of the machine's own parameters, volumes or platform.
    async fn ask_source(&self, sources: &Sources) -> Answer {
        match &sources.platform {
            Some(source @ Source::Volume { labels, file }) => {
                self.look_for(labels, file, &source.to_string()).await
            }
            Some(Source::Runtime) => {
                corten_acquire::user_data(std::env::var(USER_DATA).ok().as_deref())
            }
            // An operator at the machine who asks for maintenance does not wait for a platform that never answers.
            Some(Source::Platform(_)) if self.recovers() => {
                let answer = timeout(RECOVERY_PATIENCE, self.platform.config(None)).await;
                answer.unwrap_or_else(|_| Err("it does not answer".to_owned()))
            }
            Some(Source::Platform(_)) => self.platform.config(None).await,
            Some(Source::Url(_)) | None => Ok(None),
        }
    }

    /// Waits until the source may answer something else; `None` for a source that does not change while the node runs.
    async fn ask_source_again(&self, sources: &Sources, known: &Answer) -> Option<Answer> {
        match sources.platform {
            Some(Source::Volume { labels, file }) => {
                sleep(LONGEST_PAUSE).await;
                let find =
                    move || corten_acquire::read_volume(labels, [file], Path::new(MOUNT_POINT));
                let found = spawn_blocking(find).await;
                let found = found.unwrap_or_else(|error| Err(error.to_string()));
                Some(found.map(|found| found.and_then(|[bytes]| bytes)))
            }
            Some(Source::Platform(_)) => Some(self.platform.config(Some(known)).await),
            Some(Source::Runtime | Source::Url(_)) | None => None,
        }
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
                Ok(bytes) => match checked(sources, Some(&bytes), shown) {
                    Ok(document) => {
                        say_used(shown);
                        return document;
                    }
                    Err(why) => self.refuse(&why),
                },
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

fn say_used(whence: &str) {
    console::say(&format!("using the machine config of {whence}"));
}

/// The source's config without one that cannot be a machine config, such as a hypervisor's own for cloud-init.
fn usable(answer: &Answer) -> Option<&[u8]> {
    let bytes = answer.as_ref().ok()?.as_deref();
    bytes.filter(|bytes| !holds_no_config(bytes))
}

/// Message about a source that has no config.
fn absence(sources: &Sources, answer: &Answer) -> Option<String> {
    let source = sources.platform.as_ref()?;
    let lacks = match (source, answer) {
        (Source::Runtime, _) | (_, Err(_)) => return None,
        (_, Ok(_)) if usable(answer).is_some() => return None,
        (Source::Platform(_), Ok(_)) => format!("{source} has no user data for this machine"),
        (_, Ok(Some(_))) => format!("{source} is empty or for cloud-init"),
        (_, Ok(None)) => format!("there is no {source}"),
    };
    Some(if sources.hold_some() {
        format!("{lacks}: the config in {PARAMETERS} must be complete")
    } else {
        format!("no config: {lacks}")
    })
}

/// The config by the source's answer and the parameters, with its origin; `None` if neither has one.
///
/// # Errors
/// One of them has, or may have, a config that cannot be used. The text says why and what to do.
fn choose(sources: &Sources, answer: &Answer) -> Result<Option<(Document, String)>, String> {
    let source = sources.platform.as_ref();
    let correct = match source {
        Some(Source::Platform(_)) => {
            "correct the user data: the node uses the platform's next answer by itself"
        }
        Some(Source::Volume { .. }) => "correct the file: the node reads it again by itself",
        Some(Source::Runtime) => "correct the variable and start the container again",
        Some(Source::Url(_)) | None => CORRECT_PARAMETERS,
    };
    let shown = source.map_or(PARAMETERS.to_owned(), ToString::to_string);
    if let Err(why) = answer {
        return Err(format!("{shown} is not used: {why}; {correct}"));
    }
    let bytes = usable(answer);
    let (whence, correct) = match bytes {
        Some(_) => (shown, correct),
        None if sources.hold_machine_config() => (PARAMETERS.to_owned(), CORRECT_PARAMETERS),
        None => return Ok(None),
    };
    match checked(sources, bytes, &whence) {
        Ok(document) => Ok(Some((document, whence))),
        Err(why) => Err(format!("{why}; {correct}")),
    }
}

/// [`choose`] for a source that had an unusable config before. A node with an owner in doubt stays closed until it
/// restarts.
fn choose_again(sources: &Sources, answer: &Answer) -> Result<(Document, String), String> {
    choose(sources, answer)?.ok_or_else(|| {
        "the machine config that could not be used is gone from its source; restart the node to go on without it"
            .to_owned()
    })
}

/// The config merged with that of the parameters.
fn checked(sources: &Sources, platform: Option<&[u8]>, whence: &str) -> Result<Document, String> {
    let merged = sources
        .merge(platform)
        .map_err(|problems| problems.to_string());
    let checked = merged.and_then(|document| match certificates::check(&document) {
        Ok(()) => Ok(document),
        Err(error) => Err(describe(&error)),
    });
    checked.map_err(|why| format!("the config of {whence} is not used: {why}"))
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use corten_pki::{Algorithm, Ca};

    use super::super::standing::{Findings, Standing, State, standing};
    use super::*;

    const VOLUME: Source = Source::Volume {
        labels: corten_acquire::SEED_LABELS,
        file: "user-data",
    };
    const PLATFORM: Source = Source::Platform("aws");

    fn of(platform: Option<Source>, inline: Option<&str>) -> Sources {
        Sources {
            platform,
            inline: inline.map(|text| text.as_bytes().to_vec()),
            ..Sources::default()
        }
    }

    #[test]
    fn refused_config_of_a_source_locks_instead_of_opening_maintenance() {
        let typo = b"machine: {tpye: worker}".to_vec();
        let broken = || Err("user-data: is broken gzip".to_owned());
        for (sources, answer, expected) in [
            (
                of(Some(PLATFORM), None),
                Ok(Some(typo.clone())),
                "correct the user data",
            ),
            (of(Some(PLATFORM), None), broken(), "correct the user data"),
            (
                of(Some(VOLUME), None),
                Ok(Some(typo.clone())),
                "correct the file",
            ),
            (of(Some(VOLUME), None), broken(), "correct the file"),
            (
                of(Some(Source::Runtime), None),
                broken(),
                "start the container again",
            ),
            (
                of(Some(Source::Runtime), None),
                Ok(Some(typo)),
                "start the container again",
            ),
            (
                of(None, Some("machine: {tpye: 1}")),
                Ok(None),
                CORRECT_PARAMETERS,
            ),
            // A part alone is no config, but somebody's.
            (
                of(Some(PLATFORM), Some("machine: {}")),
                Ok(None),
                CORRECT_PARAMETERS,
            ),
        ] {
            let why = choose(&sources, &answer).unwrap_err();
            assert!(
                why.contains(" is not used: ") && why.contains(expected),
                "{why}"
            );
            let found = Findings {
                has_config: false,
                unusable: Some(why.clone()),
                has_owner: false,
                recover: false,
                state: State::NoDisk,
            };
            assert_eq!(standing(&found), Standing::Locked(why));
            let recover = Findings {
                recover: true,
                ..found
            };
            assert_eq!(standing(&recover), Standing::Free);
        }
    }

    #[test]
    fn source_without_a_machine_config_leaves_the_node_free() {
        let cloud_init = b"#cloud-config\nhostname: n\n".to_vec();
        for source in [VOLUME, PLATFORM, Source::Runtime] {
            for bytes in [None, Some(b" \n".to_vec()), Some(cloud_init.clone())] {
                let answer = Ok(bytes);
                let documents = "apiVersion: v1alpha1\nkind: HostnameConfig\nhostname: n\n";
                for inline in [None, Some(documents)] {
                    let sources = of(Some(source.clone()), inline);
                    assert_eq!(choose(&sources, &answer), Ok(None));
                }
            }
        }
        let answer = Ok(Some(cloud_init));
        let told = absence(&of(Some(VOLUME), None), &answer).unwrap();
        assert!(
            told.ends_with("CIDATA is empty or for cloud-init"),
            "{told}"
        );
    }

    #[test]
    fn corrected_config_is_used_and_one_that_is_gone_frees_no_locked_node() {
        let ca = Ca::generate(Algorithm::Ed25519, "talos", "", SystemTime::now()).unwrap();
        let crt = STANDARD.encode(&ca.pem().crt);
        let whole = format!(
            "version: v1alpha1\nmachine: {{type: worker, token: a.b, ca: {{crt: {crt}}}}}\n\
             cluster: {{controlPlane: {{endpoint: 'https://10.0.0.1:6443'}}}}\n"
        )
        .into_bytes();
        let sources = of(Some(PLATFORM), None);
        let (_, whence) = choose_again(&sources, &Ok(Some(whole))).unwrap();
        assert_eq!(whence, "the platform aws");
        let gone = choose_again(&sources, &Ok(None)).unwrap_err();
        assert!(gone.contains("restart the node"), "{gone}");
    }
}
