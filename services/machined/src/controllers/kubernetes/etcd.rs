//! etcd on a control plane node: its certificates, and when it starts.

use std::fs;
use std::path::Path;
use std::time::SystemTime;

use corten_config::Document;
use corten_kubernetes::certificates::etcd_authority;
use corten_kubernetes::etcd::{Certificates, DATA, SNAPSHOT, Start, args, restore_args};
use corten_kubernetes::pods::HOST_SECRETS;
use corten_kubernetes::{ControlPlane, ETCD_UID, Facts, Settings};
use corten_resources::controller::{Context, Controller, Dependency, Failure, Input, Output};
use tokio::sync::watch;

use super::{Complaints, facts, next, time_is_known};
use crate::certificates::write_files;
use crate::console;
use crate::describe;
use crate::node::{Begin, ServiceState, ServiceView};
use crate::resources::clock::TimeStatus;
use crate::resources::kubernetes::Nodename;
use crate::resources::network::{HostnameStatus, NodeAddress};
use crate::services::kubernetes::{ETCD, ETCD_RESTORE, etcd_service, restore_service};
use crate::supervisor::Supervisor;

#[derive(Debug, Clone)]
pub(super) struct Etcd {
    pub(super) config: watch::Receiver<Option<Document>>,
    /// With what somebody wants this node to be the first member of a new cluster.
    pub(super) begin: watch::Receiver<Option<Begin>>,
    pub(super) supervisor: Option<Supervisor>,
}

/// What a member's certificates are made for.
#[derive(Debug, PartialEq)]
struct MadeFor {
    facts: Facts,
    authority: String,
}

impl Controller for Etcd {
    fn name(&self) -> &'static str {
        "etcd.ServiceController"
    }

    fn inputs(&self) -> Vec<Input> {
        vec![
            Input::of::<Nodename>(Dependency::Weak).with_id(Nodename::ID),
            Input::of::<HostnameStatus>(Dependency::Weak).with_id(HostnameStatus::ID),
            Input::of::<NodeAddress>(Dependency::Weak),
            Input::of::<TimeStatus>(Dependency::Weak).with_id(TimeStatus::ID),
        ]
    }

    fn outputs(&self) -> Vec<Output> {
        vec![]
    }

    async fn run(mut self, context: &mut Context) -> Result<(), Failure> {
        let mut made_for: Option<MadeFor> = None;
        let mut complaints = Complaints::default();
        let mut is_told = false;
        loop {
            let mut begin = self.begin.clone();
            let config = tokio::select! {
                config = next(&mut self.config, context) => config,
                Ok(()) = begin.changed() => self.config.borrow().clone(),
            };
            let begins = *self.begin.borrow_and_update();
            let Some(config) = config.filter(|config| config.machine.kind.is_control_plane())
            else {
                continue;
            };
            let Ok(settings) = Settings::of(&config) else {
                continue;
            };
            let Some(facts) = facts(context, &settings)?.filter(|_| config.cluster.etcd.is_some())
            else {
                continue;
            };
            if !time_is_known(context)? {
                continue;
            }
            match prepare(&config, facts.clone(), &mut made_for) {
                Ok(()) => complaints.none(),
                Err(why) => {
                    complaints.say(ETCD, &why);
                    continue;
                }
            }
            let image = match ControlPlane::of(&config) {
                Ok(own) => own.images.etcd,
                Err(missing) => {
                    complaints.say(ETCD, &missing.to_string());
                    continue;
                }
            };
            let (Some(supervisor), Some(address)) = (&self.supervisor, facts.addresses.first())
            else {
                continue;
            };
            let start = match (has_data(Path::new(DATA)), begins) {
                (true, _) => Start::Resume,
                (false, Some(Begin::Empty)) => Start::New,
                (false, Some(Begin::Snapshot { skip_hash_check })) => {
                    let args = restore_args(&facts, *address, skip_hash_check);
                    if let Err(why) = restore(supervisor, &image, args).await {
                        complaints.say(ETCD, &why);
                        continue;
                    }
                    Start::Resume
                }
                (false, None) => {
                    if !is_told {
                        console::say(
                            "etcd waits: this node has no data of it; for a new cluster, call \
                             `cortenctl bootstrap` on one control plane node",
                        );
                        is_told = true;
                    }
                    continue;
                }
            };
            supervisor.declare(etcd_service(&image, args(&facts, *address, &start)));
        }
    }
}

/// Makes the data of a new member out of the snapshot, which is removed then: no later bootstrap shall take it by
/// accident.
async fn restore(supervisor: &Supervisor, image: &str, args: Vec<String>) -> Result<(), String> {
    supervisor.declare(restore_service(image, args));
    let mut views = supervisor.watch();
    let ended = |views: &Vec<ServiceView>| {
        let view = views.iter().find(|view| view.id == ETCD_RESTORE);
        view.is_some_and(|view| matches!(view.state, ServiceState::Finished | ServiceState::Failed))
    };
    // The supervisor is gone only when machined ends.
    let _ = views.wait_for(ended).await;
    supervisor.forget(ETCD_RESTORE);
    if !has_data(Path::new(DATA)) {
        return Err(format!(
            "the snapshot cannot be restored: `cortenctl logs {ETCD_RESTORE}` says why; send another one, and call \
             bootstrap again"
        ));
    }
    fs::remove_file(SNAPSHOT).map_err(|error| format!("cannot remove {SNAPSHOT}: {error}"))
}

/// Whether this node was a member before, and still has what it knew.
fn has_data(directory: &Path) -> bool {
    fs::exists(directory.join("member")).unwrap_or(true)
}

/// Makes the certificates and writes them, unless those there are for the same; a running etcd reads them at every new
/// connection.
fn prepare(config: &Document, facts: Facts, made_for: &mut Option<MadeFor>) -> Result<(), String> {
    let ca = etcd_authority(config).map_err(|error| describe(&error))?;
    let authority = ca.pem().crt.clone();
    let wanted = MadeFor { facts, authority };
    if made_for.as_ref() == Some(&wanted) {
        return Ok(());
    }
    let certificates = Certificates::issue(&ca, &wanted.facts, SystemTime::now())
        .map_err(|error| describe(&error))?;
    let directory = Path::new(HOST_SECRETS).join(ETCD);
    let files = [
        ("ca.crt", wanted.authority.as_str()),
        ("server.key", &certificates.server.key),
        ("server.crt", &certificates.server.crt),
        ("peer.key", &certificates.peer.key),
        ("peer.crt", &certificates.peer.crt),
        ("admin.key", &certificates.admin.key),
        ("admin.crt", &certificates.admin.crt),
    ];
    let files = files.map(|(name, text)| (name, Some(text)));
    fs::create_dir_all(&directory)
        .and_then(|()| write_files(&directory, ETCD_UID, &files))
        .map_err(|error| format!("{}: {error}", directory.display()))?;
    *made_for = Some(wanted);
    Ok(())
}
