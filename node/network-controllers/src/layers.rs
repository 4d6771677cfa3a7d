//! Shows the network layers of the defaults, the kernel command line, the platform and the machine config.

use std::collections::BTreeSet;
use std::sync::Arc;

use corten_base::console;
use corten_config::Document;
use corten_meta::Values;
use corten_meta::tags::PLATFORM_NETWORK;
use corten_network::cmdline_layer::{Parameters, parameters};
use corten_network::config_layer::{Said, layer_from_config};
use corten_network::layers::Specs;
use corten_network::links::Present;
use corten_network::seed::Seed;
use corten_network::{Setup, default_layer, platform_layer};
use corten_resources::Draft;
use corten_resources::controller::{Context, Controller, Dependency, Failure, Input, Output};
use corten_seed::PlatformNetwork;
use corten_types::network::LinkStatus;
use corten_types::network_alias::LinkAliasSpec;
use corten_types::network_names::StaticHost;
use corten_types::network_spec::Layer;
use corten_yaml::problem::Problems;
use tokio::sync::watch;

use super::{forget_others, layer_outputs, write};

/// The four layers that need no server.
#[derive(Debug, Clone)]
pub(crate) struct Layers {
    pub(crate) setup: watch::Receiver<Option<Arc<Setup>>>,
    pub(crate) platform: Platform,
    pub(crate) config: watch::Receiver<Option<Document>>,
}

/// Network settings from the platform.
#[derive(Debug, Clone)]
pub struct Platform {
    /// Values of META.
    pub meta: watch::Receiver<Values>,
    /// The seed beside the machine or on a server, once it is read.
    pub seed: watch::Receiver<Option<Arc<Seed>>>,
}

impl Platform {
    async fn changed(&mut self) {
        // If their senders are gone, the values stay as they are.
        let gone = tokio::select! {
            Ok(()) = self.meta.changed() => false,
            Ok(()) = self.seed.changed() => false,
            else => true,
        };
        if gone {
            std::future::pending::<()>().await;
        }
    }

    /// The platform's specs on a machine of this kind, and the settings that cannot be applied.
    fn said(
        &mut self,
        kind: &str,
        present: &Present,
        meta: &mut MetaNetwork,
    ) -> (Specs, Vec<String>) {
        match kind {
            "metal" => {
                let values = self.meta.borrow_and_update();
                let value = values.get(&PLATFORM_NETWORK).map(Vec::as_slice);
                match meta.read(value.unwrap_or_default()) {
                    Ok(network) => (platform_layer::of_meta(network, present), Vec::new()),
                    Err(complaint) => (Specs::default(), vec![complaint.clone()]),
                }
            }
            _ => match &*self.seed.borrow_and_update() {
                Some(seed) => platform_layer::of_seed(seed, present),
                None => Default::default(),
            },
        }
    }
}

/// Cache of the parsed network settings in META. They may be long, and every pod adds and removes links.
#[derive(Debug, Default)]
struct MetaNetwork(Option<(Vec<u8>, Result<PlatformNetwork, String>)>);

impl MetaNetwork {
    /// Parses the value only if it has changed.
    fn read(&mut self, value: &[u8]) -> &Result<PlatformNetwork, String> {
        let known = self.0.take().filter(|(bytes, _)| bytes == value);
        let (_, found) = self.0.insert(known.unwrap_or_else(|| {
            let network = PlatformNetwork::from_meta(value);
            let wrong = |problems: Problems| {
                format!("META {PLATFORM_NETWORK:#04x} is not used: {problems}")
            };
            (value.to_vec(), network.map_err(wrong))
        }));
        found
    }
}

impl Controller for Layers {
    fn name(&self) -> &'static str {
        "network.ConfigController"
    }

    fn inputs(&self) -> Vec<Input> {
        vec![Input::of::<LinkStatus>(Dependency::Weak)]
    }

    fn outputs(&self) -> Vec<Output> {
        let mut outputs = layer_outputs();
        outputs.push(Output::exclusive::<StaticHost>());
        outputs.push(Output::exclusive::<LinkAliasSpec>());
        outputs
    }

    async fn run(mut self, context: &mut Context) -> Result<(), Failure> {
        let Some(setup) = Setup::wait(&mut self.setup).await else {
            return Ok(());
        };
        let parameters = parameters(&setup.cmdline);
        let mut first = None;
        // Each setting that cannot be applied is logged once.
        let mut told = Vec::new();
        let mut meta = MetaNetwork::default();
        loop {
            tokio::select! {
                () = context.event() => {}
                () = self.platform.changed() => {}
                changed = self.config.changed() => if changed.is_err() {
                    return Ok(());
                },
            }
            let links = context.list::<LinkStatus>()?;
            let present: Present = links
                .iter()
                .map(|link| (link.id().to_owned(), (**link).clone()))
                .collect();
            let said = match &*self.config.borrow_and_update() {
                Some(document) => layer_from_config(document, &present),
                None => Said::default(),
            };
            let kind = setup.cmdline.platform();
            let (platform, mut complaints) = self.platform.said(kind, &present, &mut meta);
            complaints.extend(said.complaints.iter().cloned());
            let all = layers(&setup, &parameters, platform, &said, &present, &mut first);
            context.start_outputs();
            for (layer, specs) in &all {
                write(context, layer.name(), specs)?;
            }
            forget_others(context)?;
            for (name, addresses) in said.hosts {
                context.put(Draft::new(&name, StaticHost { addresses }))?;
            }
            context.remove_others::<StaticHost>()?;
            for (link, alias) in said.aliases {
                context.put(Draft::new(&link, LinkAliasSpec { alias }))?;
            }
            context.remove_others::<LinkAliasSpec>()?;
            for complaint in &complaints {
                if !told.contains(complaint) {
                    console::warn(&format!("network: {complaint}"));
                }
            }
            told = complaints;
        }
    }
}

/// Computes the layers. `first` is the link for an `ip=` without a device: the first link found, while it exists.
fn layers(
    setup: &Setup,
    parameters: &Parameters,
    platform: Specs,
    said: &Said,
    present: &Present,
    first: &mut Option<String>,
) -> [(Layer, Specs); 4] {
    let ignored: BTreeSet<String> = said.ignored.union(&parameters.ignored).cloned().collect();
    let physical: Vec<String> = present
        .iter()
        .filter(|(name, link)| link.is_physical() && !ignored.contains(*name))
        .map(|(name, _)| name.clone())
        .collect();
    if !first.as_ref().is_some_and(|first| physical.contains(first)) {
        *first = physical.first().cloned();
    }
    let cmdline = parameters.specs(&physical, first.as_deref());
    let [cmdline, platform] = [cmdline, platform].map(|specs| specs.without(&ignored));
    let config = said.specs.clone();
    let spoken_for: BTreeSet<String> = [&cmdline, &platform, &config]
        .iter()
        .flat_map(|specs| &specs.links)
        .map(|link| link.name.clone())
        .collect();
    let name = &setup.default_hostname;
    let default = default_layer::specs(name, &physical, &spoken_for);
    [
        (Layer::Default, default),
        (Layer::Cmdline, cmdline),
        (Layer::Platform, platform),
        (Layer::Configuration, config),
    ]
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use corten_base::cmdline::Cmdline;
    use corten_base::sample;
    use corten_network::Network;
    use corten_resources::controller::Runtime;
    use corten_resources::{Pointer, Start, Store};
    use corten_types::network::{HostnameStatus, NodeAddress};
    use corten_types::network_names::{HostnameSpec, OperatorSpec};
    use corten_types::network_spec::{LAYERS, LinkSpec};

    use super::*;
    use crate::merge::Merge;

    /// Waits until a resource exists; the test runner's timeout bounds the wait.
    async fn there(store: &Store, pointer: &Pointer) {
        let mut watcher = store.watch(pointer, Start::Now).unwrap();
        while store.get(pointer).is_err() {
            watcher.next().await.unwrap();
        }
    }

    /// Waits until a resource is gone.
    async fn gone(store: &Store, pointer: &Pointer) {
        let mut watcher = store.watch(pointer, Start::Now).unwrap();
        while store.get(pointer).is_ok() {
            watcher.next().await.unwrap();
        }
    }

    #[tokio::test]
    async fn unconfigured_link_uses_dhcp_until_a_config_arrives() {
        let store = Store::new();
        store.add_namespace(LAYERS, "").unwrap();
        let (setup, config) = (watch::Sender::new(None), watch::Sender::new(None));
        let meta = watch::Sender::new(Values::new());
        let mut runtime = Runtime::new(store.clone());
        runtime
            .add(Layers {
                setup: setup.subscribe(),
                platform: Platform {
                    meta: meta.subscribe(),
                    seed: watch::Sender::new(None).subscribe(),
                },
                config: config.subscribe(),
            })
            .unwrap();
        runtime.add(Merge::<LinkSpec>::named("links")).unwrap();
        runtime
            .add(Merge::<OperatorSpec>::named("operators"))
            .unwrap();
        runtime.add(Merge::<HostnameSpec>::named("names")).unwrap();
        let _running = tokio::spawn(runtime.run(|notice| panic!("{notice}")));
        store
            .put(Draft::new("eth0", LinkStatus::with_device()), "")
            .unwrap();
        setup.send_replace(Some(Arc::new(Setup {
            cmdline: Cmdline::parse("talos.hostname=n1"),
            default_hostname: "corten-1".to_owned(),
            names: PathBuf::new(),
        })));
        let operator = Pointer::of::<OperatorSpec>("dhcp4/eth0");
        there(&store, &operator).await;
        there(&store, &Pointer::of::<HostnameSpec>("hostname")).await;
        let name = store.get_as::<HostnameSpec>("hostname").unwrap();
        assert_eq!((&*name.hostname, name.layer), ("n1", Layer::Cmdline));
        let lowest = Pointer::of::<HostnameSpec>("default/hostname").in_namespace(LAYERS);
        store.get(&lowest).unwrap();

        // The platform overrides the kernel command line for a link to which it assigns an address.
        let value =
            b"hostnames: [{hostname: n2}]\naddresses: [{address: 10.0.0.3/24, linkName: eth0}]\n";
        meta.send_replace(Values::from([(PLATFORM_NETWORK, value.to_vec())]));
        gone(&store, &operator).await;
        let named = Pointer::of::<HostnameSpec>("platform/hostname").in_namespace(LAYERS);
        store.get(&named).unwrap();
        // An invalid value withdraws the previous one.
        meta.send_replace(Values::from([(
            PLATFORM_NETWORK,
            b"hostnames: n2".to_vec(),
        )]));
        gone(&store, &named).await;
        there(&store, &operator).await;

        let network = "network: {interfaces: [{interface: eth0, addresses: [10.0.0.2/24]}]}";
        config.send_replace(Some(sample::config(network, "")));
        gone(&store, &operator).await;
        let link = store.get_as::<LinkSpec>("eth0").unwrap();
        assert_eq!(link.layer, Layer::Configuration);
    }

    #[test]
    fn ignored_links_get_no_settings_of_any_layer() {
        let line = "corten.platform=metal ip=10.0.0.2::10.0.0.1:24::eth0 ip=eth1:dhcp ip=eth2:dhcp \
                    talos.network.interface.ignore=eth1 talos.network.interface.ignore=";
        let setup = Setup {
            cmdline: Cmdline::parse(line),
            default_hostname: "corten-1".to_owned(),
            names: PathBuf::new(),
        };
        let present: Present = ["eth0", "eth1", "eth2"]
            .map(|name| (name.to_owned(), LinkStatus::with_device()))
            .into();
        let text = b"
addresses: [{address: 10.0.1.2/24, linkName: eth0}, {address: 10.0.2.2/24, linkName: eth2}]
links: [{name: eth0, mtu: 1400}]
routes: [{gateway: 10.0.1.1, outLinkName: eth0}, {dst: 10.9.0.0/16, type: blackhole}]
operators: [{operator: dhcp6, linkName: eth1}]
";
        let platform =
            platform_layer::of_meta(&PlatformNetwork::from_meta(text).unwrap(), &present);
        let network = "network: {interfaces: [{interface: eth0, ignore: true}]}";
        let said = layer_from_config(&sample::config(network, ""), &present);
        let parameters = parameters(&setup.cmdline);
        let all = layers(&setup, &parameters, platform, &said, &present, &mut None);
        let mut links = BTreeSet::new();
        for (_, specs) in &all {
            links.extend(specs.links.iter().map(|spec| spec.name.as_str()));
            links.extend(specs.addresses.iter().map(|spec| spec.link_name.as_str()));
            links.extend(specs.routes.iter().map(|spec| spec.out_link_name.as_str()));
            links.extend(specs.operators.iter().map(|spec| spec.link_name.as_str()));
        }
        // The blackhole route has no link.
        assert_eq!(links, BTreeSet::from(["", "eth2", "lo"]));
    }

    #[test]
    fn platform_network_in_meta_is_parsed_only_after_a_change() {
        let mut meta = MetaNetwork::default();
        let names =
            |found: &Result<PlatformNetwork, String>| found.clone().unwrap().hostnames.len();
        let one = b"hostnames: [{hostname: a}]";
        assert_eq!(names(meta.read(one)), 1);
        // The cached result is modified, which shows whether it is used.
        meta.0
            .as_mut()
            .unwrap()
            .1
            .as_mut()
            .unwrap()
            .hostnames
            .clear();
        assert_eq!(names(meta.read(one)), 0);
        let wrong = meta.read(b"hostnames: a").clone().unwrap_err();
        assert!(
            wrong.starts_with("META 0x0a is not used: line 1"),
            "{wrong}"
        );
        assert_eq!(names(meta.read(one)), 1);
    }

    #[tokio::test]
    async fn network_follower_sees_writes_after_its_start() {
        let store = Store::new();
        let network = Network::follow(&store);
        let name = HostnameStatus {
            hostname: "n1".to_owned(),
            domainname: "example.org".to_owned(),
        };
        store.put(Draft::new(HostnameStatus::ID, name), "").unwrap();
        let current = NodeAddress {
            addresses: vec!["10.0.2.15/24".to_owned()],
            sort_algorithm: "v1",
        };
        store
            .put(Draft::new(NodeAddress::CURRENT, current), "")
            .unwrap();
        // The name is written before the address, so a visible address implies the name.
        network.reachable().await;
        let status = network.status();
        assert_eq!(status.hostname, "n1.example.org");
        assert_eq!(
            status.addresses,
            ["10.0.2.15".parse::<std::net::IpAddr>().unwrap()]
        );
    }
}
