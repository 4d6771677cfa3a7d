//! A link's DHCP clients: a lease, its renewal at T1 and T2, and its end.
//!
//! A lease holds until its time is up, whatever becomes of the client: also when the server is away, and
//! when a cable is pulled out and put in again, after which servers are asked anew. Only its server can take it
//! back before.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use mozim::{
    DhcpError, DhcpV4Client, DhcpV4Config, DhcpV4State, DhcpV6Client, DhcpV6Config, DhcpV6Duid,
    DhcpV6Lease, DhcpV6Mode, DhcpV6State, ErrorKind,
};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};

use super::layers::Specs;
use super::{lease, refusal};
use crate::console;
use crate::resources::network_names::{ClientIdentifier, Dhcp};

/// After an error of the client itself, or an answer of no use; lost packets it repeats on its own.
const RETRY: Duration = Duration::from_secs(3);
/// So long a server that offered an address has to give it: two questions of mozim's.
const ANSWER: Duration = Duration::from_secs(10);
/// So long all servers of DHCPv6 have to confirm a lease: two questions, too (RFC 8415, section 7.6).
const CONFIRM: Duration = Duration::from_secs(15);
/// Type of a client identifier that is a DUID (RFC 4361, section 6.1).
const DUID_CLIENT_ID: u8 = 255;

/// A link, for its clients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asking {
    /// The kernel's number.
    pub index: u32,
    pub name: String,
    pub mac: Vec<u8>,
    /// How it asks.
    pub dhcp: Dhcp,
    /// Where it asks from: by DHCPv6, its link-local address; by DHCPv4 nothing.
    pub source: Option<Ipv6Addr>,
}

/// What became of a question.
enum News {
    /// Nothing so far.
    None,
    /// What a server gave, and for how long from now on.
    Lease(Box<Specs>, Duration),
    /// It leads to nothing: servers are asked anew, and a lease that there is stays.
    Anew,
    /// The server takes the lease back.
    Refused,
}

/// A client of either version.
enum Client {
    V4(Box<V4>),
    V6(Box<V6>),
}

/// One of DHCPv4.
struct V4 {
    client: DhcpV4Client,
    state: DhcpV4State,
    /// Whose lease it has.
    server: Ipv4Addr,
}

impl V4 {
    async fn run(&mut self, asking: &Asking) -> Result<News, DhcpError> {
        let run = self.client.run();
        self.state = match self.state {
            // Left to itself it asks for what it was offered for ever, though the server be gone or say no.
            DhcpV4State::Selecting => match timeout(ANSWER, run).await {
                Ok(state) => state?,
                Err(_) => return Ok(News::Anew),
            },
            DhcpV4State::Renewing => tokio::select! {
                // Who asks first may miss the answer.
                biased;
                () = refused(asking, self.server) => return Ok(News::Refused),
                state = run => state?,
            },
            // Its question to all servers would name the one that is away, and others keep silent then
            // (RFC 2131, section 4.3.2); who is asked anew gives the same address if it can.
            DhcpV4State::Rebinding => return Ok(News::Anew),
            DhcpV4State::InitReboot | DhcpV4State::Done(_) => run.await?,
        };
        Ok(match &self.state {
            DhcpV4State::Done(found) => {
                usable(found.yiaddr)?;
                self.server = found.srv_id;
                let specs = lease::of_v4(&asking.name, &asking.dhcp, found);
                News::Lease(Box::new(specs), seconds(found.lease_time_sec))
            }
            _ => News::None,
        })
    }
}

/// One of DHCPv6.
struct V6 {
    client: DhcpV6Client,
    state: DhcpV6State,
    lease: Option<DhcpV6Lease>,
    /// Whether the lease may be of another network.
    doubts: bool,
}

impl V6 {
    /// With a lease it asks all servers to confirm that: a client that begins anew has a new number (IAID), for
    /// which servers have another address.
    fn new(mut client: DhcpV6Client, kept: Option<DhcpV6Lease>) -> Result<V6, DhcpError> {
        let mut state = DhcpV6State::Solicit;
        let doubts = kept.is_some();
        if let Some(mut due) = kept.clone() {
            (due.t1_sec, due.t2_sec) = (1, 1);
            client.done(due.clone())?;
            state = DhcpV6State::Done(Box::new(due));
        }
        Ok(V6 {
            client,
            state,
            lease: kept,
            doubts,
        })
    }

    async fn run(&mut self, asking: &Asking) -> Result<News, DhcpError> {
        let run = self.client.run();
        self.state = match self.state {
            DhcpV6State::Rebind if self.doubts => match timeout(CONFIRM, run).await {
                Ok(state) => state?,
                Err(_) => return Ok(News::Anew),
            },
            _ => run.await?,
        };
        Ok(match &self.state {
            DhcpV6State::Done(found) => {
                usable(found.address)?;
                self.doubts = false;
                self.lease = Some((**found).clone());
                let specs = lease::of_v6(&asking.name, found);
                News::Lease(Box::new(specs), seconds(found.valid_time_sec))
            }
            _ => News::None,
        })
    }
}

impl Client {
    async fn new(asking: &Asking, kept: Option<DhcpV6Lease>) -> Result<Client, DhcpError> {
        match asking.source {
            None => {
                let mut config = DhcpV4Config::new(&asking.name);
                config
                    .set_iface_index(asking.index)
                    .set_iface_mac_raw(&asking.mac)?
                    .request_extra_dhcp_opts(&[lease::SEARCH_DOMAINS]);
                identify(&mut config, &asking.dhcp.client_identifier, asking.index);
                Ok(Client::V4(Box::new(V4 {
                    client: DhcpV4Client::init(config, None).await?,
                    state: DhcpV4State::InitReboot,
                    server: Ipv4Addr::UNSPECIFIED,
                })))
            }
            Some(source) => {
                let mode = DhcpV6Mode::NonTemporaryAddresses;
                let mut config = DhcpV6Config::new(&asking.name, mode);
                config
                    .set_iface_index(asking.index)
                    .set_link_local_ip(source)
                    .set_duid_by_iface_mac(&asking.mac);
                let identifier = &asking.dhcp.client_identifier;
                if identifier.client_identifier == "duid" {
                    config.set_duid(DhcpV6Duid::Raw(bytes(&identifier.duid)));
                }
                let client = DhcpV6Client::init(config, None).await?;
                Ok(Client::V6(Box::new(V6::new(client, kept)?)))
            }
        }
    }

    /// Goes on until something has changed.
    async fn run(&mut self, asking: &Asking) -> Result<News, DhcpError> {
        match self {
            Client::V4(client) => client.run(asking).await,
            Client::V6(client) => client.run(asking).await,
        }
    }

    /// What a client of the same link goes on with.
    fn kept(&self) -> Option<DhcpV6Lease> {
        match self {
            Client::V4(_) => None,
            Client::V6(client) => client.lease.clone(),
        }
    }
}

/// An answer with an address that no machine can have is none: the lease that there is stays, and servers are asked
/// anew after a pause, for who gives one gives it again at once.
fn usable(address: impl Into<IpAddr>) -> Result<(), DhcpError> {
    let address = address.into();
    if lease::is_of_one(address) {
        return Ok(());
    }
    let what = format!("a server gives {address}, which no machine can have");
    Err(DhcpError::new(ErrorKind::InvalidDhcpMessage, what))
}

fn seconds(seconds: u32) -> Duration {
    Duration::from_secs(seconds.into())
}

/// Ends when the server takes its lease back. Who cannot hear it keeps the lease for its time.
async fn refused(asking: &Asking, server: Ipv4Addr) {
    if let Err(error) = refusal::heard(asking.index, &asking.mac, server).await {
        let name = &asking.name;
        console::warn(&format!("network: DHCP on {name}: {error}"));
        std::future::pending::<()>().await;
    }
}

fn identify(config: &mut DhcpV4Config, identifier: &ClientIdentifier, index: u32) {
    match identifier.client_identifier {
        "none" => {}
        "duid" => {
            // RFC 4361: four bytes that tell links of one machine apart, then the DUID.
            let id = [&index.to_be_bytes(), &*bytes(&identifier.duid)].concat();
            config.set_client_id(DUID_CLIENT_ID, &id);
        }
        _ => drop(config.use_mac_as_client_id()),
    }
}

/// Hexadecimal digits as bytes; the config has checked them.
fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex
        .chars()
        .filter_map(|digit| digit.to_digit(16))
        .filter_map(|digit| u8::try_from(digit).ok())
        .collect();
    let byte = |pair: &[u8]| match pair {
        [high, low] => Some(high << 4 | low),
        _ => None,
    };
    digits.chunks(2).filter_map(byte).collect()
}

/// Asks for as long as the link is there. `tell` gets what a lease gives, and `None` when it is over; `again`
/// says that the link has its carrier back.
pub async fn ask(
    asking: Asking,
    again: &mut mpsc::UnboundedReceiver<()>,
    ends: &mut Option<Instant>,
    tell: impl Fn(Option<Specs>) + Send,
) {
    let mut kept = None;
    loop {
        let mut client = match Client::new(&asking, kept.take()).await {
            Ok(client) => Some(client),
            Err(error) => {
                complain(&asking, &error);
                None
            }
        };
        loop {
            let over = async {
                match *ends {
                    Some(end) => tokio::time::sleep_until(end).await,
                    None => std::future::pending().await,
                }
            };
            let run = async {
                match &mut client {
                    Some(client) => client.run(&asking).await.map_err(Some),
                    None => {
                        tokio::time::sleep(RETRY).await;
                        Err(None)
                    }
                }
            };
            tokio::select! {
                biased;
                () = over => {
                    let name = &asking.name;
                    console::warn(&format!("network: the DHCP lease on {name} ran out"));
                    *ends = None;
                    tell(None);
                }
                carrier = again.recv() => match carrier {
                    Some(()) => {
                        let lease = client.as_ref().and_then(Client::kept);
                        kept = lease.filter(|_| ends.is_some());
                        break;
                    }
                    None => return,
                },
                result = run => match result {
                    Ok(News::None) => {}
                    Ok(News::Lease(specs, time)) => {
                        *ends = Instant::now().checked_add(time);
                        tell(Some(*specs));
                    }
                    Ok(News::Anew) => break,
                    Ok(News::Refused) => {
                        let name = &asking.name;
                        console::warn(&format!("network: the lease on {name} was taken back"));
                        *ends = None;
                        tell(None);
                        break;
                    }
                    Err(Some(error)) => {
                        complain(&asking, &error);
                        client = None;
                    }
                    Err(None) => break,
                },
            }
        }
    }
}

fn complain(asking: &Asking, error: &DhcpError) {
    let name = &asking.name;
    console::warn(&format!("network: DHCP on {name}: {}", error.msg()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duid_is_read() {
        assert_eq!(bytes("000100FF"), [0, 1, 0, 255]);
        assert!(bytes("").is_empty());
    }
}
