//! A link's DHCP clients: a lease, its renewal at T1 and T2, and its end.
//!
//! A lease holds until its time is up, whatever becomes of the client: also when the server is away, and
//! when a cable is pulled out and put in again, after which servers are asked anew. Only its server can take it
//! back before.

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

/// After an error of the client itself, or an answer of no use; lost packets it repeats on its own.
const RETRY: Duration = Duration::from_secs(3);
/// So long a server that offered an address has to give it: two questions of mozim's.
const ANSWER: Duration = Duration::from_secs(10);
/// So long all servers of DHCPv6 have to confirm a lease: two questions, too (RFC 8415, section 7.6).
const CONFIRM: Duration = Duration::from_secs(15);
/// Type of a client identifier that is four bytes for the link and a DUID (RFC 4361, section 6.1).
const DUID_CLIENT_ID: u8 = 255;

/// A link, for its clients.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Asking {
    /// The kernel's number.
    pub index: u32,
    /// The kernel's name.
    pub name: String,
    /// Its hardware address.
    pub mac: Vec<u8>,
    /// Who the node is, and which of its links this is ([`super::identity`]).
    pub duid: Vec<u8>,
    /// The number of the link within that identity (RFC 8415, section 4.2).
    pub iaid: u32,
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
    /// Where it asks from.
    source: Ipv6Addr,
    lease: Option<DhcpV6Lease>,
    /// The address that the link had before.
    former: Option<Ipv6Addr>,
    /// Whether the lease may be of another network.
    doubts: bool,
}

impl V6 {
    /// Without a lease it asks for one. With one it asks all servers to confirm that, which takes fewer questions.
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

    /// Leaves a lease to mozim, as if it had just been given.
    fn hold(&mut self, lease: DhcpV6Lease) -> Result<(), DhcpError> {
        self.client.done(lease.clone())?;
        self.state = DhcpV6State::Done(Box::new(lease));
        Ok(())
    }

    async fn run(&mut self, asking: &Asking) -> Result<News, DhcpError> {
        self.state = match self.state {
            // Also when a lease has run out.
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

    /// What it has come to.
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

/// Asks for as long as the link is there. `tell` gets what a lease gives, and `None` when it is over; `again`
/// says that the link has its carrier back. By DHCPv6 it asks for the `former` address of the link, and keeps the one
/// it gets; by DHCPv4 mozim can ask for none, and servers know the link by what it says it is.
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

/// The volume may be slow.
async fn read(former: &Former, asking: &Asking) -> Option<Ipv6Addr> {
    let (former, link) = (former.clone(), asking.name.clone());
    let read = spawn_blocking(move || former.address(&link));
    read.await.ok().flatten()
}

/// Nothing waits for it: a lease is renewed whatever becomes of the volume.
fn keep(former: &Former, asking: &Asking, address: Ipv6Addr) {
    let (former, link) = (former.clone(), asking.name.clone());
    spawn_blocking(move || former.keep(&link, address));
}

fn complain(asking: &Asking, error: &DhcpError) {
    let name = &asking.name;
    console::warn(&format!("network: DHCP on {name}: {}", error.msg()));
}
