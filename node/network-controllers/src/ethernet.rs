//! Applies and shows settings of link devices. Kernel messages serve only as a change signal; the full state is then
//! queried.

use std::collections::BTreeMap;
use std::time::Duration;

use corten_base::console;
use corten_config::Document;
use corten_config::kinds::EthernetConfig;
use corten_network::ethtool::{Ethtool, NoAnswer};
use corten_network::links::{Present, real_name};
use corten_resources::Draft;
use corten_resources::controller::{Context, Controller, Dependency, Failure, Input, Output};
use corten_types::network::LinkStatus;
use corten_types::network_ethernet::{EthernetSpec, EthernetStatus};
use futures_util::FutureExt as _;
use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::sleep;

/// Delay after a change, to coalesce a burst of changes.
const BUNCH: Duration = Duration::from_millis(50);
/// Retry interval: a device may accept a refused setting later.
const RETRY: Duration = Duration::from_secs(60);

/// Shows the device settings of the config.
#[derive(Debug, Clone)]
pub(crate) struct Wishes {
    pub(crate) config: watch::Receiver<Option<Document>>,
}

impl Controller for Wishes {
    fn name(&self) -> &'static str {
        "network.EthernetConfigController"
    }

    fn inputs(&self) -> Vec<Input> {
        // Needed to resolve link aliases.
        vec![Input::of::<LinkStatus>(Dependency::Weak)]
    }

    fn outputs(&self) -> Vec<Output> {
        vec![Output::exclusive::<EthernetSpec>()]
    }

    async fn run(mut self, context: &mut Context) -> Result<(), Failure> {
        loop {
            tokio::select! {
                () = context.event() => {}
                changed = self.config.changed() => if changed.is_err() {
                    return Ok(());
                },
            }
            let links = context.list::<LinkStatus>()?;
            let present: Present = links
                .iter()
                .map(|link| (link.id().to_owned(), (**link).clone()))
                .collect();
            let wishes = wishes(self.config.borrow_and_update().as_ref(), &present);
            context.start_outputs();
            for (link, spec) in wishes {
                context.put(Draft::new(&link, spec))?;
            }
            context.remove_others::<EthernetSpec>()?;
        }
    }
}

fn wishes(document: Option<&Document>, present: &Present) -> BTreeMap<String, EthernetSpec> {
    let configs = document
        .into_iter()
        .flat_map(Document::all::<EthernetConfig>);
    configs
        .map(|config| {
            let link = real_name(&config.name, present).to_owned();
            (link, EthernetSpec::from(config))
        })
        .collect()
}

/// Applies the settings. A dropped setting stays in effect, because its previous value is unknown.
#[derive(Debug, Clone)]
pub(crate) struct Settings;

impl Controller for Settings {
    fn name(&self) -> &'static str {
        "network.EthernetSpecController"
    }

    fn inputs(&self) -> Vec<Input> {
        vec![
            Input::of::<EthernetSpec>(Dependency::Weak),
            Input::of::<LinkStatus>(Dependency::Weak),
        ]
    }

    fn outputs(&self) -> Vec<Output> {
        vec![]
    }

    async fn run(self, context: &mut Context) -> Result<(), Failure> {
        let ethtool = Ethtool::new()?;
        // Each failure is logged once.
        let mut told = Vec::new();
        loop {
            tokio::select! {
                () = context.event() => {}
                () = sleep(RETRY), if !told.is_empty() => {}
            }
            let links = context.list::<LinkStatus>()?;
            let is_there = |name: &str| links.iter().any(|link| link.id() == name);
            let specs = context.list::<EthernetSpec>()?;
            let wanted = specs
                .iter()
                .filter(|spec| is_there(spec.id()))
                .map(|spec| (spec.id().to_owned(), (**spec).clone()))
                .collect();
            let ethtool = ethtool.clone();
            let refused = spawn_blocking(move || set(&ethtool, wanted)).await??;
            for complaint in refused.iter().filter(|one| !told.contains(*one)) {
                console::warn(&format!("network: EthernetConfig {complaint}"));
            }
            told = refused;
        }
    }
}

/// Applies the settings; returns the failures in human-readable form.
fn set(ethtool: &Ethtool, wanted: Vec<(String, EthernetSpec)>) -> Result<Vec<String>, NoAnswer> {
    let mut complaints = Vec::new();
    for (link, spec) in wanted {
        let refused = ethtool.set(&link, &spec)?;
        complaints.extend(refused.iter().map(|what| format!("{link}: {what}")));
    }
    Ok(complaints)
}

#[derive(Debug, Clone)]
pub(crate) struct Statuses;

impl Controller for Statuses {
    fn name(&self) -> &'static str {
        "network.EthernetStatusController"
    }

    fn inputs(&self) -> Vec<Input> {
        vec![Input::of::<LinkStatus>(Dependency::Weak)]
    }

    fn outputs(&self) -> Vec<Output> {
        vec![Output::exclusive::<EthernetStatus>()]
    }

    async fn run(self, context: &mut Context) -> Result<(), Failure> {
        let ethtool = Ethtool::new()?;
        let mut changes = ethtool.listen()?;
        loop {
            tokio::select! {
                () = context.event() => {}
                changed = changes.next() => {
                    changed?;
                    sleep(BUNCH).await;
                    while let Some(more) = changes.next().now_or_never() {
                        more?;
                    }
                }
            }
            let links = context.list::<LinkStatus>()?;
            let names = links.iter().map(|link| link.id().to_owned()).collect();
            let ethtool = ethtool.clone();
            // A driver may have to query its device, which can be slow.
            let found = spawn_blocking(move || statuses(&ethtool, names)).await??;
            context.start_outputs();
            for (name, status) in found {
                context.put(Draft::new(&name, status))?;
            }
            context.remove_others::<EthernetStatus>()?;
        }
    }
}

fn statuses(
    ethtool: &Ethtool,
    names: Vec<String>,
) -> Result<Vec<(String, EthernetStatus)>, NoAnswer> {
    let mut found = Vec::new();
    for name in names {
        if let Some(status) = ethtool.status(&name)? {
            found.push((name, status));
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use corten_base::sample;
    use corten_base::testing::alone;
    use corten_resources::controller::Runtime;
    use corten_resources::{AnySpec as _, Pointer, Spec, Start, Store};
    use rtnetlink::{LinkUnspec, LinkVeth};
    use tokio::time::timeout;

    use super::*;
    use crate::netlink::links::Links;

    async fn until(store: &Store, done: impl Fn(Option<&EthernetStatus>) -> bool) {
        let pointer = Pointer::of::<EthernetStatus>("veth0");
        let mut watcher = store.watch(&pointer, Start::Now).unwrap();
        let reached = async {
            while !done(store.get_as::<EthernetStatus>("veth0").as_deref()) {
                watcher.next().await.unwrap();
            }
        };
        timeout(Duration::from_secs(20), reached).await.unwrap();
    }

    #[test]
    fn ethernet_status_follows_the_device() {
        alone(async {
            let (connection, handle, _) = rtnetlink::new_connection().unwrap();
            tokio::spawn(connection);
            let store = Store::new();
            let mut runtime = Runtime::new(store.clone());
            runtime.add(Links::default()).unwrap();
            runtime.add(Statuses).unwrap();
            tokio::spawn(runtime.run(|notice| panic!("{notice}")));
            let pair = LinkVeth::new("veth0", "veth1").build();
            handle.link().add(pair).execute().await.unwrap();
            until(&store, |status| {
                status.is_some_and(|status| status.link_state == Some(false))
            })
            .await;
            for name in ["veth0", "veth1"] {
                let up = LinkUnspec::new_with_name(name).up().build();
                handle.link().set(up).execute().await.unwrap();
            }
            until(&store, |status| {
                status.is_some_and(|status| status.link_state == Some(true))
            })
            .await;
            assert!(store.get_as::<EthernetStatus>("lo").is_none());
            let link = store.get_as::<LinkStatus>("veth0").unwrap();
            let peer = link.veth.as_ref().map(|veth| &*veth.peer_name);
            assert_eq!((peer, &*link.port), (Some("veth1"), "Other"));
            handle.link().del(link.index).execute().await.unwrap();
            until(&store, |status| status.is_none()).await;
        });
    }

    fn document(more: &str) -> Document {
        sample::kind(&format!("EthernetConfig\n{more}"))
    }

    #[test]
    fn ethernet_settings_apply_to_the_link_of_their_alias() {
        let document = document(
            "name: uplink\nrings: {rx: 512, tx-push: true}\nchannels: {combined: 4}\nwakeOnLan: []\n",
        );
        let link = LinkStatus {
            alias: "uplink".to_owned(),
            ..LinkStatus::with_device()
        };
        let present = Present::from([("eth0".to_owned(), link)]);
        let found = wishes(Some(&document), &present);
        let spec = &found["eth0"];
        assert_eq!(
            spec.to_yaml().unwrap(),
            "rings:\n  rx: 512\n  tx-push: true\nchannels:\n  combined: 4\nwakeOnLan: []\n"
        );
        assert_eq!(spec.message().rings.unwrap().rx, Some(512));
        assert!(wishes(Some(&document), &Present::new()).contains_key("uplink"));
        assert!(wishes(None, &present).is_empty());
    }

    #[test]
    fn ethernet_settings_follow_the_config() {
        alone(async {
            let (connection, handle, _) = rtnetlink::new_connection().unwrap();
            tokio::spawn(connection);
            let store = Store::new();
            let config = watch::Sender::new(None);
            let mut runtime = Runtime::new(store.clone());
            runtime.add(Links::default()).unwrap();
            runtime.add(Statuses).unwrap();
            runtime.add(Settings).unwrap();
            let wishes = Wishes {
                config: config.subscribe(),
            };
            runtime.add(wishes).unwrap();
            tokio::spawn(runtime.run(|notice| panic!("{notice}")));
            let switched = |wanted: &'static str| {
                move |status: Option<&EthernetStatus>| {
                    let features = status.map(|status| &status.features).into_iter().flatten();
                    let mut found = features.filter(|one| one.name == "tx-scatter-gather");
                    found.any(|one| one.status == wanted)
                }
            };
            let wish = |is_on| format!("name: veth0\nfeatures: {{tx-scatter-gather: {is_on}}}\n");
            // The setting exists before the device.
            config.send_replace(Some(document(&wish(false))));
            let pair = LinkVeth::new("veth0", "veth1").build();
            handle.link().add(pair).execute().await.unwrap();
            until(&store, switched("off")).await;
            config.send_replace(Some(document(&wish(true))));
            until(&store, switched("on")).await;
        });
    }
}
