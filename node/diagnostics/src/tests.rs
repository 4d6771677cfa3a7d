//! Each diagnostic with a simulated kubelet and cluster.

use std::sync::{Arc, Mutex};

use corten_base::sample;
use corten_resources::Store;
use corten_resources::controller::Runtime;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::findings::{HYSTERESIS, INTERVAL};
use super::*;

const CA: &str = "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCkFBQUEKLS0tLS1FTkQgQ0VSVElGSUNBVEUtLS0tLQo=";
const SECOND: Duration = Duration::from_secs(1);

/// What the kubelet's files and the cluster say, and how often the cluster was asked.
#[derive(Debug, Clone, Default)]
struct Simulated(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    has_certificate: bool,
    unapproved: Result<Vec<String>, String>,
    asked: usize,
}

impl Default for State {
    fn default() -> State {
        State {
            has_certificate: false,
            unapproved: Ok(Vec::new()),
            asked: 0,
        }
    }
}

impl World for Simulated {
    fn has_certificate(&self) -> Result<bool, String> {
        Ok(self.0.lock().unwrap().has_certificate)
    }

    async fn unapproved(&self, _: &Document, nodename: &str) -> Result<Vec<String>, String> {
        assert_eq!(nodename, "n1");
        let mut state = self.0.lock().unwrap();
        state.asked += 1;
        state.unapproved.clone()
    }
}

/// A kubelet with this configuration and these arguments.
pub(crate) fn kubelet(config: Value, args: &[&str]) -> KubeletSpec {
    KubeletSpec {
        image: String::new(),
        args: args.iter().map(|&arg| arg.to_owned()).collect(),
        extra_mounts: Vec::new(),
        expected_nodename: String::new(),
        config,
        credential_provider_config: Value::Null,
    }
}

struct Bench {
    store: Store,
    config: watch::Sender<Option<Document>>,
    world: Simulated,
}

impl Bench {
    fn start() -> Bench {
        let config = sample::config("", &format!("  ca: {{crt: {CA}}}\n"));
        let config = watch::Sender::new(Some(config));
        let store = Store::new();
        let world = Simulated::default();
        let mut runtime = Runtime::new(store.clone());
        let diagnostics = Diagnostics {
            config: config.subscribe(),
            world: world.clone(),
        };
        runtime.add(diagnostics).unwrap();
        tokio::spawn(runtime.run(|notice| panic!("{notice}")));
        Bench {
            store,
            config,
            world,
        }
    }

    /// The addresses of the node, and those of them outside the subnets of pods and services.
    fn addresses(&self, all: &[&str], outside: &[&str]) {
        let filter = NodeAddressFilter::NO_KUBERNETES;
        let filtered = NodeAddressFilter::filtered(NodeAddress::ROUTED, filter);
        for (id, addresses) in [(NodeAddress::ROUTED, all), (filtered.as_str(), outside)] {
            let addresses = NodeAddress {
                addresses: addresses.iter().map(|&text| text.to_owned()).collect(),
                sort_algorithm: "v1",
            };
            self.store.put(Draft::new(id, addresses), "").unwrap();
        }
    }

    /// A kubelet in a cluster that requests its serving certificate.
    fn kubelet(&self) {
        self.kubelet_with(true);
        self.service(true);
        self.name(false);
    }

    fn kubelet_with(&self, from_cluster: bool) {
        let spec = kubelet(json!({ "serverTLSBootstrap": from_cluster }), &[]);
        self.store.put(Draft::new(ID, spec), "").unwrap();
    }

    fn service(&self, healthy: bool) {
        let service = Service {
            running: true,
            healthy,
            unknown: false,
        };
        self.store.put(Draft::new(KUBELET, service), "").unwrap();
    }

    fn name(&self, skip_node_registration: bool) {
        let name = Nodename {
            nodename: "n1".to_owned(),
            hostname_version: "1".to_owned(),
            skip_node_registration,
        };
        self.store.put(Draft::new(Nodename::ID, name), "").unwrap();
    }

    fn cluster_says(&self, unapproved: Result<&[&str], &str>) {
        let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
        self.world.0.lock().unwrap().unapproved = unapproved.map(names).map_err(str::to_owned);
    }

    fn shown(&self, id: &str) -> Option<Diagnostic> {
        let found = self.store.get_as::<Diagnostic>(id);
        found.map(|found| (*found).clone())
    }
}

#[tokio::test(start_paused = true)]
async fn overlap_of_every_address_is_shown_while_it_lasts() {
    let bench = Bench::start();
    let id = Diagnostic::ADDRESS_OVERLAP;
    bench.addresses(&["10.244.3.4/24", "10.96.0.9/32"], &[]);
    sleep(HYSTERESIS - SECOND).await;
    assert_eq!(bench.shown(id), None);
    sleep(SECOND * 2).await;
    let shown = bench.shown(id).unwrap();
    assert!(shown.message.contains("no address outside"), "{shown:?}");
    let told = [
        "addresses of the node: 10.244.3.4/24, 10.96.0.9/32",
        "podSubnets: 10.244.0.0/16",
        "serviceSubnets: 10.96.0.0/12",
    ];
    assert_eq!(shown.details[..3], told);

    bench.addresses(&["10.244.3.4/24", "10.0.0.5/24"], &["10.0.0.5/24"]);
    sleep(SECOND).await;
    assert_eq!(bench.shown(id), None);
}

#[tokio::test(start_paused = true)]
async fn node_with_an_own_address_none_at_all_or_no_config_has_no_overlap() {
    let bench = Bench::start();
    let cases: [(&[&str], &[&str]); 2] = [
        (&["10.244.3.4/24", "10.0.0.5/24"], &["10.0.0.5/24"]),
        (&[], &[]),
    ];
    for (all, outside) in cases {
        bench.addresses(all, outside);
        sleep(INTERVAL * 2).await;
        assert_eq!(bench.shown(Diagnostic::ADDRESS_OVERLAP), None, "{all:?}");
    }
    bench.config.send_replace(None);
    bench.addresses(&["10.244.3.4/24"], &[]);
    sleep(INTERVAL * 2).await;
    assert_eq!(bench.shown(Diagnostic::ADDRESS_OVERLAP), None);
}

#[tokio::test(start_paused = true)]
async fn fault_that_ends_soon_is_not_shown_and_the_next_one_waits_again() {
    let bench = Bench::start();
    for _ in 0..3 {
        bench.addresses(&["10.244.3.4/24"], &[]);
        sleep(HYSTERESIS - SECOND).await;
        assert_eq!(bench.shown(Diagnostic::ADDRESS_OVERLAP), None);
        bench.addresses(&["10.0.0.5/24"], &["10.0.0.5/24"]);
        sleep(SECOND).await;
    }
}

#[tokio::test(start_paused = true)]
async fn unapproved_request_of_the_kubelet_is_shown_until_it_has_a_certificate() {
    let bench = Bench::start();
    let id = Diagnostic::KUBELET_CSR;
    bench.kubelet();
    bench.cluster_says(Ok(&["csr-a", "csr-b"]));
    sleep(HYSTERESIS - SECOND).await;
    assert_eq!(bench.shown(id), None);
    sleep(SECOND * 2).await;
    let shown = bench.shown(id).unwrap();
    assert_eq!(shown.details[0], "unapproved requests: csr-a, csr-b");

    bench.world.0.lock().unwrap().has_certificate = true;
    sleep(INTERVAL).await;
    assert_eq!(bench.shown(id), None);
}

#[tokio::test(start_paused = true)]
async fn approved_request_that_waits_for_its_certificate_is_no_fault() {
    let bench = Bench::start();
    bench.kubelet();
    sleep(INTERVAL * 3).await;
    assert_eq!(bench.shown(Diagnostic::KUBELET_CSR), None);
    assert!(bench.world.0.lock().unwrap().asked > 1);
}

#[tokio::test(start_paused = true)]
async fn cluster_is_asked_only_about_a_working_kubelet_without_the_certificate_it_requests() {
    let changes: [fn(&Bench); 4] = [
        |bench| bench.kubelet_with(false),
        |bench| bench.service(false),
        |bench| bench.name(true),
        |bench| bench.world.0.lock().unwrap().has_certificate = true,
    ];
    for change in changes {
        let bench = Bench::start();
        bench.kubelet();
        bench.cluster_says(Ok(&["csr-a"]));
        change(&bench);
        sleep(INTERVAL * 3).await;
        assert_eq!(bench.shown(Diagnostic::KUBELET_CSR), None);
        assert_eq!(bench.world.0.lock().unwrap().asked, 0);
    }
}

#[tokio::test(start_paused = true)]
async fn failed_check_neither_shows_a_fault_nor_ends_one() {
    let bench = Bench::start();
    let id = Diagnostic::KUBELET_CSR;
    bench.kubelet();
    bench.cluster_says(Ok(&["csr-a"]));
    sleep(SECOND).await;
    bench.cluster_says(Err("no answer"));
    sleep(INTERVAL * 3).await;
    assert_eq!(bench.shown(id), None);
    // A failure is no reason to ask without a pause.
    assert!(bench.world.0.lock().unwrap().asked < 10);
    bench.cluster_says(Ok(&["csr-a"]));
    sleep(INTERVAL).await;
    assert!(bench.shown(id).is_some());
    bench.cluster_says(Err("no answer"));
    sleep(INTERVAL * 3).await;
    assert!(bench.shown(id).is_some());
    bench.service(false);
    sleep(SECOND).await;
    assert_eq!(bench.shown(id), None);
}

#[test]
fn many_unapproved_requests_are_counted() {
    let names: Vec<String> = (0..100).map(|n| format!("csr-{n}")).collect();
    let told = checks::kubelet_csr(&names).unwrap().details;
    assert!(told[0].ends_with(", csr-7 and 92 more"), "{told:?}");
}
