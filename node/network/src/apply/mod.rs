//! Applies the desired network to the kernel, unit by unit: a *unit* is a link with its addresses and routes.
//!
//! `steps.rs` (pure) compares a unit with the kernel's state and returns [`Step`]s. When the kernel refuses a step, the
//! engine rolls the unit back. It retries after something about the unit changes, or after a pause if that may help.

mod announce;
mod bond;
#[cfg(test)]
mod bond_kernel_tests;
mod bond_table;
#[cfg(test)]
mod bond_tests;
mod kernel;
#[cfg(test)]
mod kernel_tests;
mod link_message;
mod refusal;
mod steps;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tunnel_tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use rtnetlink::packet_route::link::InfoBond;
use tokio::time::Instant;

pub use kernel::{Rtnetlink, describe, found_routes};
pub use refusal::Refusal;

use corten_types::network_spec::{AddressSpec, LinkSpec, RouteSpec};
use corten_types::prefix::Prefix;

use crate::wireguard;

/// Desired state of one link. The unit with an empty name holds the routes that belong to no link.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Unit {
    /// The link; absent when the config has only addresses or routes for it.
    pub link: Option<LinkSpec>,
    /// Addresses of the link.
    pub addresses: Vec<AddressSpec>,
    /// Routes through the link.
    pub routes: Vec<RouteSpec>,
}

/// All units, by the name of their link.
pub type Units = BTreeMap<String, Unit>;

/// Groups specs by link.
pub fn units(
    links: impl Iterator<Item = LinkSpec>,
    addresses: impl Iterator<Item = AddressSpec>,
    routes: impl Iterator<Item = RouteSpec>,
) -> Units {
    let mut units = Units::new();
    for link in links {
        let unit = units.entry(link.name.clone()).or_default();
        unit.link = Some(link);
    }
    for address in addresses {
        let unit = units.entry(address.link_name.clone()).or_default();
        unit.addresses.push(address);
    }
    for route in routes {
        let unit = units.entry(route.out_link_name.clone()).or_default();
        unit.routes.push(route);
    }
    units
}

/// A link in the kernel.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FoundLink {
    /// Interface index.
    pub index: u32,
    /// Kind of a virtual link; empty for a device.
    pub kind: String,
    /// Whether the link is administratively up.
    pub is_up: bool,
    /// MTU in bytes.
    pub mtu: u32,
    /// Index of the bond, bridge or VRF that the link is part of, or 0.
    pub master: u32,
    /// Index of the bond's preferred port, or 0.
    pub primary: u32,
    /// Settings that the bond takes while it exists.
    pub bond: Vec<InfoBond>,
    /// Hardware address; empty if the link has none.
    pub hardware_addr: Vec<u8>,
    /// Whether the link receives multicast.
    pub takes_multicast: bool,
    /// Settings of a tunnel; absent if the kernel does not report them.
    pub wireguard: Option<wireguard::Found>,
}

/// A route in the kernel.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct FoundRoute {
    /// Number of its table.
    pub table: u32,
    /// Destination.
    pub dst: Prefix,
    /// Gateway; absent for a route straight onto the link.
    pub gateway: Option<std::net::IpAddr>,
    /// Metric.
    pub priority: u32,
    /// Index of the link; 0 for a route that discards packets.
    pub link: u32,
}

/// A snapshot of the kernel's network.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Found {
    /// Links by name.
    pub links: BTreeMap<String, FoundLink>,
    /// Whether each address is usable as a source yet, by link index and prefix.
    pub addresses: BTreeMap<(u32, Prefix), bool>,
    /// All routes.
    pub routes: BTreeSet<FoundRoute>,
}

/// One change to the kernel's network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Creates a virtual link.
    Make(Box<LinkSpec>),
    /// Deletes a virtual link.
    Delete(String),
    /// Sets a link up or down.
    Up(String, bool),
    /// Sets the MTU.
    Mtu(String, u32),
    /// Sets the hardware address.
    HardwareAddr(String, [u8; 6]),
    /// Enables or disables multicast reception.
    Multicast(String, bool),
    /// Changes the keys, port and peers of a tunnel.
    Wireguard(String, Box<wireguard::Change>),
    /// Attaches a link to another one, or detaches it.
    Master(String, Option<String>),
    /// Changes settings of a bond.
    Bond(String, Vec<InfoBond>),
    /// Prefers a port of a bond, or none.
    Primary(String, Option<String>),
    /// Adds an address.
    AddAddress(AddressSpec),
    /// Removes an address.
    RemoveAddress(AddressSpec),
    /// Adds a route.
    AddRoute(RouteSpec),
    /// Removes a route.
    RemoveRoute(RouteSpec),
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Step::Make(link) => write!(f, "create the {} {}", link.kind, link.name),
            Step::Delete(link) => write!(f, "remove {link}"),
            Step::Up(link, true) => write!(f, "set {link} up"),
            Step::Up(link, false) => write!(f, "set {link} down"),
            Step::Mtu(link, mtu) => write!(f, "set the MTU of {link} to {mtu}"),
            Step::HardwareAddr(link, _) => write!(f, "set the hardware address of {link}"),
            Step::Multicast(link, _) => write!(f, "set multicast of {link}"),
            Step::Wireguard(link, _) => write!(f, "set the keys and peers of {link}"),
            Step::Master(link, Some(master)) => write!(f, "add {link} to {master}"),
            Step::Master(link, None) => write!(f, "remove {link} from its bond or bridge"),
            Step::Bond(link, change) => write!(f, "set {} of {link}", bond::names(change)),
            Step::Primary(bond, Some(port)) => write!(f, "prefer {port} in {bond}"),
            Step::Primary(bond, None) => write!(f, "prefer no link in {bond}"),
            Step::AddAddress(address) => {
                write!(
                    f,
                    "add the address {} to {}",
                    address.address, address.link_name
                )
            }
            Step::RemoveAddress(address) => {
                write!(
                    f,
                    "remove the address {} from {}",
                    address.address, address.link_name
                )
            }
            Step::AddRoute(route) => write!(f, "add the route to {}", route.dst),
            Step::RemoveRoute(route) => write!(f, "remove the route to {}", route.dst),
        }
    }
}

/// The kernel, or a fake in tests.
pub trait Kernel {
    /// Takes a snapshot of the network.
    fn look(&self) -> impl Future<Output = Result<Found, String>> + Send;
    /// Performs one step.
    fn perform(&self, step: &Step) -> impl Future<Output = Result<(), Refusal>> + Send;
}

/// Last state that the engine applied to a unit.
#[derive(Debug, Clone)]
struct Applied {
    unit: Unit,
    /// MTU of the link before its first change.
    mtu: Option<u32>,
    /// Whether the kernel accepted all of it.
    worked: bool,
}

impl Applied {
    /// Whether a refused change to `unit` is rolled back to this state. A link without an address that gets its first
    /// ones, as from a DHCP lease, is reachable with a part of the change, and not without it.
    fn is_safe(&self, unit: Option<&Unit>) -> bool {
        let gets_first = |unit: &Unit| {
            self.unit.addresses.is_empty()
                && !unit.addresses.is_empty()
                && !steps::is_remade(self.unit.link.as_ref(), unit.link.as_ref())
        };
        self.worked && !unit.is_some_and(gets_first)
    }
}

/// Everything that a failed unit depended on: while it is unchanged, a retry would fail again.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Failed {
    unit: Option<Unit>,
    saw: Vec<(String, FoundLink)>,
    /// Listen ports of other tunnels; only for a tunnel.
    ports: Vec<u16>,
    addresses: Vec<(Prefix, bool)>,
    /// Present routes of the unit, now or formerly: another program may remove one.
    routes: Vec<FoundRoute>,
}

/// A failed unit.
#[derive(Debug, Clone)]
struct Failure {
    saw: Failed,
    /// Consecutive refusals.
    refusals: u32,
    /// Time of the retry if nothing changes; `None` for a permanent refusal.
    again: Option<Instant>,
}

/// History of the engine; it survives a restart of the controller.
#[derive(Debug, Default)]
pub struct Memory {
    applied: BTreeMap<String, Applied>,
    failed: BTreeMap<String, Failure>,
}

impl Memory {
    /// Time of the next retry of a transient failure.
    #[must_use]
    pub fn again(&self) -> Option<Instant> {
        let failures = self.failed.values();
        failures.filter_map(|failure| failure.again).min()
    }
}

/// Round limit. Two rounds suffice; a third shows that the kernel reverts a change.
const ROUNDS: usize = 3;

/// Brings the kernel's network as close to `wanted` as possible. Returns the failures as messages for the operator.
/// Transient failures are retried once `now` reaches their time ([`Memory::again`]).
///
/// # Errors
/// The kernel does not report its state.
pub async fn apply(
    kernel: &impl Kernel,
    memory: &mut Memory,
    wanted: &Units,
    now: Instant,
) -> Result<Vec<String>, String> {
    let mut complaints = Vec::new();
    let mut found = kernel.look().await?;
    // A change to one link can change another: a bridge takes its MTU from its ports.
    for _ in 0..ROUNDS {
        let before = found.clone();
        complaints.extend(apply_once(kernel, memory, wanted, now, &mut found).await?);
        if found == before {
            break;
        }
    }
    Ok(complaints)
}

async fn apply_once(
    kernel: &impl Kernel,
    memory: &mut Memory,
    wanted: &Units,
    now: Instant,
    found: &mut Found,
) -> Result<Vec<String>, String> {
    let mut complaints = Vec::new();
    let gone: Vec<String> = memory
        .applied
        .keys()
        .filter(|name| !wanted.contains_key(*name))
        .cloned()
        .collect();
    // A unit that is neither wanted nor applied needs no retry.
    let applied = &memory.applied;
    let is_known = |name: &String| wanted.contains_key(name) || applied.contains_key(name);
    memory.failed.retain(|name, _| is_known(name));
    let names = steps::in_order(wanted);
    let gone = gone.iter().map(|name| (name, None));
    let kept = names.iter().map(|name| (*name, wanted.get(*name)));
    for (name, unit) in gone.chain(kept) {
        let would_fail = |failure: &Failure| {
            failure.again.is_none_or(|again| now < again)
                && failure.saw == excerpt(memory, name, unit, found)
        };
        if memory.failed.get(name).is_some_and(would_fail) {
            continue;
        }
        let before = memory.failed.remove(name);
        if let Some(refusal) = apply_unit(kernel, memory, name, unit, found).await? {
            let refusals = before.map_or(0, |before| before.refusals) + 1;
            let pause = refusal.passes.then(|| refusal::pause(refusals));
            let failure = Failure {
                saw: excerpt(memory, name, unit, found),
                refusals,
                again: pause.map(|pause| now + pause),
            };
            memory.failed.insert(name.clone(), failure);
            complaints.push(match pause {
                None => refusal.why,
                Some(pause) => format!("{refusal}; it is tried again in {} s", pause.as_secs()),
            });
        }
    }
    Ok(complaints)
}

fn excerpt(memory: &Memory, name: &str, unit: Option<&Unit>, found: &Found) -> Failed {
    let had = memory.applied.get(name).map(|applied| &applied.unit);
    steps::excerpt(name, unit, had, found)
}

async fn apply_unit(
    kernel: &impl Kernel,
    memory: &mut Memory,
    name: &String,
    unit: Option<&Unit>,
    found: &mut Found,
) -> Result<Option<Refusal>, String> {
    let before = memory.applied.get(name).cloned();
    let is_safe = before.as_ref().is_some_and(|before| before.is_safe(unit));
    let mtu = before.as_ref().and_then(|before| before.mtu);
    let mtu = mtu.or(found.links.get(name).map(|link| link.mtu));
    let mut complaint = None;
    for round in 0..=ROUNDS {
        // After the first round the unit counts as applied, even if the kernel does not show it yet.
        let earlier = before.as_ref().map(|before| &before.unit);
        let had = if round == 0 {
            earlier
        } else {
            unit.or(earlier)
        };
        let steps = match steps::steps(name, had, unit, mtu, found) {
            Ok(steps) => steps,
            Err(refusal) => return Ok(Some(refusal.into())),
        };
        if steps.is_empty() {
            break;
        }
        if round == ROUNDS {
            let why = format!("{name}: the kernel keeps reverting the changes");
            complaint = Some(Refusal::from(why));
            break;
        }
        // Without a state to roll back to, a partial network is better than none.
        complaint = perform_all(kernel, &steps, !is_safe).await;
        *found = kernel.look().await?;
        if complaint.is_some() {
            break;
        }
    }
    let Some(what) = complaint else {
        remember(memory, name, unit, mtu, true);
        return Ok(None);
    };
    let Some(before) = before.filter(|_| is_safe) else {
        // Parts that the kernel did not remove still exist and stay on record.
        if unit.is_some() {
            remember(memory, name, unit, mtu, false);
        }
        return Ok(Some(what));
    };
    let undone = match steps::steps(name, unit, Some(&before.unit), mtu, found) {
        Ok(steps) => perform_all(kernel, &steps, true).await,
        Err(refusal) => Some(refusal.into()),
    };
    *found = kernel.look().await?;
    Ok(Some(match undone {
        None => Refusal {
            why: format!("{what}; the previous settings are restored"),
            ..what
        },
        Some(also) => Refusal {
            why: format!("{what}; the previous settings cannot be restored: {also}"),
            passes: what.passes || also.passes,
        },
    }))
}

fn remember(memory: &mut Memory, name: &str, unit: Option<&Unit>, mtu: Option<u32>, worked: bool) {
    match unit {
        Some(unit) => {
            let unit = unit.clone();
            let applied = Applied { unit, mtu, worked };
            memory.applied.insert(name.to_owned(), applied);
        }
        None => drop(memory.applied.remove(name)),
    }
}

/// Performs the steps in order; `goes_on` continues past a refusal. Returns the first refusal, which is transient if
/// any refusal is.
async fn perform_all(kernel: &impl Kernel, steps: &[Step], goes_on: bool) -> Option<Refusal> {
    let mut first: Option<Refusal> = None;
    for step in steps {
        if let Err(refusal) = kernel.perform(step).await {
            let why = format!("cannot {step}: {refusal}");
            let first = first.get_or_insert(Refusal { why, passes: false });
            first.passes |= refusal.passes;
            if !goes_on {
                break;
            }
        }
    }
    first
}
