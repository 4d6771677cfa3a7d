//! Tests the DHCP clients against a hostile server, which sends many damaged answers before a good one, and a benign
//! one.

use std::ffi::OsString;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6, UdpSocket};
use std::ops::Range;
use std::sync::mpsc as channel;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use corten_base::testing::{Neighbour, alone, cable, give, kernel, on_a_volume};
use corten_corpus::{hostile, sample};
use corten_network::layers::Specs;
use corten_types::network_names::Dhcp;
use corten_values::is_host_name;
use futures_util::TryStreamExt as _;
use nix::sys::socket::{setsockopt, sockopt};
use proptest::strategy::{Strategy as _, ValueTree as _};
use proptest::test_runner::TestRunner;
use rtnetlink::Handle;
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

use super::former::Former;
use super::identity::{duid, iaid};
use super::{Asking, ask};

const MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
/// The kernel derives it from the hardware address (RFC 4291, appendix A).
const LINK_LOCAL: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0xff, 0xfe00, 1);
/// Multicast group of the DHCPv6 servers (RFC 8415, section 7.1).
const SERVERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 1, 2);
/// Offset of the options in a DHCPv4 message, after the magic cookie (RFC 2131, section 3).
const OPTIONS: usize = 240;
/// Damaged answers to a request; more do not fit into the client's receive queue.
const DAMAGED: usize = 100;
/// Clients that run one after the other.
const CLIENTS: usize = 8;
/// Time limit for a client that a bad answer misled; then a new client replaces it, as on a node.
const ASTRAY: Duration = Duration::from_secs(10);
/// Idle time after which a server ends.
const IDLE: Duration = Duration::from_secs(60);
/// Time limit of a test, because a client without a lease waits for ever.
const PATIENCE: Duration = Duration::from_secs(300);

async fn within_patience(test: impl Future<Output = ()>) {
    timeout(PATIENCE, test).await.expect("no lease");
}

/// Copies the ranges `places` of a request into its answer.
fn answering(question: &[u8], answer: &mut [u8], places: &[Range<usize>]) {
    for place in places {
        if let (Some(to), Some(from)) = (answer.get_mut(place.clone()), question.get(place.clone()))
        {
            to.copy_from_slice(from);
        }
    }
}

/// Range of the IAID, the first four bytes of an IA_NA option, in a DHCPv6 message (RFC 8415, section 21.4).
fn number(message: &[u8]) -> Option<Range<usize>> {
    let mut at = 4;
    loop {
        let [code, length] = [at, at + 2].map(|at| {
            let bytes = message.get(at..at + 2)?;
            Some(usize::from(u16::from_be_bytes(bytes.try_into().ok()?)))
        });
        if code? == 3 {
            return (message.len() >= at + 8).then_some(at + 4..at + 8);
        }
        at += 4 + length?;
    }
}

fn answer_v4(question: &[u8], mut answer: Vec<u8>) -> Vec<u8> {
    // Transaction id and hardware address of the client (RFC 2131, section 2).
    answering(question, &mut answer, &[4..8, 28..34]);
    answer
}

fn answer_v6(question: &[u8], mut answer: Vec<u8>) -> Vec<u8> {
    answering(question, &mut answer, std::slice::from_ref(&(1..4)));
    if let (Some(from), Some(to)) = (number(question), number(&answer)) {
        let number = question[from].to_vec();
        answer[to].copy_from_slice(&number);
    }
    answer
}

/// Range of the address in the IA_NA, after two times and an option header (RFC 8415, section 21.6).
fn address(message: &[u8]) -> Option<Range<usize>> {
    let number = number(message)?;
    let address = number.start + 16..number.start + 32;
    message.get(address.clone())?;
    (message[number.start + 12..number.start + 14] == [0, 5]).then_some(address)
}

/// Answers requests at this socket. `good` names the sample of a good answer, `to` its destination.
fn serve(
    socket: UdpSocket,
    format: &'static str,
    good: fn(&[u8]) -> &'static str,
    to: fn(SocketAddr) -> SocketAddr,
    answer: fn(&[u8], Vec<u8>) -> Vec<u8>,
) -> JoinHandle<()> {
    socket.set_read_timeout(Some(IDLE)).unwrap();
    thread::spawn(move || {
        let (mut runner, strategy) = (TestRunner::deterministic(), hostile(format));
        let mut buffer = [0; 1500];
        while let Ok((length, from)) = socket.recv_from(&mut buffer) {
            let question = &buffer[..length];
            let damaged = (0..DAMAGED).map(|_| strategy.new_tree(&mut runner).unwrap().current());
            let whole = sample(format, good(question));
            for bytes in damaged.chain([whole]) {
                // The client may be gone; it retransmits a request without an answer.
                let _ = socket.send_to(&answer(question, bytes), to(from));
            }
        }
    })
}

async fn index(handle: &Handle, link: &str) -> u32 {
    let found = handle.link().get().match_name(link.to_owned()).execute();
    let found: Vec<_> = found.try_collect().await.unwrap();
    found[0].header.index
}

/// Both ends of a cable, switched on.
async fn neighbour() -> Neighbour {
    let neighbour = cable(MAC).await;
    neighbour.asks(async |handle| give(&handle, "far", &["10.0.0.1"]).await);
    give(&kernel(), "plug", &[]).await;
    neighbour
}

fn check(specs: &Specs) {
    for spec in &specs.addresses {
        assert!(!spec.address.address.is_unspecified(), "{specs:?}");
    }
    let resolver = specs.resolver.iter();
    let domains = resolver.flat_map(|spec| spec.search_domains.iter());
    let names = domains.chain(specs.hostname.iter().map(|spec| &spec.hostname));
    for name in names {
        assert!(is_host_name(name), "{name:?}");
    }
}

/// Socket of a DHCPv4 server.
fn server_v4(neighbour: &Neighbour) -> UdpSocket {
    neighbour.acts(|| {
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 67)).unwrap();
        setsockopt(&socket, sockopt::BindToDevice, &OsString::from("far")).unwrap();
        socket.set_broadcast(true).unwrap();
        socket
    })
}

#[test]
fn hostile_dhcpv4_servers_do_not_end_the_client() {
    alone(within_patience(async {
        let neighbour = neighbour().await;
        let socket = server_v4(&neighbour);
        let good = |question: &[u8]| {
            let discovers = question.windows(3).any(|option| option == [53, 1, 1]);
            if discovers { "offer" } else { "ack" }
        };
        let everybody = |_| SocketAddr::from((Ipv4Addr::BROADCAST, 68));
        let server = serve(socket, "dhcpv4", good, everybody, answer_v4);
        let asking = asking_v4().await;
        let nowhere = tempfile::tempdir().unwrap();
        let former = Former::on_volume(nowhere.path());
        let mut leases = 0;
        while leases < CLIENTS {
            assert!(!server.is_finished(), "the server ended");
            let lease = listening(asking.clone(), &former, async |told| {
                let lease = timeout(ASTRAY, told.recv()).await.ok()?;
                check(&lease??);
                Some(())
            });
            leases += usize::from(lease.await.is_some());
        }
    }));
}

/// The link, as a DHCPv4 client sees it.
async fn asking_v4() -> Asking {
    Asking {
        index: index(&kernel(), "plug").await,
        name: "plug".to_owned(),
        mac: MAC.to_vec(),
        ..Asking::default()
    }
}

/// Socket of a DHCPv6 server; waits until the client's link has a usable address.
async fn server_v6(neighbour: &Neighbour, index: u32) -> UdpSocket {
    // The address is unusable until the kernel's duplicate address detection ends.
    let own = SocketAddrV6::new(LINK_LOCAL, 0, 0, index);
    while UdpSocket::bind(own).is_err() {
        sleep(Duration::from_millis(50)).await;
    }
    neighbour.acts(|| {
        let socket = UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 547)).unwrap();
        let far = nix::net::if_::if_nametoindex("far").unwrap();
        socket.join_multicast_v6(&SERVERS, far).unwrap();
        socket
    })
}

/// The link, as a DHCPv6 client sees it.
fn asking_v6(index: u32) -> Asking {
    let dhcp = Dhcp::default();
    Asking {
        index,
        name: "plug".to_owned(),
        mac: MAC.to_vec(),
        duid: duid(&dhcp.client_identifier, None, &MAC),
        iaid: iaid("plug", Some(&MAC)),
        dhcp,
        source: Some(LINK_LOCAL),
    }
}

/// Runs a client while `listen` consumes the leases that it reports.
async fn listening<T>(
    asking: Asking,
    former: &Former,
    listen: impl AsyncFnOnce(&mut mpsc::UnboundedReceiver<Option<Specs>>) -> T,
) -> T {
    let (_carrier, mut again) = mpsc::unbounded_channel();
    let (telling, mut told) = mpsc::unbounded_channel();
    let tell = move |specs| telling.send(specs).unwrap();
    let mut ends = None;
    tokio::select! {
        () = ask(asking, &mut again, &mut ends, former, tell) => panic!("nobody asks any more"),
        heard = listen(&mut told) => heard,
    }
}

#[test]
fn hostile_dhcpv6_servers_do_not_end_the_client() {
    alone(within_patience(async {
        let neighbour = neighbour().await;
        let index = index(&kernel(), "plug").await;
        let socket = server_v6(&neighbour, index).await;
        let good = |question: &[u8]| match question.first() {
            Some(1) => "advertise",
            _ => "reply",
        };
        let server = serve(socket, "dhcpv6", good, |from| from, answer_v6);
        let nowhere = tempfile::tempdir().unwrap();
        let former = Former::on_volume(nowhere.path());
        for _ in 0..CLIENTS {
            assert!(!server.is_finished(), "the server ended");
            listening(asking_v6(index), &former, async |told| {
                let lease = timeout(ASTRAY, told.recv()).await;
                if let Some(lease) = lease.ok().flatten().flatten() {
                    check(&lease);
                }
            })
            .await;
        }
    }));
}

/// Fields of a DHCPv6 request: message type, DUID, IAID and requested address.
type Said = (u8, Vec<u8>, Vec<u8>, Option<Vec<u8>>);

/// A server without memory: it gives the next free address to a client that requests none. It reports each request.
fn forgetful(socket: UdpSocket) -> channel::Receiver<Said> {
    socket.set_read_timeout(Some(IDLE)).unwrap();
    let (telling, told) = channel::channel();
    thread::spawn(move || {
        let mut buffer = [0; 1500];
        let mut next = 1;
        while let Ok((length, from)) = socket.recv_from(&mut buffer) {
            let question = &buffer[..length];
            let kind = question[0];
            let mut answer = sample("dhcpv6", if kind == 1 { "advertise" } else { "reply" });
            let wanted = address(question).map(|place| question[place].to_vec());
            let place = address(&answer).unwrap();
            match &wanted {
                Some(wanted) => answer[place].copy_from_slice(wanted),
                None => {
                    answer[place.end - 1] = next;
                    next += 1;
                }
            }
            // The client identifier comes first (RFC 8415, section 21.2).
            let name = question[8..8 + usize::from(question[7])].to_vec();
            let number = question[number(question).unwrap()].to_vec();
            let _ = telling.send((kind, name, number, wanted));
            let _ = socket.send_to(&answer_v6(question, answer), from);
        }
    });
    told
}

#[test]
fn restarted_client_requests_its_former_address_with_the_same_identity() {
    on_a_volume("mode=700", |volume| {
        alone(within_patience(async {
            let neighbour = neighbour().await;
            let index = index(&kernel(), "plug").await;
            let said = forgetful(server_v6(&neighbour, index).await);
            let asking = asking_v6(index);
            let mut given = Vec::new();
            for _ in 0..2 {
                let former = Former::on_volume(volume);
                let first = listening(asking.clone(), &former, async |told| {
                    let lease = told.recv().await.unwrap().expect("a lease was over");
                    assert!(lease.resolver.is_some(), "{lease:?}");
                    while former.address::<Ipv6Addr>("plug").is_none() {
                        sleep(Duration::from_millis(50)).await;
                    }
                    lease
                });
                given.push(first.await.addresses);
            }
            assert_eq!(given[0], given[1]);
            let said: Vec<Said> = said.try_iter().collect();
            let solicits: Vec<_> = said.iter().filter(|(kind, ..)| *kind == 1).collect();
            let own = given[0][0].address.address.to_string();
            let own: Ipv6Addr = own.parse().unwrap();
            assert_eq!(solicits.first().unwrap().3, None);
            assert_eq!(solicits.last().unwrap().3, Some(own.octets().to_vec()));
            for (_, name, number, _) in &said {
                assert_eq!(*name, asking.duid);
                assert_eq!(*number, asking.iaid.to_be_bytes());
            }
        }));
    });
}

/// A DHCPv4 answer that gives this address for an hour, with a renewal after one second.
fn given(question: &[u8], kind: u8, address: Ipv4Addr) -> Vec<u8> {
    let mut message = sample("dhcpv4", "ack");
    message.truncate(OPTIONS);
    message[16..20].copy_from_slice(&address.octets());
    for option in [
        &[53, 1, kind][..],
        &[54, 4, 10, 0, 0, 1],
        &[51, 4, 0, 0, 0x0e, 0x10],
        &[58, 4, 0, 0, 0, 1],
        &[59, 4, 0, 0, 0x0c, 0x4e],
        &[1, 4, 255, 255, 255, 0],
        &[255],
    ] {
        message.extend_from_slice(option);
    }
    answer_v4(question, message)
}

/// The renewal offers an address that no host can have: the lease stays, and the client asks for another.
#[test]
fn renewal_with_an_invalid_address_keeps_the_lease() {
    const OWN: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 50);
    alone(within_patience(async {
        let neighbour = neighbour().await;
        // The client sends the renewal from the address it has.
        give(&kernel(), "plug", &[&OWN.to_string()]).await;
        let socket = server_v4(&neighbour);
        socket.set_read_timeout(Some(IDLE)).unwrap();
        thread::spawn(move || {
            let mut buffer = [0; 1500];
            while let Ok((length, from)) = socket.recv_from(&mut buffer) {
                let question = &buffer[..length];
                let discovers = question.windows(3).any(|option| option == [53, 1, 1]);
                let kind = if discovers { 2 } else { 5 };
                let (address, to) = if from.ip().is_unspecified() {
                    (OWN, SocketAddr::from((Ipv4Addr::BROADCAST, 68)))
                } else {
                    (Ipv4Addr::UNSPECIFIED, from)
                };
                socket.send_to(&given(question, kind, address), to).unwrap();
            }
        });
        let asking = asking_v4().await;
        let nowhere = tempfile::tempdir().unwrap();
        let former = Former::on_volume(nowhere.path());
        listening(asking, &former, async |told| {
            for _ in 0..2 {
                let specs = told.recv().await.flatten().expect("a lease was over");
                let address = specs.addresses.first().map(|spec| spec.address.address);
                assert_eq!(address, Some(OWN.into()), "{specs:?}");
            }
        })
        .await;
    }));
}

/// Kind and requested address of a DHCPv4 request.
fn asked(question: &[u8]) -> (u8, Option<Ipv4Addr>) {
    let value = |code, length: u8| {
        let options = &question[OPTIONS..];
        let place = options
            .windows(2)
            .position(|found| found == [code, length])?;
        options.get(place + 2..place + 2 + usize::from(length))
    };
    let address = value(50, 4).map(|octets| <[u8; 4]>::try_from(octets).unwrap().into());
    (value(53, 1).unwrap()[0], address)
}

#[test]
fn restarted_dhcpv4_client_requests_its_former_address() {
    const OWN: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 50);
    const DISCOVER: u8 = 1;
    const REQUEST: u8 = 3;
    on_a_volume("mode=700", |volume| {
        alone(within_patience(async {
            let neighbour = neighbour().await;
            let socket = server_v4(&neighbour);
            socket.set_read_timeout(Some(IDLE)).unwrap();
            let (telling, told) = channel::channel();
            thread::spawn(move || {
                let mut buffer = [0; 1500];
                while let Ok((length, _)) = socket.recv_from(&mut buffer) {
                    let question = &buffer[..length];
                    let asked = asked(question);
                    let _ = telling.send(asked);
                    let kind = if asked.0 == DISCOVER { 2 } else { 5 };
                    let everybody = SocketAddr::from((Ipv4Addr::BROADCAST, 68));
                    let _ = socket.send_to(&given(question, kind, OWN), everybody);
                }
            });
            let asking = asking_v4().await;
            for wanted in [
                &[(DISCOVER, None), (REQUEST, Some(OWN))][..],
                &[(REQUEST, Some(OWN))],
            ] {
                let former = Former::on_volume(volume);
                let lease = listening(asking.clone(), &former, async |leases| {
                    let lease = leases.recv().await.flatten().expect("a lease was over");
                    while former.address::<Ipv4Addr>("plug").is_none() {
                        sleep(Duration::from_millis(50)).await;
                    }
                    lease
                });
                assert_eq!(lease.await.addresses[0].address.address, OWN);
                let asked: Vec<_> = told.try_iter().collect();
                assert_eq!(asked, wanted);
            }
        }));
    });
}
