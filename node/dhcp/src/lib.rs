//! The DHCP clients of a link: they obtain a lease, renew it at T1 and T2, and report its end.
//!
//! Owns: both versions, the node's identity towards servers, the addresses of earlier boots, leases as specs.
//! Never: sets an address, or decides on which links it asks.

pub mod former;
#[cfg(test)]
mod hostile_tests;
pub mod identity;
mod lease;
mod options;
mod random;
mod v4;
mod v6;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use corten_base::console;
use corten_network::layers::Specs;
use corten_types::network_names::Dhcp;
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep_until};

use former::{Former, Stored};
use options::is_of_one;

/// Pause after a failure of a socket or a useless answer: a broken server repeats its answer at once.
const RETRY: Duration = Duration::from_secs(3);
/// A lifetime without an end (RFC 2131, section 3.3; RFC 8415, section 7.7).
const FOR_EVER: u32 = u32::MAX;
/// The shortest time to a renewal: a server must not make the node busy.
const SOONEST_RENEWAL: Duration = Duration::from_secs(1);

/// A link, as its DHCP clients see it.
///
/// A lease holds until it expires, even when the server is unreachable or the client fails. After a cable is unplugged
/// and plugged in again, the client asks whether the lease still holds and keeps it meanwhile. Only the server of the
/// lease can revoke it earlier.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Asking {
    /// Interface index in the kernel.
    pub index: u32,
    /// Interface name in the kernel.
    pub name: String,
    /// Hardware address of the link.
    pub mac: Vec<u8>,
    /// DUID: the identity of the node ([`identity`]).
    pub duid: Vec<u8>,
    /// IAID: the number of the link within that identity (RFC 8415, section 4.2).
    pub iaid: u32,
    /// DHCP settings of the link.
    pub dhcp: Dhcp,
    /// Source address of the requests: the link-local address for DHCPv6, `None` for DHCPv4.
    pub source: Option<Ipv6Addr>,
}

/// A report of a machine about its lease.
#[derive(Debug, Clone, PartialEq, Eq)]
enum News<L> {
    /// A lease begins or continues. It ends at this time of the client's clock.
    Lease(Box<L>, Duration),
    /// The lease is over.
    Over(Over),
    /// A line for the console.
    Complaint(String),
}

/// Why a lease is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Over {
    Expired,
    Revoked,
}

/// A lease of either protocol version.
trait Leased {
    type Address: Stored;

    fn address(&self) -> Self::Address;
    fn specs(&self, asking: &Asking) -> Specs;
}

/// The clock of a client, which starts at zero.
#[derive(Debug, Clone, Copy)]
struct Clock(Instant);

impl Clock {
    fn start() -> Clock {
        Clock(Instant::now())
    }

    fn now(self) -> Duration {
        self.0.elapsed()
    }

    /// Returns at this time; never for `None` and for times beyond the clock's range.
    async fn until(self, time: Option<Duration>) {
        match time.and_then(|time| self.0.checked_add(time)) {
            Some(time) => sleep_until(time).await,
            None => std::future::pending().await,
        }
    }
}

/// The outside of a client: where it reports its lease and keeps its address.
struct Outside<'a, T> {
    asking: &'a Asking,
    clock: Clock,
    ends: &'a mut Option<Instant>,
    former: &'a Former,
    tell: T,
}

impl<T: Fn(Option<Specs>)> Outside<'_, T> {
    /// End of the lease that an earlier client reported.
    fn end(&self) -> Option<Duration> {
        self.ends
            .map(|end| end.saturating_duration_since(self.clock.0))
    }

    fn report<L: Leased>(&mut self, news: News<L>) {
        let name = &self.asking.name;
        match news {
            News::Lease(lease, end) => {
                *self.ends = self.clock.0.checked_add(end);
                (self.tell)(Some(lease.specs(self.asking)));
                keep(self.former, name, lease.address());
            }
            News::Over(over) => {
                let line = match over {
                    Over::Expired => format!("network: the DHCP lease on {name} expired"),
                    Over::Revoked => {
                        format!("network: the server revoked the DHCP lease on {name}")
                    }
                };
                console::warn(&line);
                *self.ends = None;
                (self.tell)(None);
            }
            News::Complaint(what) => self.complain(&what),
        }
    }

    fn complain(&self, what: &str) {
        console::warn(&format!("network: DHCP on {}: {what}", self.asking.name));
    }
}

/// Runs the client for as long as the link exists. `tell` receives the settings of a lease, and `None` when it ends;
/// `again` signals that the carrier is back.
///
/// A client requests the `former` address of the link and stores the address it gets. `ends` survives a restart of the
/// client: the end of the lease that it reported.
pub async fn ask(
    asking: Asking,
    again: &mut mpsc::UnboundedReceiver<()>,
    ends: &mut Option<Instant>,
    former: &Former,
    tell: impl Fn(Option<Specs>) + Send,
) {
    let outside = Outside {
        asking: &asking,
        clock: Clock::start(),
        ends,
        former,
        tell,
    };
    match asking.source {
        None => v4::run(outside, again, read::<Ipv4Addr>(former, &asking).await).await,
        Some(source) => {
            v6::run(
                outside,
                again,
                source,
                read::<Ipv6Addr>(former, &asking).await,
            )
            .await;
        }
    }
}

/// Off the async threads: the volume may be slow.
async fn read<A: Stored>(former: &Former, asking: &Asking) -> Option<A> {
    let (former, link) = (former.clone(), asking.name.clone());
    let read = spawn_blocking(move || former.address(&link));
    read.await.ok().flatten()
}

/// Does not block the client: a lease is renewed even if the volume fails.
fn keep<A: Stored>(former: &Former, link: &str, address: A) {
    let (former, link) = (former.clone(), link.to_owned());
    spawn_blocking(move || former.keep(&link, address));
}

/// The complaint about an address that no host can have.
fn useless(address: impl Into<IpAddr>) -> Option<String> {
    let address = address.into();
    (!is_of_one(address))
        .then(|| format!("a server offers {address}, which is not a valid host address"))
}

fn seconds(seconds: u32) -> Duration {
    Duration::from_secs(seconds.into())
}
