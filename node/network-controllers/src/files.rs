//! Writes files of `/etc`, which are symbolic links to a writable directory.

use std::sync::Arc;

use corten_base::durable::{Access, rewrite_now};
use corten_network::Setup;
use corten_resources::Draft;
use corten_resources::controller::{Context, Controller, Dependency, Failure, Input, Output};
use corten_types::files::{EtcFileSpec, EtcFileStatus};
use tokio::sync::watch;

/// Writes the files by atomic replacement.
#[derive(Debug, Clone)]
pub(super) struct EtcFiles {
    pub(super) setup: watch::Receiver<Option<Arc<Setup>>>,
}

impl Controller for EtcFiles {
    fn name(&self) -> &'static str {
        "files.EtcFileController"
    }

    fn inputs(&self) -> Vec<Input> {
        vec![Input::of::<EtcFileSpec>(Dependency::Weak)]
    }

    fn outputs(&self) -> Vec<Output> {
        vec![Output::exclusive::<EtcFileStatus>()]
    }

    async fn run(mut self, context: &mut Context) -> Result<(), Failure> {
        let Some(setup) = Setup::wait(&mut self.setup).await else {
            return Ok(());
        };
        loop {
            context.event().await;
            for spec in context.list::<EtcFileSpec>()? {
                let spec_version = spec.metadata().version.to_string();
                let written = context.get::<EtcFileStatus>(spec.id())?;
                if written.is_some_and(|written| written.spec_version == spec_version) {
                    continue;
                }
                let path = setup.names.join(spec.id());
                let access = Access {
                    mode: spec.mode,
                    ..Access::ALL
                };
                rewrite_now(&path, &spec.contents, access)
                    .map_err(|error| format!("cannot write {}: {error}", path.display()))?;
                context.put(Draft::new(spec.id(), EtcFileStatus { spec_version }))?;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use corten_base::cmdline::Cmdline;
    use corten_base::sample;
    use corten_resources::controller::Runtime;
    use corten_resources::{Sensitivity, Spec as _, Store};
    use corten_types::network::HostnameStatus;
    use corten_types::network_names::NetworkStatus;

    use super::super::{etc_files, status};
    use super::*;

    #[tokio::test]
    async fn etc_files_follow_the_host_name() {
        let names = tempfile::tempdir().unwrap();
        let setup = Setup {
            cmdline: Cmdline::default(),
            default_hostname: "n0".to_owned(),
            names: names.path().to_owned(),
        };
        let setup = watch::Sender::new(Some(Arc::new(setup)));
        let store = Store::new();
        let mut runtime = Runtime::new(store.clone());
        runtime.add(etc_files::EtcFiles).unwrap();
        runtime.add(status::Statuses).unwrap();
        let files = EtcFiles {
            setup: setup.subscribe(),
        };
        runtime.add(files).unwrap();
        tokio::spawn(runtime.run(|notice| panic!("{notice}")));
        let id = NetworkStatus::ID;
        let status = store.get_as::<NetworkStatus>(id);
        assert!(status.is_none_or(|status| !status.etc_files_ready));
        let name = |hostname: &str| {
            let status = HostnameStatus {
                hostname: hostname.to_owned(),
                domainname: String::new(),
            };
            store
                .put(Draft::new(HostnameStatus::ID, status), "")
                .unwrap();
        };
        name("n1");
        sample::until::<NetworkStatus>(&store, id, |status| {
            status.is_some_and(|status| status.etc_files_ready)
        })
        .await;
        let text = |file: &str| fs::read_to_string(names.path().join(file)).unwrap();
        assert_eq!(text("hostname"), "n1\n");
        assert!(text("hosts").contains(" n1\n") && text("resolv.conf").is_empty());
        name("n2");
        let is_renamed = |_: Option<&EtcFileStatus>| text("hostname") == "n2\n";
        sample::until(&store, "hostname", is_renamed).await;
        assert_eq!(EtcFileSpec::DEFINITION.sensitivity, Sensitivity::Sensitive);
    }
}
