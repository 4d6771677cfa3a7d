//! Holds the addresses that control plane nodes share (`Layer2VIPConfig`): one node has each address at a time.
//!
//! etcd elects the holder, under the reference's key, among nodes with a working member of etcd, API server and link.
//! Never gives up an address in the election before it has removed the address from its link.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use corten_base::console;
use corten_cluster::Cluster;
use corten_config::Document;
use corten_credentials::access;
use corten_credentials::etcd::connect;
use corten_etcd::{EtcdError, Lock};
use corten_kubernetes::Settings;
use corten_kubernetes::pods::HOST_SECRETS;
use corten_network::layers::Layered as _;
use corten_resources::controller::with_causes as describe;
use corten_resources::controller::{Context, Controller, Dependency, Failure, Input, Output};
use corten_resources::{Draft, Typed};
use corten_supervisor::kubernetes::ETCD;
use corten_types::etcd::EtcdMember;
use corten_types::network::{AddressStatus, LinkStatus};
use corten_types::network_names::OperatorSpec;
use corten_types::network_spec::{AddressSpec, LAYERS, Layer, family};
use corten_types::prefix::Prefix;
use corten_types::runtime::MachineStatus;
use tokio::net::TcpStream;
use tokio::sync::{Notify, watch};
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep, timeout};

use super::Complaints;

/// Time after which another node gets the address of a node that died.
const TTL: Duration = Duration::from_secs(10);
/// Limit of one wait for an address that another node has.
const PATIENCE: Duration = Duration::from_secs(60 * 60);
/// Retry interval after a failure.
const PAUSE: Duration = Duration::from_secs(3);
/// Interval and timeout of checks of the API server.
const LOOK: Duration = Duration::from_secs(5);
/// Time without an API server after which the node gives its addresses up.
const GRACE: Duration = Duration::from_secs(20);

/// Interface to etcd and the API server of this node; tests have their own.
pub(super) trait World: Clone + Send + Sync + 'static {
    /// The right to have an address. Dropping it passes the right on.
    type Right: Send;
    /// Waits for the right; `None` if another node has it for long.
    fn win(
        &self,
        address: IpAddr,
    ) -> impl Future<Output = Result<Option<Self::Right>, String>> + Send;
    /// Returns when the right is lost.
    fn lost(right: &mut Self::Right) -> impl Future<Output = ()> + Send;
    /// Whether the API server is ready.
    fn is_ready(&mut self) -> impl Future<Output = bool> + Send;
    /// Whether the API server accepts connections, ready or not.
    fn is_open(&self) -> impl Future<Output = bool> + Send;
}

/// The real etcd and API server.
#[derive(Debug, Clone)]
pub(super) struct Node {
    config: watch::Receiver<Option<Document>>,
    api: Option<Cluster>,
}

impl Node {
    pub(super) fn new(config: watch::Receiver<Option<Document>>) -> Node {
        Node { config, api: None }
    }
}

impl World for Node {
    type Right = Lock;

    async fn win(&self, address: IpAddr) -> Result<Option<Lock>, String> {
        let secrets = Path::new(HOST_SECRETS).join(ETCD);
        let client = connect(&secrets, &[Ipv4Addr::LOCALHOST.into()]).await?;
        match client.lock(&election(address), TTL, PATIENCE).await {
            Ok(lock) => Ok(Some(lock)),
            Err(EtcdError::LockHeld { .. }) => Ok(None),
            Err(error) => Err(describe(&error)),
        }
    }

    async fn lost(lock: &mut Lock) {
        lock.lost().await;
    }

    async fn is_ready(&mut self) -> bool {
        if self.api.is_none() || self.config.has_changed().unwrap_or(false) {
            let config = self.config.borrow_and_update().clone();
            self.api = config.and_then(|config| {
                let settings = Settings::of(&config).ok()?;
                access::connect(&config, &settings, &settings.local_endpoint()).ok()
            });
        }
        let is_ready = match &self.api {
            Some(api) => api.is_ready().await.is_ok(),
            None => false,
        };
        if !is_ready {
            // Its certificate may have expired while the API server was away.
            self.api = None;
        }
        is_ready
    }

    async fn is_open(&self) -> bool {
        let config = self.config.borrow().clone();
        let settings = config.and_then(|config| Settings::of(&config).ok());
        let Some(settings) = settings else {
            return false;
        };
        let server = (Ipv4Addr::LOCALHOST, settings.api_port);
        TcpStream::connect(server).await.is_ok()
    }
}

/// The key of the election, as in the reference. A lock of etcd has the keys of an election.
fn election(address: IpAddr) -> String {
    format!("talos:v1:vip:election:{address}")
}

#[derive(Debug, Clone)]
pub(super) struct SharedAddresses<W> {
    pub(super) world: W,
}

/// A shared address and its link.
type Place = (IpAddr, String);

/// A task that ends with this value.
#[derive(Debug)]
struct Task(AbortHandle);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// This node's part in the election for an address.
#[derive(Debug)]
struct Share {
    is_held: Arc<AtomicBool>,
    _campaign: Task,
}

impl<W: World> Controller for SharedAddresses<W> {
    fn name(&self) -> &'static str {
        "network.SharedAddressController"
    }

    fn inputs(&self) -> Vec<Input> {
        vec![
            Input::of::<OperatorSpec>(Dependency::Weak),
            Input::of::<LinkStatus>(Dependency::Weak),
            Input::of::<AddressStatus>(Dependency::Weak),
            Input::of::<EtcdMember>(Dependency::Weak).with_id(EtcdMember::ID),
            Input::of::<MachineStatus>(Dependency::Weak).with_id(MachineStatus::ID),
        ]
    }

    fn outputs(&self) -> Vec<Output> {
        vec![Output::shared::<AddressSpec>()]
    }

    async fn run(self, context: &mut Context) -> Result<(), Failure> {
        let news = Arc::new(Notify::new());
        let mut shares: BTreeMap<Place, Share> = BTreeMap::new();
        let mut api: Option<(watch::Receiver<bool>, Task)> = None;
        loop {
            tokio::select! {
                () = context.event() => {}
                () = news.notified() => {}
            }
            let places = places(context)?;
            if places.is_empty() {
                api = None;
            } else if api.is_none() {
                api = Some(watch_api(self.world.clone(), news.clone()));
            }
            let api_answers = api.as_ref().is_some_and(|(answers, _)| *answers.borrow());
            let takes_part = api_answers && !is_leaving(context)?;
            let has_etcd = context.get::<EtcdMember>(EtcdMember::ID)?.is_some();
            // A held address goes with its lease: etcd that answers one check late is no reason to move it.
            let holds: BTreeSet<Place> = shares
                .iter()
                .filter(|(_, share)| share.is_held.load(Ordering::SeqCst))
                .map(|(place, _)| place.clone())
                .collect();
            let stays = |place: &Place| {
                takes_part && places.contains(place) && (has_etcd || holds.contains(place))
            };
            let present = present(&context.list::<AddressStatus>()?);
            // The next node can get an address only when this link no longer has it.
            shares.retain(|place, share| {
                let is_held = share.is_held.load(Ordering::SeqCst);
                stays(place) || is_held && present.contains(place)
            });
            for place in places.iter().filter(|place| stays(place)) {
                shares
                    .entry(place.clone())
                    .or_insert_with(|| take_part(self.world.clone(), place.clone(), news.clone()));
            }
            context.start_outputs();
            for (place, share) in &shares {
                if stays(place) && share.is_held.load(Ordering::SeqCst) {
                    let spec = spec(place);
                    let id = format!("{}/vip/{}", Layer::Operator.name(), spec.id());
                    context.put(Draft::new(&id, spec).in_namespace(LAYERS))?;
                }
            }
            context.remove_others_in::<AddressSpec>(LAYERS)?;
        }
    }
}

/// The shared addresses of the config whose link has a carrier.
fn places(context: &Context) -> Result<BTreeSet<Place>, Failure> {
    let mut places = BTreeSet::new();
    for spec in context.list::<OperatorSpec>()? {
        let link = context.get::<LinkStatus>(&spec.link_name)?;
        if let Some(shared) = spec
            .shared
            .filter(|_| link.is_some_and(|link| link.link_state))
        {
            places.insert((shared, spec.link_name.clone()));
        }
    }
    Ok(places)
}

/// The places that the kernel shows.
fn present(statuses: &[Typed<AddressStatus>]) -> BTreeSet<Place> {
    let places = statuses.iter().filter_map(|status| {
        let address = Prefix::parse(&status.address)?.address;
        Some((address, status.link_name.clone()))
    });
    places.collect()
}

fn is_leaving(context: &Context) -> Result<bool, Failure> {
    let status = context.get::<MachineStatus>(MachineStatus::ID)?;
    let leaving = ["rebooting", "shutting down", "resetting"];
    Ok(status.is_some_and(|status| leaving.contains(&status.stage)))
}

fn spec((address, link): &Place) -> AddressSpec {
    AddressSpec {
        address: Prefix::host(*address),
        link_name: link.clone(),
        family: family(*address),
        scope: "global",
        announce_with_arp: true,
        priority: 0,
        layer: Layer::Operator,
    }
}

/// Watches this node's API server: it must be ready at first, and then accept connections. A slow server is better than
/// none: on a busy cluster all of them may be slow, and the kubelet restarts one that hangs. A check counts for
/// [`GRACE`].
fn watch_api<W: World>(mut world: W, news: Arc<Notify>) -> (watch::Receiver<bool>, Task) {
    let (tell, answers) = watch::channel(false);
    let task = tokio::spawn(async move {
        let mut last: Option<Instant> = None;
        let mut answers = false;
        loop {
            let good = match answers {
                true => timeout(LOOK, world.is_open()).await,
                false => timeout(LOOK, world.is_ready()).await,
            };
            if good.unwrap_or(false) {
                last = Some(Instant::now());
            }
            answers = last.is_some_and(|last| last.elapsed() < GRACE);
            if tell.send_replace(answers) != answers {
                news.notify_one();
            }
            sleep(LOOK).await;
        }
    });
    (answers, Task(task.abort_handle()))
}

/// Takes part in the election for an address.
fn take_part<W: World>(world: W, place: Place, news: Arc<Notify>) -> Share {
    let is_held = Arc::new(AtomicBool::new(false));
    let held = is_held.clone();
    let (address, link) = place;
    let task = tokio::spawn(async move {
        let mut complaints = Complaints::default();
        loop {
            match world.win(address).await {
                Ok(Some(mut right)) => {
                    complaints.none();
                    console::say(&format!(
                        "network: this node has the shared address {address} on {link}"
                    ));
                    held.store(true, Ordering::SeqCst);
                    news.notify_one();
                    W::lost(&mut right).await;
                    held.store(false, Ordering::SeqCst);
                    news.notify_one();
                    console::warn(&format!(
                        "network: this node lost the shared address {address}: its member of etcd did not answer"
                    ));
                }
                Ok(None) => {}
                Err(why) => {
                    complaints.say(&format!("network: the shared address {address}"), &why);
                    sleep(PAUSE).await;
                }
            }
        }
    });
    Share {
        is_held,
        _campaign: Task(task.abort_handle()),
    }
}

#[cfg(test)]
#[path = "shared_address_tests.rs"]
mod tests;
