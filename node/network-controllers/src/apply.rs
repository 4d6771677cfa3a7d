//! Applies links, addresses and routes; the only controller that changes them in the kernel.

use std::sync::Arc;

use corten_base::console;
use corten_network::apply::{Memory, Rtnetlink, apply, units};
use corten_resources::controller::{Context, Controller, Dependency, Failure, Input, Output};
use corten_types::network_spec::{AddressSpec, LinkSpec, RouteSpec};
use rtnetlink::MulticastGroup;
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep_until};

use crate::netlink::Kernel;

/// Makes the kernel follow the specs after every change of either.
#[derive(Debug, Clone, Default)]
pub(crate) struct Apply {
    /// Record of applied changes; shared by all runs, so that it survives a restart.
    pub(crate) memory: Arc<Mutex<Memory>>,
}

impl Controller for Apply {
    fn name(&self) -> &'static str {
        "network.LinkSpecController"
    }

    fn inputs(&self) -> Vec<Input> {
        vec![
            Input::of::<LinkSpec>(Dependency::Weak),
            Input::of::<AddressSpec>(Dependency::Weak),
            Input::of::<RouteSpec>(Dependency::Weak),
        ]
    }

    fn outputs(&self) -> Vec<Output> {
        vec![]
    }

    async fn run(self, context: &mut Context) -> Result<(), Failure> {
        let mut kernel = Kernel::connect(&[
            MulticastGroup::Link,
            MulticastGroup::Ipv4Ifaddr,
            MulticastGroup::Ipv6Ifaddr,
            MulticastGroup::Ipv4Route,
            MulticastGroup::Ipv6Route,
        ])?;
        let rtnetlink = Rtnetlink(kernel.handle.clone());
        loop {
            let again = self.memory.lock().await.again();
            tokio::select! {
                () = context.event() => {}
                changed = kernel.changed() => changed?,
                () = sleep_until(again.unwrap_or_else(Instant::now)), if again.is_some() => {}
            }
            let units = units(
                context
                    .list::<LinkSpec>()?
                    .iter()
                    .map(|spec| (**spec).clone()),
                context
                    .list::<AddressSpec>()?
                    .iter()
                    .map(|spec| (**spec).clone()),
                context
                    .list::<RouteSpec>()?
                    .iter()
                    .map(|spec| (**spec).clone()),
            );
            let mut memory = self.memory.lock().await;
            for complaint in apply(&rtnetlink, &mut memory, &units, Instant::now()).await? {
                console::warn(&format!("network: {complaint}"));
            }
        }
    }
}
