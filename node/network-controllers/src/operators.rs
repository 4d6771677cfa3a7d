//! Runs DHCP clients on links and writes their results as a layer.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::path::Path;
use std::time::Duration;

use corten_base::panics::caught;
use corten_dhcp::former::Former;
use corten_dhcp::{Asking, ask, identity};
use corten_network::layers::Specs;
use corten_resources::controller::{Context, Controller, Dependency, Failure, Input, Output};
use corten_types::network::{AddressStatus, LinkStatus};
use corten_types::network_names::OperatorSpec;
use corten_types::network_spec::Layer;
use corten_volumes::STATE;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::sleep;
use uuid::Uuid;

use super::{forget_others, layer_outputs, write};

/// Delay before a restart after a panic of a client.
const AGAIN: Duration = Duration::from_secs(10);

/// Runs a client for each [`OperatorSpec`].
#[derive(Debug, Clone)]
pub(crate) struct Operators;

/// A running client.
struct Client {
    asking: Asking,
    /// Distinguishes its reports from those of an earlier client.
    number: u64,
    has_carrier: bool,
    again: mpsc::UnboundedSender<()>,
    task: tokio::task::AbortHandle,
    specs: Option<Specs>,
}

impl Drop for Client {
    fn drop(&mut self) {
        self.task.abort();
    }
}

type News = (String, u64, Option<Specs>);

impl Controller for Operators {
    fn name(&self) -> &'static str {
        "network.OperatorSpecController"
    }

    fn inputs(&self) -> Vec<Input> {
        vec![
            Input::of::<OperatorSpec>(Dependency::Weak),
            Input::of::<LinkStatus>(Dependency::Weak),
            Input::of::<AddressStatus>(Dependency::Weak),
        ]
    }

    fn outputs(&self) -> Vec<Output> {
        layer_outputs()
    }

    async fn run(self, context: &mut Context) -> Result<(), Failure> {
        let mut clients: BTreeMap<String, Client> = BTreeMap::new();
        let mut tasks = JoinSet::new();
        let (sender, mut news) = mpsc::unbounded_channel::<News>();
        let mut number = 0;
        let machine = identity::machine(Path::new("/"));
        let former = Former::on_volume(Path::new(STATE.target));
        loop {
            tokio::select! {
                () = context.event() => {
                    let wanted = wanted(context, machine)?;
                    clients.retain(|id, client| {
                        wanted.get(id).is_some_and(|(asking, _)| *asking == client.asking)
                    });
                    for (id, (asking, has_carrier)) in wanted {
                        if let Some(client) = clients.get_mut(&id) {
                            // A new carrier may mean another network.
                            if has_carrier && !client.has_carrier {
                                let _ = client.again.send(());
                            }
                            client.has_carrier = has_carrier;
                        } else if has_carrier {
                            // A request before there is a carrier would be lost.
                            number += 1;
                            let client = start(&id, number, asking, &former, &sender, &mut tasks);
                            clients.insert(id, client);
                        }
                    }
                }
                Some((id, number, specs)) = news.recv() => {
                    if let Some(client) = clients.get_mut(&id)
                        && client.number == number
                    {
                        client.specs = specs;
                    }
                }
                Some(_) = tasks.join_next() => continue,
            }
            context.start_outputs();
            for (id, client) in &clients {
                if let Some(specs) = &client.specs {
                    let whose = format!("{}/{id}", Layer::Operator.name());
                    write(context, &whose, specs)?;
                }
            }
            forget_others(context)?;
        }
    }
}

/// Wanted clients by the operator's id, and whether the link has a carrier.
fn wanted(
    context: &Context,
    machine: Option<Uuid>,
) -> Result<BTreeMap<String, (Asking, bool)>, Failure> {
    let mut wanted = BTreeMap::new();
    let addresses = context.list::<AddressStatus>()?;
    for spec in context.list::<OperatorSpec>()? {
        let Some(link) = context.get::<LinkStatus>(&spec.link_name)? else {
            continue;
        };
        let source = if spec.operator == "dhcp6" {
            let own = addresses
                .iter()
                .find_map(|status| link_local(status, &spec));
            let Some(own) = own else { continue };
            Some(own)
        } else {
            None
        };
        let mac = link.mac();
        let hardware = link.is_physical().then_some(&*mac);
        let asking = Asking {
            index: link.index,
            name: spec.link_name.clone(),
            duid: identity::duid(&spec.dhcp.client_identifier, machine, &mac),
            iaid: identity::iaid(&spec.link_name, hardware),
            mac,
            dhcp: spec.dhcp.clone(),
            source,
        };
        wanted.insert(spec.id().to_owned(), (asking, link.link_state));
    }
    Ok(wanted)
}

/// The source address for DHCPv6, once duplicate address detection has finished.
fn link_local(status: &AddressStatus, spec: &OperatorSpec) -> Option<Ipv6Addr> {
    let usable = status.link_name == spec.link_name
        && status.scope == "link"
        && !status
            .flags
            .split(',')
            .any(|flag| ["tentative", "dadfailed"].contains(&flag));
    let address = status.address.split('/').next()?.parse().ok()?;
    match address {
        IpAddr::V6(address) if usable => Some(address),
        _ => None,
    }
}

fn start(
    id: &str,
    number: u64,
    asking: Asking,
    former: &Former,
    news: &mpsc::UnboundedSender<News>,
    tasks: &mut JoinSet<()>,
) -> Client {
    let (again, mut carrier) = mpsc::unbounded_channel();
    let news = news.clone();
    let own = id.to_owned();
    let tell = move |specs| drop(news.send((own.clone(), number, specs)));
    let (asked, former) = (asking.clone(), former.clone());
    let task = tasks.spawn(async move {
        // Its last result stays valid for its lifetime while it restarts: an answer that makes it panic costs no
        // address.
        let mut ends = None;
        while caught(ask(asked.clone(), &mut carrier, &mut ends, &former, &tell))
            .await
            .is_err()
        {
            sleep(AGAIN).await;
        }
    });
    Client {
        asking,
        number,
        has_carrier: true,
        again,
        task,
        specs: None,
    }
}
