//! Sockets of a DHCPv4 client. It captures frames on its link. A socket with an address would miss answers to a client
//! without one, and broadcast refusals. A firewall may drop answers.

use std::io;
use std::net::Ipv4Addr;

use corten_base::console;
use corten_sys::packet::{Capture, Instruction};
use dhcproto::v4::{CLIENT_PORT, SERVER_PORT};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::net::UdpSocket;
use tokio::task::yield_now;
use tokio::time::sleep;

use super::frame;
use super::machine::{Event, Listens};
use super::message::{Answer, Identity};
use crate::{Asking, RETRY};

/// Frames to read before other tasks of the node run: the link may be flooded.
const BURST: u32 = 32;

/// The sockets that the state of a client needs.
pub(super) struct Wire<'a> {
    asking: &'a Asking,
    identity: Identity,
    listens: Listens,
    capture: Option<AsyncFd<Capture>>,
    /// Socket for messages to one server, with its source address.
    unicast: Option<(Ipv4Addr, UdpSocket)>,
}

impl Wire<'_> {
    pub fn new(asking: &Asking, identity: Identity) -> Wire<'_> {
        Wire {
            asking,
            identity,
            listens: Listens::Nothing,
            capture: None,
            unicast: None,
        }
    }

    /// Opens what this state needs and closes the rest. The machine's messages come later, so no answer is missed.
    pub fn listen(&mut self, listens: Listens) {
        if listens != Listens::Answers {
            self.unicast = None;
        }
        if self.listens != listens {
            (self.listens, self.capture) = (listens, None);
        }
        let filter: &[Instruction] = match listens {
            Listens::Nothing => return,
            Listens::Answers => &frame::ANSWERS,
            Listens::Claims(_) => &frame::CLAIMS,
        };
        if self.capture.is_none() {
            match open(self.asking.index, filter) {
                Ok(capture) => self.capture = Some(capture),
                Err(error) => self.complain(&error),
            }
        }
    }

    fn complain(&self, error: &io::Error) {
        let name = &self.asking.name;
        console::warn(&format!("network: DHCP on {name}: cannot listen: {error}"));
    }

    /// Returns the next event on the link. After a failure of the socket it returns after a pause.
    pub async fn next(&mut self) -> Event {
        if self.listens == Listens::Nothing {
            return std::future::pending().await;
        }
        // A server may send answers faster than they are read.
        yield_now().await;
        if let Some(capture) = &self.capture {
            match self.received(capture).await {
                Ok(event) => return event,
                Err(error) => {
                    self.complain(&error);
                    self.capture = None;
                }
            }
        }
        sleep(RETRY).await;
        Event::Timer
    }

    async fn received(&self, capture: &AsyncFd<Capture>) -> io::Result<Event> {
        let mut buffer = vec![0; frame::LONGEST];
        let mut burst = 0;
        loop {
            let mut ready = capture.readable().await?;
            let Some(packet) = capture.get_ref().next(&mut buffer, false)? else {
                ready.clear_ready();
                continue;
            };
            let found = buffer.get(..packet.captured).unwrap_or_default();
            if let Some(event) = self.event(found, packet.has_checksum) {
                return Ok(event);
            }
            burst += 1;
            if burst == BURST {
                burst = 0;
                yield_now().await;
            }
        }
    }

    fn event(&self, found: &[u8], has_checksum: bool) -> Option<Event> {
        match self.listens {
            Listens::Nothing => None,
            Listens::Answers => {
                let message = frame::message(found, has_checksum)?;
                let answer = Answer::read(message, &self.identity)?;
                Some(Event::Answer(Box::new(answer)))
            }
            Listens::Claims(address) => {
                frame::claim(found, self.identity.mac, address).map(Event::Claim)
            }
        }
    }

    /// A failed send counts as a lost packet: the link may be gone for a moment.
    pub fn broadcast(&self, from: Ipv4Addr, message: &[u8]) {
        if let Some(frame) = frame::broadcast(self.identity.mac, from, message) {
            self.send(&frame);
        }
    }

    pub fn probe(&self, address: Ipv4Addr) {
        self.send(&frame::probe(self.identity.mac, address));
    }

    fn send(&self, frame: &[u8]) {
        // Messages may follow the state that listened for their answers.
        let sent = match &self.capture {
            Some(capture) => capture.get_ref().send(frame),
            None => Capture::start(self.asking.index, false, &frame::CLAIMS)
                .and_then(|capture| capture.send(frame)),
        };
        let _ = sent;
    }

    /// Sends a message to a server, from an address of the link. Without that address, the message is broadcast.
    pub async fn unicast(&mut self, from: Ipv4Addr, to: Ipv4Addr, message: &[u8]) {
        if self.unicast.as_ref().is_none_or(|(own, _)| *own != from) {
            // The kernel would refuse the server's answer (ICMP) if no socket waited for it.
            self.unicast = self.bound(from).await.ok().map(|socket| (from, socket));
        }
        let sent = match &self.unicast {
            Some((_, socket)) => socket.send_to(message, (to, SERVER_PORT)).await.is_ok(),
            None => false,
        };
        if !sent {
            self.broadcast(from, message);
        }
    }

    async fn bound(&self, from: Ipv4Addr) -> io::Result<UdpSocket> {
        let socket = UdpSocket::bind((from, CLIENT_PORT)).await?;
        socket.bind_device(Some(self.asking.name.as_bytes()))?;
        Ok(socket)
    }
}

#[expect(
    deprecated,
    reason = "its successor is unsafe; a capture keeps its descriptor as long as it lives"
)]
fn open(index: u32, filter: &[Instruction]) -> io::Result<AsyncFd<Capture>> {
    AsyncFd::with_interest(Capture::start(index, false, filter)?, Interest::READABLE)
}
