//! Making the kernel's network what it shall be, link by link.
//!
//! A *unit* is a link with its addresses and routes. What is to be done for one is a list of [`Step`]s, made
//! by looking at what is there (`steps.rs`, pure). When the kernel refuses one, the unit goes back to what
//! worked before, and is not tried again until something about it has changed, or, when what it said may pass by
//! itself, until a while has passed.

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

use tokio::time::Instant;

pub use kernel::{Rtnetlink, describe, found_routes};
pub use refusal::Refusal;

use corten_types::network_spec::{AddressSpec, LinkSpec, RouteSpec};
use corten_types::prefix::Prefix;

use crate::wireguard;

/// What one link shall have. Without a name: routes that are no link's.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Unit {
    /// The link; absent when nobody says anything of it but its addresses.
    pub link: Option<LinkSpec>,
    /// Its addresses.
    pub addresses: Vec<AddressSpec>,
    /// Routes through it.
    pub routes: Vec<RouteSpec>,
}

/// Every unit, by its link's name.
pub type Units = BTreeMap<String, Unit>;

/// Sorts specs by link.
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

/// A link as the kernel has it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FoundLink {
    /// The kernel's number.
    pub index: u32,
    /// Of a link that software made; else empty.
    pub kind: String,
    /// Whether it is switched on.
    pub is_up: bool,
    /// In bytes.
    pub mtu: u32,
    /// The index of the link it is part of, or 0.
    pub master: u32,
    /// Empty: it has none.
    pub hardware_addr: Vec<u8>,
    /// Whether it takes multicast.
    pub takes_multicast: bool,
    /// Of a tunnel; absent where the kernel does not say.
    pub wireguard: Option<wireguard::Found>,
}

/// A route as the kernel has it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct FoundRoute {
    /// The number of its table.
    pub table: u32,
    /// Where it leads.
    pub dst: Prefix,
    /// Absent: straight onto the link.
    pub gateway: Option<std::net::IpAddr>,
    /// Its metric.
    pub priority: u32,
    /// The link's index; 0 for a route that leads nowhere.
    pub link: u32,
}

/// The kernel's network.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Found {
    /// By name.
    pub links: BTreeMap<String, FoundLink>,
    /// By link's index; whether it can be used as a source yet.
    pub addresses: BTreeMap<(u32, Prefix), bool>,
    /// All of them.
    pub routes: BTreeSet<FoundRoute>,
}

/// One change of the kernel's network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Makes a link of a kind.
    Make(Box<LinkSpec>),
    /// Removes a link that was made.
    Delete(String),
    /// Switches a link on or off.
    Up(String, bool),
    /// Sets the size of its largest packet.
    Mtu(String, u32),
    /// Sets its hardware address.
    HardwareAddr(String, [u8; 6]),
    /// Whether it takes multicast packets.
    Multicast(String, bool),
    /// Changes a tunnel's keys, port and peers.
    Wireguard(String, Box<wireguard::Change>),
    /// Puts it into another link, or takes it out.
    Master(String, Option<String>),
    /// Adds an address.
    AddAddress(AddressSpec),
    /// Takes an address away.
    RemoveAddress(AddressSpec),
    /// Adds a route.
    AddRoute(RouteSpec),
    /// Takes a route away.
    RemoveRoute(RouteSpec),
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Step::Make(link) => write!(f, "make the {} {}", link.kind, link.name),
            Step::Delete(link) => write!(f, "remove {link}"),
            Step::Up(link, true) => write!(f, "switch {link} on"),
            Step::Up(link, false) => write!(f, "switch {link} off"),
            Step::Mtu(link, mtu) => write!(f, "set the MTU of {link} to {mtu}"),
            Step::HardwareAddr(link, _) => write!(f, "set the hardware address of {link}"),
            Step::Multicast(link, _) => write!(f, "set multicast of {link}"),
            Step::Wireguard(link, _) => write!(f, "set the keys and peers of {link}"),
            Step::Master(link, Some(master)) => write!(f, "put {link} into {master}"),
            Step::Master(link, None) => write!(f, "take {link} out of its bond or bridge"),
            Step::AddAddress(address) => {
                write!(f, "give {} to {}", address.address, address.link_name)
            }
            Step::RemoveAddress(address) => {
                write!(f, "take {} from {}", address.address, address.link_name)
            }
            Step::AddRoute(route) => write!(f, "add the route to {}", route.dst),
            Step::RemoveRoute(route) => write!(f, "remove the route to {}", route.dst),
        }
    }
}

/// The kernel, or what stands for it in a test.
pub trait Kernel {
    /// What is there now.
    fn look(&self) -> impl Future<Output = Result<Found, String>> + Send;
    /// Takes one step.
    fn perform(&self, step: &Step) -> impl Future<Output = Result<(), Refusal>> + Send;
}

/// What was done for a unit.
#[derive(Debug, Clone)]
struct Applied {
    unit: Unit,
    /// The link's MTU before it was first changed.
    mtu: Option<u32>,
    /// Whether the kernel took all of it: something to go back to.
    worked: bool,
}

/// What a unit looked like when it failed: as long as that is so, it would fail again.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Failed {
    unit: Option<Unit>,
    saw: Vec<(String, FoundLink)>,
    /// Those that other tunnels have, for a tunnel.
    ports: Vec<u16>,
    addresses: Vec<(Prefix, bool)>,
    /// Those that it has, or had, of its own: somebody else may take one away.
    routes: Vec<FoundRoute>,
}

/// A unit that failed.
#[derive(Debug, Clone)]
struct Failure {
    saw: Failed,
    /// How often it was refused in a row.
    refusals: u32,
    /// When it is tried again though nothing has changed.
    again: Option<Instant>,
}

/// What was done so far; outlives a restart of the controller.
#[derive(Debug, Default)]
pub struct Memory {
    applied: BTreeMap<String, Applied>,
    failed: BTreeMap<String, Failure>,
}

impl Memory {
    /// When something is to be tried again though nothing has changed.
    #[must_use]
    pub fn again(&self) -> Option<Instant> {
        let failures = self.failed.values();
        failures.filter_map(|failure| failure.again).min()
    }
}

/// Two rounds do; a third shows that the kernel takes back what it is given.
const ROUNDS: usize = 3;

/// Makes the kernel's network what is wanted, as far as it can be. Returns what went wrong, for a person. `now`: what
/// failed in passing is tried again when its time has come ([`Memory::again`]).
///
/// # Errors
/// When the kernel does not say what is there.
pub async fn apply(
    kernel: &impl Kernel,
    memory: &mut Memory,
    wanted: &Units,
    now: Instant,
) -> Result<Vec<String>, String> {
    let mut complaints = Vec::new();
    let mut found = kernel.look().await?;
    // What one link gets can change another: a bridge takes its MTU from who joins it.
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
    // What nobody wants any more, and is not there, has nothing to be tried again.
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
    let mtu = before.as_ref().and_then(|before| before.mtu);
    let mtu = mtu.or(found.links.get(name).map(|link| link.mtu));
    let mut complaint = None;
    for round in 0..=ROUNDS {
        // After the first round it was done, whether the kernel shows it or not.
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
            let why = format!("{name}: the kernel takes back what it is given");
            complaint = Some(Refusal::from(why));
            break;
        }
        // With nothing to go back to, half of a network is better than none.
        let goes_on = !before.as_ref().is_some_and(|before| before.worked);
        complaint = perform_all(kernel, &steps, goes_on).await;
        *found = kernel.look().await?;
        if complaint.is_some() {
            break;
        }
    }
    let Some(what) = complaint else {
        remember(memory, name, unit, mtu, true);
        return Ok(None);
    };
    let Some(before) = before.filter(|before| before.worked) else {
        // What could not be taken away is there still, and known.
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
            why: format!("{what}; back to what worked before"),
            ..what
        },
        Some(also) => Refusal {
            why: format!("{what}; and to go back: {also}"),
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

/// Takes the steps in order, up to the first that is refused or all of them; returns the first refusal, and whether
/// any of them may pass.
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
