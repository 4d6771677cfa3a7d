//! Shows the seccomp profiles of the config and writes them for pods, which name them `profiles/NAME` in
//! `seccompProfile.localhostProfile`.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use corten_base::console;
use corten_base::durable::{Access, remove_others, remove_whole, replace_now};
use corten_config::Document;
use corten_resources::Draft;
use corten_resources::controller::{
    Context, Controller, Dependency, Failure, GraphError, Input, Output, Runtime,
};
use corten_supervisor::CONTAINERD;
use corten_types::cri::SeccompProfile;
use corten_types::runtime::Service;
use tokio::sync::watch;
use tokio::time::sleep;

/// Directory of the profiles; the kubelet takes paths below its parent.
const DIRECTORY: &str = "/var/lib/kubelet/seccomp/profiles";
/// Retry interval after a failure.
const PAUSE: Duration = Duration::from_secs(10);

/// Adds the controllers of this file.
pub(super) fn add(
    runtime: &mut Runtime,
    config: &watch::Receiver<Option<Document>>,
) -> Result<(), GraphError> {
    runtime.add(Profiles {
        config: config.clone(),
    })?;
    runtime.add(Files {
        directory: DIRECTORY.into(),
    })
}

/// Shows the profiles.
#[derive(Debug, Clone)]
struct Profiles {
    config: watch::Receiver<Option<Document>>,
}

impl Controller for Profiles {
    fn name(&self) -> &'static str {
        "cri.SeccompProfileController"
    }

    fn outputs(&self) -> Vec<Output> {
        vec![Output::exclusive::<SeccompProfile>()]
    }

    async fn run(mut self, context: &mut Context) -> Result<(), Failure> {
        context.event().await;
        loop {
            let config = self.config.borrow_and_update().clone();
            let profiles = config
                .iter()
                .flat_map(|config| &config.machine.seccomp_profiles);
            context.start_outputs();
            for profile in profiles {
                let value = profile.value.as_ref().map(|value| value.json());
                let shown = SeccompProfile {
                    name: profile.name.clone(),
                    value: value.unwrap_or_default(),
                };
                context.put(Draft::new(&profile.name, shown))?;
            }
            context.remove_others::<SeccompProfile>()?;
            if self.config.changed().await.is_err() {
                return Ok(());
            }
        }
    }
}

/// Writes the profiles.
#[derive(Debug, Clone)]
struct Files {
    directory: PathBuf,
}

impl Controller for Files {
    fn name(&self) -> &'static str {
        "cri.SeccompProfileFileController"
    }

    fn inputs(&self) -> Vec<Input> {
        vec![
            Input::of::<SeccompProfile>(Dependency::Weak),
            Input::of::<Service>(Dependency::Weak).with_id(CONTAINERD),
        ]
    }

    fn outputs(&self) -> Vec<Output> {
        vec![]
    }

    async fn run(self, context: &mut Context) -> Result<(), Failure> {
        let mut written: Option<Vec<(String, String)>> = None;
        let mut has_failed = false;
        loop {
            tokio::select! {
                () = context.event() => {}
                () = sleep(PAUSE), if has_failed => {}
            }
            // Until containerd has started, the kubelet's directory is the image's and read-only.
            let runtime = context.get::<Service>(CONTAINERD)?;
            if !runtime.is_some_and(|service| service.healthy) {
                continue;
            }
            let profiles = context.list::<SeccompProfile>()?;
            let text = |profile: &SeccompProfile| (profile.name.clone(), profile.value.to_string());
            let profiles: Vec<_> = profiles.iter().map(|profile| text(profile)).collect();
            if written.as_ref() == Some(&profiles) {
                continue;
            }
            let done = write(&self.directory, &profiles);
            if let (Err(error), false) = (&done, has_failed) {
                let directory = self.directory.display();
                console::warn(&format!("seccomp profiles: {directory}: {error}"));
            }
            has_failed = done.is_err();
            written = done.is_ok().then_some(profiles);
        }
    }
}

/// Makes the directory contain exactly these profiles, given by name and text.
fn write(directory: &Path, profiles: &[(String, String)]) -> io::Result<()> {
    if profiles.is_empty() && !fs::exists(directory)? {
        return Ok(());
    }
    fs::create_dir_all(directory)?;
    for (name, text) in profiles {
        replace_now(&directory.join(name), text, Access::ALL)?;
    }
    let is_wanted = |found: &std::ffi::OsStr| profiles.iter().any(|(name, _)| found == &**name);
    remove_others(directory, is_wanted, remove_whole)
}

#[cfg(test)]
mod tests {
    use corten_base::sample::{self, until};
    use corten_resources::{Spec as _, Store};

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(60);

    fn config(profiles: &str) -> Document {
        sample::config(&format!("seccompProfiles: {profiles}"), "")
    }

    /// Waits until a file has this text; `None` while it is absent.
    async fn until_text(path: &Path, text: Option<&str>) {
        let wait = async {
            while fs::read_to_string(path).ok().as_deref() != text {
                sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(PATIENCE, wait).await.unwrap();
    }

    #[tokio::test]
    async fn profiles_are_shown_and_written_once_containerd_runs_and_removed_with_the_config() {
        let directory = tempfile::tempdir().unwrap();
        let profiles = directory.path().join("seccomp/profiles");
        let store = Store::new();
        let both =
            "[{name: a.json, value: {defaultAction: SCMP_ACT_LOG}}, {name: b, value: {a: 1}}]";
        let sender = watch::Sender::new(Some(config(both)));
        let mut runtime = Runtime::new(store.clone());
        let config_of_test = sender.subscribe();
        runtime
            .add(Profiles {
                config: config_of_test,
            })
            .unwrap();
        runtime
            .add(Files {
                directory: profiles.clone(),
            })
            .unwrap();
        store.register::<Service>().unwrap();
        tokio::spawn(runtime.run(|notice| panic!("{notice}")));
        let shown = until::<SeccompProfile>(&store, "a.json", |it| it.is_some()).await;
        let message = shown.unwrap().message();
        assert_eq!(message.name, "a.json");
        assert!(message.value.unwrap().fields.contains_key("defaultAction"));
        assert!(!profiles.exists());

        let service = Service {
            running: true,
            healthy: true,
            unknown: false,
        };
        store.put(Draft::new(CONTAINERD, service), "").unwrap();
        let log = Some("{\"defaultAction\":\"SCMP_ACT_LOG\"}");
        until_text(&profiles.join("a.json"), log).await;
        until_text(&profiles.join("b"), Some("{\"a\":1}")).await;
        fs::create_dir_all(profiles.join("foreign/deep")).unwrap();
        let changed = config("[{name: a.json, value: {defaultAction: SCMP_ACT_ERRNO}}]");
        sender.send_replace(Some(changed));
        let errno = Some("{\"defaultAction\":\"SCMP_ACT_ERRNO\"}");
        until_text(&profiles.join("a.json"), errno).await;
        until_text(&profiles.join("b"), None).await;
        sender.send_replace(Some(sample::config("", "")));
        until::<SeccompProfile>(&store, "a.json", |it| it.is_none()).await;
        until_text(&profiles.join("a.json"), None).await;
        let left = || fs::read_dir(&profiles).unwrap().count();
        while left() > 0 {
            sleep(Duration::from_millis(5)).await;
        }
    }

    #[test]
    fn node_without_profiles_makes_no_directory() {
        let directory = tempfile::tempdir().unwrap();
        let profiles = directory.path().join("profiles");
        write(&profiles, &[]).unwrap();
        assert!(!profiles.exists());
    }
}
