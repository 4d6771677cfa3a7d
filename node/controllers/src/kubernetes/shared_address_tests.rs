//! The election of the holder of a shared address, with a simulated etcd and API server.

use corten_resources::controller::Runtime;
use corten_resources::{Pointer, Store};
use corten_types::runtime::Readiness;
use tokio::sync::{Mutex, OwnedMutexGuard};

use super::*;

const ADDRESS: &str = "10.0.0.9";

/// The spec that this node writes while it has the address.
fn address() -> Pointer {
    Pointer {
        namespace: LAYERS,
        ..Pointer::of::<AddressSpec>("operator/vip/eth0/10.0.0.9/32")
    }
}

/// etcd is the mutex, which a second node may hold. The flags say whether the API server is ready and accepts connections,
/// and whether etcd answers.
#[derive(Debug, Clone)]
struct Simulated {
    election: Arc<Mutex<()>>,
    is_ready: Arc<AtomicBool>,
    is_open: Arc<AtomicBool>,
    etcd_answers: watch::Sender<bool>,
}

impl World for Simulated {
    type Right = (OwnedMutexGuard<()>, watch::Receiver<bool>);

    async fn win(&self, address: IpAddr) -> Result<Option<Self::Right>, String> {
        assert_eq!(address.to_string(), ADDRESS);
        let answers = self.etcd_answers.subscribe();
        let mut outage = answers.clone();
        let silent = || Err("etcd does not answer".to_owned());
        if !*answers.borrow() {
            return silent();
        }
        tokio::select! {
            won = self.election.clone().lock_owned() => Ok(Some((won, answers))),
            _ = outage.wait_for(|answers| !answers) => silent(),
        }
    }

    async fn lost((_, answers): &mut Self::Right) {
        let _ = answers.wait_for(|answers| !answers).await;
    }

    async fn is_ready(&mut self) -> bool {
        self.is_ready.load(Ordering::SeqCst)
    }

    async fn is_open(&self) -> bool {
        self.is_open.load(Ordering::SeqCst)
    }
}

struct Bench {
    store: Store,
    world: Simulated,
}

impl Bench {
    fn start() -> Bench {
        let store = Store::new();
        store.add_namespace(LAYERS, "").unwrap();
        let world = Simulated {
            election: Arc::default(),
            is_ready: Arc::default(),
            is_open: Arc::new(AtomicBool::new(true)),
            etcd_answers: watch::Sender::new(true),
        };
        let mut runtime = Runtime::new(store.clone());
        let simulated = world.clone();
        runtime.add(SharedAddresses { world: simulated }).unwrap();
        tokio::spawn(runtime.run(|notice| panic!("{notice}")));
        let operator = corten_network::default_layer::vip(
            Layer::Configuration,
            "eth0",
            ADDRESS.parse().unwrap(),
        );
        store.put(Draft::new("vip/eth0", operator), "").unwrap();
        let bench = Bench { store, world };
        bench.carrier(true);
        bench
    }

    /// This node has the address.
    async fn with_address() -> Bench {
        let bench = Bench::start();
        bench.etcd_works();
        bench.world.is_ready.store(true, Ordering::SeqCst);
        bench.until_held(true).await;
        bench
    }

    fn etcd_works(&self) {
        let member_id = "1".to_owned();
        let member = Draft::new(EtcdMember::ID, EtcdMember { member_id });
        self.store.put(member, "").unwrap();
    }

    fn etcd_fails_a_check(&self) {
        let member = Pointer::of::<EtcdMember>(EtcdMember::ID);
        self.store.teardown(&member, "").unwrap();
        self.store.destroy(&member, "").unwrap();
    }

    fn carrier(&self, link_state: bool) {
        let link = LinkStatus {
            link_state,
            ..LinkStatus::with_device()
        };
        self.store.put(Draft::new("eth0", link), "").unwrap();
    }

    fn stage(&self, stage: &'static str) {
        let status = Readiness {
            ready: true,
            unmet_conditions: Vec::new(),
        };
        let status = MachineStatus { stage, status };
        self.store
            .put(Draft::new(MachineStatus::ID, status), "")
            .unwrap();
    }

    /// The kernel has the address, or no longer.
    fn kernel(&self, has: bool) {
        let id = "eth0/10.0.0.9/32";
        if !has {
            let status = Pointer::of::<AddressStatus>(id);
            self.store.teardown(&status, "").unwrap();
            return self.store.destroy(&status, "").unwrap();
        }
        let status = AddressStatus {
            address: "10.0.0.9/32".to_owned(),
            local: ADDRESS.to_owned(),
            broadcast: String::new(),
            link_index: 2,
            link_name: "eth0".to_owned(),
            family: "inet4",
            scope: "global",
            flags: "permanent".to_owned(),
        };
        self.store.put(Draft::new(id, status), "").unwrap();
    }

    /// Waits until this node has the address, or gives it up.
    async fn until_held(&self, held: bool) {
        let reached = async {
            while self.store.get(&address()).is_ok() != held {
                sleep(Duration::from_millis(10)).await;
            }
        };
        let reached = timeout(GRACE * 3, reached).await;
        reached.unwrap_or_else(|_| panic!("the address is not in the state held: {held}"));
    }

    fn is_free(&self) -> bool {
        self.world.election.try_lock().is_ok()
    }
}

#[tokio::test(start_paused = true)]
async fn node_has_the_address_while_its_etcd_and_api_server_work() {
    let bench = Bench::start();
    bench.etcd_works();
    sleep(LOOK * 2).await;
    assert!(bench.is_free(), "the API server is not ready");
    bench.world.is_ready.store(true, Ordering::SeqCst);
    bench.until_held(true).await;
    assert!(!bench.is_free());

    // A slow server is no reason, nor is a short restart. The next node waits until the kernel has removed the address.
    bench.kernel(true);
    bench.world.is_ready.store(false, Ordering::SeqCst);
    sleep(GRACE * 2).await;
    assert!(!bench.is_free());
    bench.until_held(true).await;
    bench.world.is_open.store(false, Ordering::SeqCst);
    sleep(LOOK).await;
    bench.until_held(true).await;
    bench.until_held(false).await;
    assert!(!bench.is_free());
    bench.kernel(false);
    let _other = bench.world.election.clone().lock_owned().await;
}

#[tokio::test(start_paused = true)]
async fn node_that_goes_down_passes_the_address_on() {
    let bench = Bench::with_address().await;
    bench.stage("rebooting");
    let _other = bench.world.election.clone().lock_owned().await;
    bench.until_held(false).await;
}

#[tokio::test(start_paused = true)]
async fn node_without_a_carrier_passes_the_address_on() {
    let bench = Bench::with_address().await;
    bench.carrier(false);
    let _other = bench.world.election.clone().lock_owned().await;
    bench.until_held(false).await;
}

#[tokio::test(start_paused = true)]
async fn late_answer_of_etcd_moves_no_address_whose_lease_lasts() {
    let bench = Bench::with_address().await;
    bench.kernel(true);
    bench.etcd_fails_a_check();
    sleep(GRACE).await;
    bench.until_held(true).await;
    assert!(!bench.is_free());
    // Without a lease, the node takes no part until etcd works again.
    bench.world.etcd_answers.send_replace(false);
    bench.until_held(false).await;
    bench.kernel(false);
    bench.world.etcd_answers.send_replace(true);
    sleep(GRACE).await;
    assert!(bench.is_free());
    bench.etcd_works();
    bench.until_held(true).await;
}

#[tokio::test(start_paused = true)]
async fn node_removes_the_address_when_etcd_stops_to_answer() {
    let bench = Bench::with_address().await;
    bench.kernel(true);
    bench.world.etcd_answers.send_replace(false);
    bench.until_held(false).await;
    bench.world.etcd_answers.send_replace(true);
    bench.until_held(true).await;
}

#[tokio::test(start_paused = true)]
async fn node_runs_for_election_again_after_an_outage_of_etcd() {
    let bench = Bench::with_address().await;
    bench.world.etcd_answers.send_replace(false);
    bench.until_held(false).await;
    // Another node is elected first, and this node waits.
    let other = bench.world.election.clone().lock_owned().await;
    bench.world.etcd_answers.send_replace(true);
    sleep(PAUSE * 2).await;
    bench.until_held(false).await;
    // A second outage, during which this node waits, ends no later campaign.
    bench.world.etcd_answers.send_replace(false);
    sleep(PAUSE * 5).await;
    bench.world.etcd_answers.send_replace(true);
    sleep(PAUSE * 2).await;
    bench.until_held(false).await;
    drop(other);
    bench.until_held(true).await;
}

#[test]
fn key_of_the_election_is_that_of_the_reference() {
    assert_eq!(
        election(ADDRESS.parse().unwrap()),
        "talos:v1:vip:election:10.0.0.9"
    );
}
