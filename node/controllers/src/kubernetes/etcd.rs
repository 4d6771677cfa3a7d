//! Runs etcd on a control plane node: issues its certificates and decides when it starts.

use std::fs;
use std::io;
use std::net::IpAddr;
use std::path::Path;
use std::time::{Duration, SystemTime};

use corten_config::Document;
use corten_credentials::certificates::write_files;
use corten_credentials::etcd::connect;
use corten_etcd::{SnapshotError, verify_snapshot};
use corten_kubernetes::certificates::etcd_ca;
use corten_kubernetes::etcd::{
    Begin, Certificates, DATA, SNAPSHOT, Start, address, args, has_data, listen_address,
    restore_args,
};
use corten_kubernetes::pods::HOST_SECRETS;
use corten_kubernetes::{ControlPlane, ETCD_UID, Facts, Settings};
use corten_resources::controller::with_causes as describe;
use corten_resources::controller::{Context, Controller, Dependency, Failure, Input, Output};
use corten_services::kubernetes::{ETCD, ETCD_RESTORE, etcd_service, restore_service};
use corten_services::supervisor::Supervisor;
use corten_services::view::{ServiceState, ServiceView};
use corten_types::clock::TimeStatus;
use corten_types::etcd::{EtcdSpec, PkiStatus};
use corten_types::kubernetes::Nodename;
use corten_types::network::{HostnameStatus, NodeAddress};
use corten_types::secrets::{Endpoint, PemPair};
use corten_types::secrets_kubernetes::EtcdCerts;
use sha2::{Digest as _, Sha256};
use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::sleep;

use super::join::join;
use super::prism::known;
use super::settings::{args as shown_args, show};
use super::{Complaints, facts, time_is_known};

/// Retry interval after a failure.
const PAUSE: Duration = Duration::from_secs(3);

#[derive(Debug, Clone)]
pub(super) struct Etcd {
    pub(super) config: watch::Receiver<Option<Document>>,
    /// The order to make this node the first member of a new cluster, with its parameters.
    pub(super) begin: watch::Receiver<Option<Begin>>,
    pub(super) supervisor: Option<Supervisor>,
}

/// Inputs of a member's certificates.
#[derive(Debug, PartialEq)]
struct MadeFor {
    facts: Facts,
    ca: String,
}

/// Results of this boot.
#[derive(Debug, Default)]
struct Made {
    certificates: Option<(MadeFor, Certificates)>,
    /// Arguments with which the member was started; other arguments would restart it.
    start: Option<Start>,
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
            Input::of::<Endpoint>(Dependency::Weak).with_id(Endpoint::CLUSTER),
        ]
    }

    fn outputs(&self) -> Vec<Output> {
        vec![
            Output::exclusive::<EtcdSpec>(),
            Output::exclusive::<EtcdCerts>(),
            Output::exclusive::<PkiStatus>(),
        ]
    }

    async fn run(mut self, context: &mut Context) -> Result<(), Failure> {
        let mut made = Made::default();
        let mut complaints = Complaints::default();
        loop {
            let is_waiting = complaints.is_some();
            tokio::select! {
                () = context.event() => {}
                Ok(()) = self.config.changed() => {}
                Ok(()) = self.begin.changed() => {}
                () = sleep(PAUSE), if is_waiting => {}
            }
            let config = self.config.borrow_and_update().clone();
            let begins = *self.begin.borrow_and_update();
            let is_member = |config: &Document| {
                config.machine.kind.is_control_plane() && config.cluster.etcd.is_some()
            };
            let Some(config) = config.filter(is_member) else {
                continue;
            };
            let Ok(settings) = Settings::of(&config) else {
                continue;
            };
            let (Some(facts), true) = (facts(context, &settings)?, time_is_known(context)?) else {
                continue;
            };
            let others = known(context)?;
            context.start_outputs();
            show(context, EtcdSpec::ID, spec(&config, &facts))?;
            if let Err(why) = prepare(&config, facts.clone(), &mut made.certificates) {
                complaints.say(ETCD, &why);
                continue;
            }
            show_certificates(context, &made)?;
            match self.start(&config, facts, begins, others, &mut made).await {
                Ok(()) => complaints.none(),
                Err(why) => complaints.say(ETCD, &why),
            }
        }
    }
}

impl Etcd {
    /// Starts etcd as required; the error gives the obstacle.
    async fn start(
        &self,
        config: &Document,
        facts: Facts,
        begins: Option<Begin>,
        mut others: Vec<IpAddr>,
        made: &mut Made,
    ) -> Result<(), String> {
        let own = ControlPlane::of(config).map_err(|missing| missing.to_string())?;
        let (image, own_args) = (own.images.etcd, own.etcd_args);
        let Some(supervisor) = &self.supervisor else {
            return Ok(());
        };
        let address = address(config, &facts).ok_or(
            "the node has no address of cluster.etcd.advertisedSubnets: give it one, or change that field",
        )?;
        others.retain(|other| !facts.addresses.contains(other));
        let secrets = Path::new(HOST_SECRETS).join(ETCD);
        let data = Path::new(DATA);
        let start = match (&made.start, begins) {
            (Some(start), _) => start.clone(),
            (None, _) if has_data(data) => Start::Resume,
            (None, Some(begin)) => {
                none_answers(&secrets, &others).await?;
                empty(data)?;
                if let Begin::Snapshot { skip_hash_check } = begin {
                    if !skip_hash_check {
                        let checked = spawn_blocking(|| verify(Path::new(SNAPSHOT))).await;
                        checked.map_err(|error| error.to_string())??;
                    }
                    let args = restore_args(&facts, address, skip_hash_check);
                    restore(supervisor, &image, args).await?;
                    Start::Resume
                } else {
                    Start::New
                }
            }
            (None, None) if others.is_empty() => {
                return Err(
                    "waiting: this node has no etcd data, and the cluster's endpoint names no other control plane \
                     node; for a new cluster, call `cortenctl bootstrap` on one control plane node"
                        .to_owned(),
                );
            }
            (None, None) => {
                empty(data)?;
                join(&secrets, &others, &facts.hostname, address).await?
            }
        };
        supervisor.declare(etcd_service(
            &image,
            args(&facts, address, &start, &own_args),
        ));
        made.start = Some(start);
        Ok(())
    }
}

/// The member that this node is to run; `None` while it has no address for other members.
fn spec(config: &Document, facts: &Facts) -> Option<EtcdSpec> {
    let own = ControlPlane::of(config).ok()?;
    let address = address(config, facts)?;
    Some(EtcdSpec {
        name: facts.hostname.clone(),
        advertised_addresses: vec![address],
        listen_peer_addresses: vec![listen_address(address)],
        listen_client_addresses: vec![listen_address(address)],
        image: own.images.etcd,
        extra_args: shown_args(&own.etcd_args),
    })
}

/// Shows the certificates that are written.
fn show_certificates(context: &mut Context, made: &Made) -> Result<(), Failure> {
    let certificates = made
        .certificates
        .as_ref()
        .map(|(_, certificates)| certificates);
    let shown = certificates.map(|own| EtcdCerts {
        etcd: PemPair::from(&own.server),
        etcd_peer: PemPair::from(&own.peer),
        etcd_admin: PemPair::from(&own.admin),
        etcd_api_server: PemPair::from(&own.api_server),
    });
    show(context, EtcdCerts::ID, shown)?;
    let status = certificates.map(|own| {
        let all = [&own.server, &own.peer, &own.admin, &own.api_server];
        let digest = all
            .iter()
            .fold(Sha256::new(), |digest, one| digest.chain_update(&one.crt));
        PkiStatus {
            ready: true,
            version: hex::encode(digest.finalize()),
        }
    });
    show(context, PkiStatus::ID, status)
}

/// Checks that no member answers: a second cluster of the same name would split the cluster, so this node must join.
async fn none_answers(secrets: &Path, others: &[IpAddr]) -> Result<(), String> {
    let reached = match others {
        [] => None,
        _ => connect(secrets, others).await.ok(),
    };
    match reached {
        None => Ok(()),
        Some(member) => Err(format!(
            "the cluster already has an etcd member, which answers at {}: this node must join it; reboot this node to \
             cancel its bootstrap",
            member.endpoint()
        )),
    }
}

/// Checks that the snapshot is whole: etcdutl makes a database before it compares the hash.
fn verify(snapshot: &Path) -> Result<(), String> {
    let checked = fs::File::open(snapshot)
        .map_err(SnapshotError::Read)
        .and_then(verify_snapshot);
    checked.map_err(|error| {
        format!(
            "{} cannot be restored: {}; send another snapshot, and call bootstrap again",
            snapshot.display(),
            describe(&error)
        )
    })
}

/// Removes what a failed restoration left, or a start that never reached its cluster. A new member must not start on it.
fn empty(directory: &Path) -> Result<(), String> {
    match fs::remove_dir_all(directory.join("member")) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => {
            removed.map_err(|error| format!("cannot empty {}: {error}", directory.display()))
        }
    }
}

/// Restores a new member's data from the snapshot, then removes the snapshot, so that no later bootstrap uses it by
/// accident.
async fn restore(supervisor: &Supervisor, image: &str, args: Vec<String>) -> Result<(), String> {
    supervisor.declare(restore_service(image, args));
    let mut views = supervisor.watch();
    let state = |views: &[ServiceView]| {
        let view = views.iter().find(|view| view.id == ETCD_RESTORE);
        view.map(|view| view.state)
    };
    let ends = [Some(ServiceState::Finished), Some(ServiceState::Failed)];
    // The supervisor ends only with machined.
    let ended = views.wait_for(|views| ends.contains(&state(views))).await;
    let is_restored = ended.is_ok_and(|views| state(&views) == Some(ServiceState::Finished));
    supervisor.forget(ETCD_RESTORE);
    let data = Path::new(DATA);
    if !is_restored || !has_data(data) {
        empty(data)?;
        return Err(format!(
            "the snapshot cannot be restored: `cortenctl logs {ETCD_RESTORE}` says why; send another one, and call \
             bootstrap again"
        ));
    }
    fs::remove_file(SNAPSHOT).map_err(|error| format!("cannot remove {SNAPSHOT}: {error}"))
}

/// Issues and writes the certificates, unless their inputs are unchanged. A running etcd reads them at every new
/// connection.
fn prepare(
    config: &Document,
    facts: Facts,
    made: &mut Option<(MadeFor, Certificates)>,
) -> Result<(), String> {
    let ca = etcd_ca(config).map_err(|error| describe(&error))?;
    let wanted = MadeFor {
        facts,
        ca: ca.pem().crt.clone(),
    };
    if made
        .as_ref()
        .is_some_and(|(made_for, _)| *made_for == wanted)
    {
        return Ok(());
    }
    let certificates = Certificates::issue(&ca, &wanted.facts, SystemTime::now())
        .map_err(|error| describe(&error))?;
    let directory = Path::new(HOST_SECRETS).join(ETCD);
    let files = [
        ("ca.crt", wanted.ca.as_str()),
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
    *made = Some((wanted, certificates));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damaged_snapshot_is_refused_before_a_restoration() {
        let directory = tempfile::tempdir().unwrap();
        let snapshot = directory.path().join("snapshot");
        let database = [7; 1024];
        let whole = [&database[..], &Sha256::digest(database)].concat();
        fs::write(&snapshot, &whole).unwrap();
        verify(&snapshot).unwrap();
        fs::write(&snapshot, [&[0][..], &whole[1..]].concat()).unwrap();
        let why = verify(&snapshot).unwrap_err();
        assert!(
            why.contains("cannot be restored") && why.contains("call bootstrap again"),
            "{why}"
        );
    }

    #[test]
    fn directory_is_empty_after_a_failed_restoration() {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir_all(directory.path().join("member/snap")).unwrap();
        fs::write(directory.path().join("member/snap/db"), "").unwrap();
        for _ in 0..2 {
            empty(directory.path()).unwrap();
        }
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    }
}
