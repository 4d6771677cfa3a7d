//! The DHCP clients of a link: they obtain a lease, renew it at T1 and T2, and report its end.
//!
//! A lease holds until it expires, even when the server is unreachable or the client fails. After a cable is unplugged
//! and plugged in again, the client queries servers anew and keeps the lease. Only the server of the lease can revoke
//! it earlier.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use corten_base::console;
use corten_types::network_names::Dhcp;
use mozim::{
    DhcpError, DhcpV4Client, DhcpV4Config, DhcpV4State, DhcpV6Client, DhcpV6Config, DhcpV6Duid,
    DhcpV6Lease, DhcpV6Mode, DhcpV6State, ErrorKind,
};
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, timeout};

use super::former::Former;
use super::layers::Specs;
use super::{lease, refusal, solicit};

/// Pause after a failure of the client itself or a useless answer. mozim retransmits lost packets on its own.
const RETRY: Duration = Duration::from_secs(3);
/// Time for a server to acknowledge the address it offered: two requests of mozim's.
const ANSWER: Duration = Duration::from_secs(10);
/// Time for all DHCPv6 servers to confirm a lease: also two requests (RFC 8415, section 7.6).
const CONFIRM: Duration = Duration::from_secs(15);
/// Type of a client identifier that consists of a four-byte IAID and a DUID (RFC 4361, section 6.1).
const DUID_CLIENT_ID: u8 = 255;

/// A link, as its DHCP clients see it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Asking {
    /// Interface index in the kernel.
    pub index: u32,
    /// Interface name in the kernel.
    pub name: String,
    /// Hardware address of the link.
    pub mac: Vec<u8>,
    /// DUID: the identity of the node ([`super::identity`]).
    pub duid: Vec<u8>,
    /// IAID: the number of the link within that identity (RFC 8415, section 4.2).
    pub iaid: u32,
    /// DHCP settings of the link.
    pub dhcp: Dhcp,
    /// Source address of the requests: the link-local address for DHCPv6, `None` for DHCPv4.
    pub source: Option<Ipv6Addr>,
}

/// Result of one run of a client.
enum News {
    /// No result yet.
    None,
    /// Settings that a server gave, and the remaining lifetime of the lease.
    Lease(Box<Specs>, Duration),
    /// The exchange failed: the client starts over, and an existing lease stays.
    Anew,
    /// The server revoked the lease.
    Refused,
}

/// A client of either protocol version.
enum Client {
    V4(Box<V4>),
    V6(Box<V6>),
}

/// A DHCPv4 client.
struct V4 {
    client: DhcpV4Client,
    state: DhcpV4State,
    /// Server that gave the lease.
    server: Ipv4Addr,
}

impl V4 {
    async fn run(&mut self, asking: &Asking) -> Result<News, DhcpError> {
        let run = self.client.run();
        self.state = match self.state {
            // mozim alone would request the offered address for ever, even from a server that is gone or refuses.
            DhcpV4State::Selecting => match timeout(ANSWER, run).await {
                Ok(state) => state?,
                Err(_) => return Ok(News::Anew),
            },
            DhcpV4State::Renewing => tokio::select! {
                // The listener must be open before the renewal is sent, or it can miss the refusal.
                biased;
                () = refused(asking, self.server) => return Ok(News::Refused),
                state = run => state?,
            },
            // mozim's rebind names the unreachable server, so other servers would ignore it (RFC 2131, section 4.3.2).
            // A server that is queried anew gives the same address if it can.
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

/// A DHCPv6 client.
struct V6 {
    client: DhcpV6Client,
    state: DhcpV6State,
    /// Source address of the requests.
    source: Ipv6Addr,
    lease: Option<DhcpV6Lease>,
    /// Address that the link had before.
    former: Option<Ipv6Addr>,
    /// Whether the lease may belong to another network.
    doubts: bool,
}

impl V6 {
    /// Without a lease, the client solicits one. With a lease, it asks all servers to confirm it, which takes fewer
    /// messages.
    async fn new(
        asking: &Asking,
        source: Ipv6Addr,
        kept: Option<DhcpV6Lease>,
        former: Option<Ipv6Addr>,
    ) -> Result<V6, DhcpError> {
        let mut config = DhcpV6Config::new(&asking.name, DhcpV6Mode::NonTemporaryAddresses);
        config
            .set_iface_index(asking.index)
            .set_link_local_ip(source)
            .set_duid(DhcpV6Duid::Raw(asking.duid.clone()));
        let mut own = V6 {
            client: DhcpV6Client::init(config, None).await?,
            state: DhcpV6State::Solicit,
            source,
            lease: kept.clone(),
            former,
            doubts: kept.is_some(),
        };
        if let Some(mut due) = kept {
            (due.t1_sec, due.t2_sec) = (1, 1);
            own.hold(due)?;
        }
        Ok(own)
    }

    /// Hands a lease to mozim as if a server had just given it.
    fn hold(&mut self, lease: DhcpV6Lease) -> Result<(), DhcpError> {
        self.client.done(lease.clone())?;
        self.state = DhcpV6State::Done(Box::new(lease));
        Ok(())
    }

    async fn run(&mut self, asking: &Asking) -> Result<News, DhcpError> {
        self.state = match self.state {
            // Covers an expired lease, too.
            DhcpV6State::Solicit => {
                let found = solicit::obtain(asking, self.source, self.former).await?;
                self.hold(found)?;
                return self.news(asking);
            }
            DhcpV6State::Rebind if self.doubts => match timeout(CONFIRM, self.client.run()).await {
                Ok(state) => state?,
                Err(_) => return Ok(News::Anew),
            },
            _ => self.client.run().await?,
        };
        self.news(asking)
    }

    /// The news that the current state amounts to.
    fn news(&mut self, asking: &Asking) -> Result<News, DhcpError> {
        let DhcpV6State::Done(found) = &self.state else {
            return Ok(News::None);
        };
        usable(found.address)?;
        self.doubts = false;
        self.former = Some(found.address);
        self.lease = Some((**found).clone());
        let specs = lease::of_v6(&asking.name, found);
        Ok(News::Lease(Box::new(specs), seconds(found.valid_time_sec)))
    }
}

impl Client {
    async fn new(
        asking: &Asking,
        kept: Option<DhcpV6Lease>,
        former: Option<Ipv6Addr>,
    ) -> Result<Client, DhcpError> {
        match asking.source {
            None => {
                let mut config = DhcpV4Config::new(&asking.name);
                config
                    .set_iface_index(asking.index)
                    .set_iface_mac_raw(&asking.mac)?
                    .request_extra_dhcp_opts(&[lease::SEARCH_DOMAINS]);
                identify(&mut config, asking);
                Ok(Client::V4(Box::new(V4 {
                    client: DhcpV4Client::init(config, None).await?,
                    state: DhcpV4State::InitReboot,
                    server: Ipv4Addr::UNSPECIFIED,
                })))
            }
            Some(source) => {
                let client = V6::new(asking, source, kept, former).await?;
                Ok(Client::V6(Box::new(client)))
            }
        }
    }

    /// Runs until the state changes.
    async fn run(&mut self, asking: &Asking) -> Result<News, DhcpError> {
        match self {
            Client::V4(client) => client.run(asking).await,
            Client::V6(client) => client.run(asking).await,
        }
    }

    /// The lease that the next client of the same link continues with.
    fn kept(&self) -> Option<DhcpV6Lease> {
        match self {
            Client::V4(_) => None,
            Client::V6(client) => client.lease.clone(),
        }
    }
}

/// Rejects an address that no host can have. The existing lease stays. The next attempt waits for [`RETRY`], because a
/// broken server repeats its answer at once.
fn usable(address: impl Into<IpAddr>) -> Result<(), DhcpError> {
    let address = address.into();
    if lease::is_of_one(address) {
        return Ok(());
    }
    let what = format!("a server offers {address}, which is not a valid host address");
    Err(DhcpError::new(ErrorKind::InvalidDhcpMessage, what))
}

fn seconds(seconds: u32) -> Duration {
    Duration::from_secs(seconds.into())
}

/// Returns when the server revokes its lease. Without a listening socket the lease is kept for its full lifetime.
async fn refused(asking: &Asking, server: Ipv4Addr) {
    if let Err(error) = refusal::heard(asking.index, &asking.mac, server).await {
        let name = &asking.name;
        console::warn(&format!("network: DHCP on {name}: {error}"));
        std::future::pending::<()>().await;
    }
}

fn identify(config: &mut DhcpV4Config, asking: &Asking) {
    match asking.dhcp.client_identifier.client_identifier {
        "none" => {}
        "duid" => {
            let id = [&asking.iaid.to_be_bytes(), &*asking.duid].concat();
            config.set_client_id(DUID_CLIENT_ID, &id);
        }
        _ => drop(config.use_mac_as_client_id()),
    }
}

/// Runs the client for as long as the link exists. `tell` receives the settings of a lease, and `None` when it ends;
/// `again` signals that the carrier is back.
///
/// A DHCPv6 client requests the `former` address of the link and stores the address it gets. mozim cannot request an
/// address by DHCPv4; those servers recognize the link by its client identifier.
pub async fn ask(
    asking: Asking,
    again: &mut mpsc::UnboundedReceiver<()>,
    ends: &mut Option<Instant>,
    former: &Former,
    tell: impl Fn(Option<Specs>) + Send,
) {
    let mut kept = None;
    let mut address = match asking.source {
        Some(_) => read(former, &asking).await,
        None => None,
    };
    loop {
        let mut client = match Client::new(&asking, kept.take(), address).await {
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
                    console::warn(&format!("network: the DHCP lease on {name} expired"));
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
                        let lease = client.as_ref().and_then(Client::kept);
                        let given = lease.map(|lease| lease.address);
                        if let Some(given) = given.filter(|_| given != address) {
                            address = Some(given);
                            keep(former, &asking, given);
                        }
                    }
                    Ok(News::Anew) => break,
                    Ok(News::Refused) => {
                        let name = &asking.name;
                        console::warn(&format!("network: the server revoked the DHCP lease on {name}"));
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

/// Off the async threads: the volume may be slow.
async fn read(former: &Former, asking: &Asking) -> Option<Ipv6Addr> {
    let (former, link) = (former.clone(), asking.name.clone());
    let read = spawn_blocking(move || former.address(&link));
    read.await.ok().flatten()
}

/// Does not block the client: a lease is renewed even if the volume fails.
fn keep(former: &Former, asking: &Asking, address: Ipv6Addr) {
    let (former, link) = (former.clone(), asking.name.clone());
    spawn_blocking(move || former.keep(&link, address));
}

fn complain(asking: &Asking, error: &DhcpError) {
    let name = &asking.name;
    console::warn(&format!("network: DHCP on {name}: {}", error.msg()));
}
