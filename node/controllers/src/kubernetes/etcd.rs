//! Runs etcd on a control plane node: issues its certificates and decides when it starts and ends.

use std::fs;
use std::future::pending;
use std::net::IpAddr;
use std::path::Path;
use std::time::{Duration, SystemTime};

use corten_config::Document;
use corten_credentials::certificates::{Held, write_files};
use corten_credentials::etcd::connect_if_there;
use corten_kubernetes::certificates::etcd_ca;
use corten_kubernetes::etcd::{
    Addresses, Begin, Certificates, DATA, SNAPSHOT, Start, args, has_data, listen_subnets,
    restore_args, shared,
};
use corten_kubernetes::pods::HOST_SECRETS;
use corten_kubernetes::{ControlPlane, ETCD_UID, Facts, Settings};
use corten_resources::Typed;
use corten_resources::controller::with_causes as describe;
use corten_resources::controller::{Context, Controller, Dependency, Failure, Input, Output};
use corten_supervisor::ServiceSpec;
use corten_supervisor::kubernetes::{ETCD, etcd_service};
use corten_supervisor::supervisor::Supervisor;
use corten_supervisor::view::Control;
use corten_types::clock::TimeStatus;
use corten_types::etcd::{EtcdSpec, PkiStatus};
use corten_types::kubernetes::Nodename;
use corten_types::network::{AddressStatus, HostnameStatus, NodeAddress};
use corten_types::secrets::{Endpoint, PemPair};
use corten_types::secrets_kubernetes::EtcdCerts;
use corten_volumes::Progress;
use sha2::{Digest as _, Sha256};
use tokio::sync::{mpsc, watch};
use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};

use super::etcd_data::{END, clear, empty, restore, verify};
use super::join::join;
use super::prism::known;
use super::settings::{args as shown_args, show};
use super::volume::lacks_volume;
use super::{Complaints, facts, time_is_known};

/// Retry interval after a failure.
const PAUSE: Duration = Duration::from_secs(3);

/// An order about this node's member.
#[derive(Debug, Clone)]
pub enum Order {
    /// Make this node the first member of a new cluster.
    Begin(Begin),
    /// Stop etcd and delete its data: the cluster no longer has the member. The node runs no etcd until another order,
    /// or its next boot. The receiver gets the result.
    Leave(mpsc::Sender<Result<(), String>>),
}

#[derive(Debug, Clone)]
pub(super) struct Etcd {
    pub(super) config: watch::Receiver<Option<Document>>,
    /// The last order.
    pub(super) orders: watch::Receiver<Option<Order>>,
    /// Progress of the node's own volumes.
    pub(super) volumes: watch::Receiver<Progress>,
    pub(super) supervisor: Option<Supervisor>,
}

/// Inputs of a member's certificates.
#[derive(Debug, PartialEq)]
struct MadeFor {
    facts: Facts,
    ca: String,
}

/// Facts about the node and its cluster.
#[derive(Debug)]
struct Found {
    facts: Facts,
    /// Addresses of the control plane nodes.
    others: Vec<IpAddr>,
    /// All addresses of the node's links, also of links without carrier.
    assigned: Vec<IpAddr>,
}

/// Results of this boot.
#[derive(Debug, Default)]
struct Made {
    certificates: Option<(Held<MadeFor>, Certificates)>,
    started: Option<Started>,
}

/// How the member was started. It restarts for other addresses alone: all other arguments and its image wait for its next
/// start, because one config may reach all members at once.
#[derive(Debug, Clone)]
struct Started {
    start: Start,
    /// Its name.
    name: String,
    /// Subnets from which the config selects the listen addresses.
    subnets: Vec<String>,
    addresses: Addresses,
}

impl Started {
    /// The member at other addresses, which restarts it. It moves only when the config selects others, or the node has
    /// lost an address at which it listens: a socket outlives the carrier of its link. The advertised addresses change
    /// in the running cluster (`AdvertisedPeers`).
    fn moved(&self, subnets: Vec<String>, addresses: &Addresses, assigned: &[IpAddr]) -> Started {
        let mut started = self.clone();
        let is_there = |address: &IpAddr| address.is_unspecified() || assigned.contains(address);
        if subnets != self.subnets {
            started.subnets = subnets;
            if started.addresses.listen_peer != addresses.listen_peer {
                started.addresses.clone_from(addresses);
            }
        } else if !self.addresses.listen_peer.iter().all(is_there) {
            started.move_to(addresses, is_there);
        }
        started
    }

    /// Takes these addresses, and keeps those that are still there.
    fn move_to(&mut self, addresses: &Addresses, is_there: impl Fn(&IpAddr) -> bool) {
        let mut kept = std::mem::replace(&mut self.addresses, addresses.clone()).listen_peer;
        kept.retain(|address| is_there(address) && !addresses.listen_peer.contains(address));
        self.addresses.listen_peer.extend(&kept);
        self.addresses.listen_client.extend(&kept);
    }
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
            Input::of::<AddressStatus>(Dependency::Weak),
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
            let mut is_new = false;
            tokio::select! {
                () = context.event() => {}
                Ok(()) = self.config.changed() => {}
                Ok(()) = self.orders.changed() => is_new = true,
                () = sleep(PAUSE), if is_waiting => {}
            }
            let config = self.config.borrow_and_update().clone();
            is_new |= self.orders.has_changed().unwrap_or_default();
            let order = self.orders.borrow_and_update().clone();
            if let (true, Some(Order::Leave(done))) = (is_new, &order) {
                made.started = None;
                // The caller may be gone.
                let _ = done.try_send(self.end().await);
            }
            let is_member = |config: &Document| {
                config.machine.kind.is_control_plane() && config.cluster.etcd.is_some()
            };
            let Some(config) = config.filter(is_member) else {
                continue;
            };
            if Settings::of(&config).is_err() {
                continue;
            }
            let (Some(mut facts), true) = (facts(context)?, time_is_known(context)?) else {
                continue;
            };
            let shared = shared(&config);
            facts.reachable.retain(|address| !shared.contains(address));
            // The certificates always have the shared addresses: they need not change each time that this node gets or
            // loses one, and the kernel may choose one as the source of a connection to another member.
            let mut certified = facts.clone();
            certified.reachable.extend(shared);
            let others = known(context)?;
            context.start_outputs();
            show(context, EtcdSpec::ID, spec(&config, &facts))?;
            if let Err(why) = prepare(&config, certified, &mut made.certificates) {
                complaints.say(ETCD, &why);
                continue;
            }
            show_certificates(context, &made)?;
            let found = Found {
                facts,
                others,
                assigned: assigned(&context.list::<AddressStatus>()?),
            };
            match self.start(&config, found, order, &mut made).await {
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
        found: Found,
        order: Option<Order>,
        made: &mut Made,
    ) -> Result<(), String> {
        let Found {
            facts,
            mut others,
            assigned,
        } = found;
        let own = ControlPlane::of(config).map_err(|missing| missing.to_string())?;
        let (image, own_args) = (own.images.etcd, own.etcd_args);
        let Some(supervisor) = &self.supervisor else {
            return Ok(());
        };
        let addresses = Addresses::of(config, &facts).map_err(|missing| missing.to_string())?;
        let own = |address: &IpAddr| {
            facts.addresses.contains(address) || facts.reachable.contains(address)
        };
        others.retain(|other| !own(other));
        let secrets = Path::new(HOST_SECRETS).join(ETCD);
        let data = Path::new(DATA);
        // A member that has not begun to join has its name in the plan of the join.
        if has_other_name(made.started.as_ref(), &facts.hostname) && !has_data(data) {
            made.started = None;
        }
        if let (None, Some(why)) = (&made.started, lacks_volume(&self.volumes.borrow())) {
            return Err(why);
        }
        let start = match (&made.started, order) {
            (_, Some(Order::Leave(_))) => return Ok(()),
            (Some(started), _) => started.start.clone(),
            (None, _) if has_data(data) => Start::Resume,
            (None, Some(Order::Begin(begin))) => {
                none_answers(&secrets, &others).await?;
                empty(data)?;
                if let Begin::Snapshot { skip_hash_check } = begin {
                    if !skip_hash_check {
                        let checked = spawn_blocking(|| verify(Path::new(SNAPSHOT))).await;
                        checked.map_err(|error| error.to_string())??;
                    }
                    let args = restore_args(&facts, &addresses, skip_hash_check);
                    restore(supervisor, &image, args, self.changed(config)).await?;
                    Start::Resume
                } else {
                    Start::New
                }
            }
            // The operator has added this member, and names the others.
            (None, None) if own_args.0.contains_key("initial-cluster") => {
                empty(data)?;
                Start::Resume
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
                join(&secrets, &others, &facts.hostname, &addresses).await?
            }
        };
        let subnets = listen_subnets(config);
        let started = match &made.started {
            Some(started) => started.moved(subnets, &addresses, &assigned),
            None => Started {
                start,
                name: facts.hostname.clone(),
                subnets,
                addresses,
            },
        };
        let args = args(&facts, &started.addresses, &started.start, &own_args);
        declare(
            supervisor,
            etcd_service(&image, args),
            made.started.as_ref(),
            &started,
        );
        made.started = Some(started);
        Ok(())
    }

    /// Waits for another config, or an order. Both stay unseen.
    async fn changed(&self, config: &Document) {
        let (mut configs, mut orders) = (self.config.clone(), self.orders.clone());
        let is_other = |new: &Option<Document>| new.as_ref() != Some(config);
        let other = async { configs.wait_for(is_other).await.map(drop) };
        tokio::select! {
            Ok(()) = other => {}
            Ok(()) = orders.changed() => {}
            else => pending().await,
        }
    }

    /// Stops etcd and deletes its data.
    async fn end(&self) -> Result<(), String> {
        let Some(supervisor) = &self.supervisor else {
            return Ok(());
        };
        let is_declared = supervisor.views().iter().any(|view| view.id == ETCD);
        if is_declared {
            let ended = timeout(END, supervisor.control(ETCD, Control::Stop)).await;
            let ended = ended.map_err(|_| "etcd has not ended: `cortenctl services` says why")?;
            ended.map_err(|_| "this boot is ending")?;
        }
        clear(Path::new(DATA))
    }
}

/// Declares the member, which runs as `before` so far.
fn declare(
    supervisor: &Supervisor,
    service: ServiceSpec,
    before: Option<&Started>,
    started: &Started,
) {
    match before {
        Some(before) if before.addresses == started.addresses => supervisor.declare_next(service),
        Some(_) => supervisor.declare(service),
        None => {
            supervisor.declare(service);
            // An unchanged declaration does not start a member anew that has left.
            supervisor.start(ETCD);
        }
    }
}

/// Whether a member was to join with another name.
fn has_other_name(started: Option<&Started>, name: &str) -> bool {
    started.is_some_and(|one| matches!(one.start, Start::Join(_)) && one.name != name)
}

/// All addresses of links. Where `address` is the peer's, `local` is the node's own.
fn assigned(statuses: &[Typed<AddressStatus>]) -> Vec<IpAddr> {
    let all = statuses.iter();
    all.flat_map(|status| [status.ip(), status.local.parse().ok()])
        .flatten()
        .collect()
}

/// The member that this node is to run; `None` while it has no address for other members.
fn spec(config: &Document, facts: &Facts) -> Option<EtcdSpec> {
    let own = ControlPlane::of(config).ok()?;
    let addresses = Addresses::of(config, facts).ok()?;
    Some(EtcdSpec {
        name: facts.hostname.clone(),
        advertised_addresses: addresses.advertised,
        listen_peer_addresses: addresses.listen_peer,
        listen_client_addresses: addresses.listen_client,
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

/// Checks that no member runs: a second cluster of the same name would split the cluster, so this node must join. A
/// host that does not answer, or answers wrongly, may run one.
async fn none_answers(secrets: &Path, others: &[IpAddr]) -> Result<(), String> {
    if others.is_empty() {
        return Ok(());
    }
    match connect_if_there(secrets, others).await {
        Ok(None) => Ok(()),
        Ok(Some(member)) => Err(format!(
            "the cluster already has an etcd member, which answers at {}: this node must join it; reboot this node to \
             cancel its bootstrap",
            member.endpoint()
        )),
        Err(why) => Err(format!(
            "cannot tell whether another control plane node runs an etcd member: {why}; start that node or, if it is \
             gone for good, reboot this one and call bootstrap again"
        )),
    }
}

/// Issues and writes the certificates, unless their inputs are unchanged and they are valid: a clock that was ahead made
/// them for a later time. A running etcd reads them at every new connection.
fn prepare(
    config: &Document,
    facts: Facts,
    made: &mut Option<(Held<MadeFor>, Certificates)>,
) -> Result<(), String> {
    let now = SystemTime::now();
    let ca = etcd_ca(config).map_err(|error| describe(&error))?;
    let wanted = MadeFor {
        facts,
        ca: ca.pem().crt.clone(),
    };
    if made
        .as_ref()
        .is_some_and(|(held, _)| held.left(&wanted, now).is_some())
    {
        return Ok(());
    }
    let certificates =
        Certificates::issue(&ca, &wanted.facts, now).map_err(|error| describe(&error))?;
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
    let held = Held::new(&certificates.server, wanted, now).map_err(|error| describe(&error))?;
    *made = Some((held, certificates));
    Ok(())
}

#[cfg(test)]
#[path = "etcd_tests.rs"]
mod tests;
