//! The DHCPv4 client (RFC 2131).

mod frame;
mod machine;
mod message;
mod name;
mod wire;

pub(crate) use message::Lease;

use std::net::Ipv4Addr;

use corten_network::layers::Specs;
use tokio::sync::mpsc;

use crate::Outside;
use crate::random::Random;

use machine::{Action, Event, Machine};
use message::Identity;
use name::Name;
use wire::Wire;

/// Runs the client until `again` closes. `former` is the address that the link had before.
pub(super) async fn run(
    mut outside: Outside<'_, impl Fn(Option<Specs>)>,
    again: &mut mpsc::UnboundedReceiver<()>,
    former: Option<Ipv4Addr>,
) {
    let (asking, clock) = (outside.asking, outside.clock);
    let Ok(mac) = <[u8; 6]>::try_from(&*asking.mac) else {
        outside.complain("the link has no Ethernet address, which DHCPv4 needs");
        // The controller starts another client when the link has another address.
        while again.recv().await.is_some() {}
        return;
    };
    let identity = Identity::new(asking, mac);
    let random = Random::from_kernel();
    let end = outside.end();
    let mut machine = Machine::new(identity.clone(), random, former, end, clock.now());
    machine.name = Name::new(asking.dhcp.skip_hostname);
    let mut wire = Wire::new(asking, identity);
    loop {
        let event = tokio::select! {
            biased;
            carrier = again.recv() => match carrier {
                Some(()) => Event::Carrier,
                None => return,
            },
            () = clock.until(Some(machine.deadline())) => Event::Timer,
            event = wire.next() => event,
        };
        machine.name.own = name::own(&corten_sys::host::hostname());
        let actions = machine.handle(event, clock.now());
        wire.listen(machine.listens());
        for action in actions {
            match action {
                Action::Broadcast { from, message } => wire.broadcast(from, &message),
                Action::Unicast { from, to, message } => wire.unicast(from, to, &message).await,
                Action::Probe(address) => wire.probe(address),
                Action::Tell(news) => outside.report(news),
            }
        }
    }
}
