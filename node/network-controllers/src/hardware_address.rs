//! Shows the hardware address that identifies the machine: that of its first link with a device.

use corten_resources::Draft;
use corten_resources::controller::{Context, Controller, Dependency, Failure, Input, Output};
use corten_types::network::LinkStatus;
use corten_types::network_hardware::HardwareAddress;

#[derive(Debug, Clone)]
pub(crate) struct First;

impl Controller for First {
    fn name(&self) -> &'static str {
        "network.HardwareAddrController"
    }

    fn inputs(&self) -> Vec<Input> {
        vec![Input::of::<LinkStatus>(Dependency::Weak)]
    }

    fn outputs(&self) -> Vec<Output> {
        vec![Output::exclusive::<HardwareAddress>()]
    }

    async fn run(self, context: &mut Context) -> Result<(), Failure> {
        loop {
            context.event().await;
            let links = context.list::<LinkStatus>()?;
            context.start_outputs();
            if let Some(link) = links.iter().find(|link| link.is_physical()) {
                let address = HardwareAddress {
                    name: link.id().to_owned(),
                    hardware_addr: link.hardware_addr.clone(),
                };
                context.put(Draft::new(HardwareAddress::FIRST, address))?;
            }
            context.remove_others::<HardwareAddress>()?;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use corten_resources::controller::Runtime;
    use corten_resources::{Pointer, Start, Store};
    use tokio::time::timeout;

    use super::*;

    async fn until(store: &Store, name: Option<&str>) {
        let pointer = Pointer::of::<HardwareAddress>(HardwareAddress::FIRST);
        let mut watcher = store.watch(&pointer, Start::Now).unwrap();
        let reached = async {
            loop {
                let first = store.get_as::<HardwareAddress>(HardwareAddress::FIRST);
                if first.map(|first| first.name.clone()).as_deref() == name {
                    return;
                }
                watcher.next().await.unwrap();
            }
        };
        timeout(Duration::from_secs(20), reached).await.unwrap();
    }

    #[tokio::test]
    async fn hardware_address_is_that_of_the_first_physical_link() {
        let store = Store::new();
        let mut runtime = Runtime::new(store.clone());
        runtime.add(First).unwrap();
        tokio::spawn(runtime.run(|notice| panic!("{notice}")));
        let put = |name: &str, link: LinkStatus| {
            store.put(Draft::new(name, link), "").unwrap();
        };
        let bridge = LinkStatus {
            kind: "bridge".to_owned(),
            ..LinkStatus::with_device()
        };
        put("br0", bridge);
        put("eth1", LinkStatus::with_device());
        until(&store, Some("eth1")).await;
        let first = store.get_as::<HardwareAddress>(HardwareAddress::FIRST);
        assert_eq!(first.unwrap().hardware_addr, "52:54:00:00:00:01");
        put("eth0", LinkStatus::with_device());
        until(&store, Some("eth0")).await;
        for name in ["eth0", "eth1"] {
            let link = Pointer::of::<LinkStatus>(name);
            store.destroy(&link, "").unwrap();
        }
        until(&store, None).await;
    }
}
