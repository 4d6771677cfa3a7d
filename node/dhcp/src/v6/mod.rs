//! The DHCPv6 client (RFC 8415).

mod machine;
mod message;

pub(crate) use message::Lease;

use std::io;
use std::net::{Ipv6Addr, SocketAddrV6};

use corten_network::layers::Specs;
use tokio::net::UdpSocket;
use tokio::sync::mpsc;
use tokio::task::yield_now;
use tokio::time::sleep;

use crate::random::Random;
use crate::{Outside, RETRY};

use machine::{Action, Event, Machine};
use message::{Answer, Identity};

/// Ports and the multicast group of all servers (RFC 8415, sections 7.1 and 7.2).
const CLIENT_PORT: u16 = 546;
const SERVER_PORT: u16 = 547;
const SERVERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 1, 2);
/// Size limit of one packet in bytes.
const LONGEST: usize = 1500;

/// Runs the client until `again` closes. Its messages come from `source`; `former` is the address that the link had
/// before.
pub(super) async fn run(
    mut outside: Outside<'_, impl Fn(Option<Specs>)>,
    again: &mut mpsc::UnboundedReceiver<()>,
    source: Ipv6Addr,
    former: Option<Ipv6Addr>,
) {
    let (asking, clock) = (outside.asking, outside.clock);
    let identity = Identity {
        duid: asking.duid.clone(),
        iaid: asking.iaid,
    };
    let servers = SocketAddrV6::new(SERVERS, SERVER_PORT, 0, asking.index);
    let own = SocketAddrV6::new(source, CLIENT_PORT, 0, asking.index);
    let random = Random::from_kernel();
    let end = outside.end();
    let mut machine = Machine::new(identity.clone(), random, former, end, clock.now());
    let mut socket = None;
    loop {
        let event = tokio::select! {
            biased;
            carrier = again.recv() => match carrier {
                Some(()) => Event::Carrier,
                None => return,
            },
            () = clock.until(Some(machine.deadline())) => Event::Timer,
            event = next(socket.as_ref(), &identity), if machine.listens() => match event {
                Ok(event) => event,
                Err(error) => {
                    outside.complain(&format!("cannot listen: {error}"));
                    socket = None;
                    Event::Timer
                }
            },
        };
        let actions = machine.handle(event, clock.now());
        if !machine.listens() {
            socket = None;
        } else if socket.is_none() {
            match UdpSocket::bind(own).await {
                Ok(bound) => socket = Some(bound),
                Err(error) => outside.complain(&format!("cannot bind {source}: {error}")),
            }
        }
        for action in actions {
            match action {
                Action::Send(message) => {
                    if let Some(socket) = &socket {
                        // A failed send counts as a lost packet: the link may be gone for a moment.
                        let _ = socket.send_to(&message, servers).await;
                    }
                }
                Action::Tell(news) => outside.report(news),
            }
        }
    }
}

/// Returns the next answer to this client. Without a socket it returns after a pause.
async fn next(socket: Option<&UdpSocket>, identity: &Identity) -> io::Result<Event> {
    let Some(socket) = socket else {
        sleep(RETRY).await;
        return Ok(Event::Timer);
    };
    let mut buffer = vec![0; LONGEST];
    loop {
        // A server may send answers faster than they are read.
        yield_now().await;
        let (length, _) = socket.recv_from(&mut buffer).await?;
        if let Some(answer) = Answer::read(buffer.get(..length).unwrap_or_default(), identity) {
            return Ok(Event::Answer(Box::new(answer)));
        }
    }
}
