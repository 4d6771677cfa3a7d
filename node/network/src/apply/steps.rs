//! Computes the steps that bring a unit from the kernel's state to the desired one.

use std::net::IpAddr;

use corten_types::network_spec::{AddressSpec, LinkSpec, RouteSpec};
use corten_types::prefix::Prefix;

use super::{Failed, Found, FoundLink, FoundRoute, Step, Unit, Units, bond};
use crate::wireguard;

/// Names of all units, links before the links that depend on them.
pub fn in_order(wanted: &Units) -> Vec<&String> {
    let mut names: Vec<&String> = wanted.keys().collect();
    names.sort_by_cached_key(|name| depth(wanted, name, 0));
    names
}

/// Nesting limit of links, as in the kernel (linux/netdevice.h, `MAX_NEST_DEV`).
const DEEPEST: usize = 8;

/// Number of links below this one. Links in a cycle stop at the limit and are never made. The limit also bounds the
/// work and the stack: each link can depend on two others.
fn depth(wanted: &Units, name: &str, so_far: usize) -> usize {
    let Some(link) = wanted.get(name).and_then(|unit| unit.link.as_ref()) else {
        return so_far;
    };
    if so_far >= DEEPEST {
        return so_far;
    }
    let parent = Some(link.parent_name.as_str()).filter(|parent| !parent.is_empty());
    let needs = [parent, link.master()].into_iter().flatten();
    let deeper = needs.map(|needed| depth(wanted, needed, so_far + 1));
    deeper.max().unwrap_or(so_far)
}

/// Everything that decides whether a unit's steps succeed, and whether the state it `had` is still present.
pub fn excerpt(name: &str, unit: Option<&Unit>, had: Option<&Unit>, found: &Found) -> Failed {
    let link = unit.and_then(|unit| unit.link.as_ref());
    let parent = link.map(|link| link.parent_name.as_str());
    let names = [Some(name), parent, link.and_then(LinkSpec::master)];
    let saw = names.into_iter().flatten().filter_map(|name| {
        let mut link = found.links.get(name)?.clone();
        // A peer's endpoint changes as the peer roams, and never makes a refused change succeed.
        let peers = link.wireguard.iter_mut();
        for peer in peers.flat_map(|tunnel| &mut tunnel.settings.peers) {
            peer.endpoint = None;
        }
        Some((name.to_owned(), link))
    });
    let is_tunnel = link.is_some_and(|link| link.wireguard.is_some());
    let others = found.links.iter();
    let others = others.filter(|(other, _)| is_tunnel && **other != name);
    let ports = others.filter_map(|(_, link)| Some(link.wireguard.as_ref()?.settings.listen_port));
    let index = found.links.get(name).map(|link| link.index);
    let addresses = found.addresses.iter();
    let addresses = addresses.filter(|((link, _), _)| Some(*link) == index);
    let own = [unit, had].into_iter().flatten();
    // A route that discards packets has no link.
    let link = index.or(name.is_empty().then_some(0));
    let routes = own.flat_map(|unit| &unit.routes);
    let mut routes: Vec<FoundRoute> = routes
        .filter_map(|route| Some(as_found(link?, route)))
        .filter(|route| found.routes.contains(route))
        .collect();
    routes.sort();
    routes.dedup();
    Failed {
        unit: unit.cloned(),
        saw: saw.collect(),
        ports: ports.collect(),
        addresses: addresses
            .map(|((_, address), usable)| (*address, *usable))
            .collect(),
        routes,
    }
}

/// Steps from `before`, the last applied state of the unit, to `wanted`. Steps that need a missing link are left out
/// until the link appears. `mtu` is the link's original MTU.
///
/// # Errors
/// The desired state is impossible; the text says why.
pub fn steps(
    name: &str,
    before: Option<&Unit>,
    wanted: Option<&Unit>,
    mtu: Option<u32>,
    found: &Found,
) -> Result<Vec<Step>, String> {
    let mut steps = Vec::new();
    let nothing = Unit::default();
    let had = before.unwrap_or(&nothing);
    // A link disappears along with its spec, even while the specs of its addresses still exist.
    let was_made = had.link.as_ref().is_some_and(|spec| spec.logical);
    let Some(wanted) = wanted.filter(|unit| unit.link.is_some() || !was_made) else {
        undo(name, had, mtu, found, &mut steps);
        return Ok(steps);
    };
    let mut link = found.links.get(name).cloned();
    if let Some(spec) = &wanted.link {
        if spec.logical {
            link = make(had.link.as_ref(), spec, link, found, &mut steps)?;
        }
        if let Some(there) = &mut link {
            set(had.link.as_ref(), spec, mtu, found, there, &mut steps);
        }
    }
    if name.is_empty() {
        routes(0, had, wanted, found, &mut steps);
    } else if let Some(link) = link {
        addresses(link.index, had, wanted, found, &mut steps);
        // The kernel keeps no routes on a link that is down.
        if link.is_up {
            routes(link.index, had, wanted, found, &mut steps);
        }
    }
    Ok(steps)
}

fn undo(name: &str, had: &Unit, mtu: Option<u32>, found: &Found, steps: &mut Vec<Step>) {
    let nothing = Unit::default();
    let Some(link) = found.links.get(name) else {
        return routes(0, had, &nothing, found, steps);
    };
    let spec = had.link.as_ref();
    if spec.is_some_and(|spec| spec.logical && spec.kind == link.kind) {
        return steps.push(Step::Delete(name.to_owned()));
    }
    routes(link.index, had, &nothing, found, steps);
    addresses(link.index, had, &nothing, found, steps);
    if spec.and_then(LinkSpec::master).is_some() && link.master != 0 {
        steps.push(Step::Master(name.to_owned(), None));
    }
    let changed = spec.is_some_and(|spec| spec.mtu != 0 && spec.mtu == link.mtu);
    if let Some(mtu) = mtu.filter(|mtu| changed && *mtu != link.mtu) {
        steps.push(Step::Mtu(name.to_owned(), mtu));
    }
}

/// Creates the link, or recreates it if its fixed settings differ. Returns its predicted state.
fn make(
    had: Option<&LinkSpec>,
    spec: &LinkSpec,
    link: Option<FoundLink>,
    found: &Found,
    steps: &mut Vec<Step>,
) -> Result<Option<FoundLink>, String> {
    let ready = spec.parent_name.is_empty() || found.links.contains_key(&spec.parent_name);
    if let Some(link) = link {
        if link.kind != spec.kind {
            let kind = if link.kind.is_empty() {
                "physical link"
            } else {
                &link.kind
            };
            return Err(format!(
                "cannot create the {} {}: a {kind} of that name already exists",
                spec.kind, spec.name
            ));
        }
        if had.is_some_and(|had| is_made_alike(had, spec)) {
            return Ok(Some(link));
        }
        steps.push(Step::Delete(spec.name.clone()));
    }
    if !ready {
        return Ok(None);
    }
    steps.push(Step::Make(Box::new(spec.clone())));
    let hardware_addr = spec.hardware_addr.map(Vec::from).unwrap_or_default();
    Ok(Some(FoundLink {
        kind: spec.kind.to_owned(),
        hardware_addr,
        // Whether a new link accepts the setting is known only once it exists; a second round looks.
        takes_multicast: spec.multicast.unwrap_or(true),
        mtu: spec.mtu,
        ..FoundLink::default()
    }))
}

/// Whether the change from one spec to the other deletes a virtual link.
pub fn is_remade(had: Option<&LinkSpec>, wanted: Option<&LinkSpec>) -> bool {
    let Some(had) = had.filter(|had| had.logical) else {
        return false;
    };
    !wanted.is_some_and(|wanted| wanted.logical && is_made_alike(had, wanted))
}

/// Whether two specs differ only in settings that can change in place.
fn is_made_alike(one: &LinkSpec, other: &LinkSpec) -> bool {
    let bonds = match (&one.bond_master, &other.bond_master) {
        (Some(one), Some(other)) => bond::is_made_alike(one, other),
        (one, other) => one == other,
    };
    bonds
        && one.kind == other.kind
        && one.parent_name == other.parent_name
        && one.vlan == other.vlan
        && one.bridge_master == other.bridge_master
        && one.vrf_master == other.vrf_master
        && one.veth == other.veth
}

/// Sets what can change in place, and records it on the link.
fn set(
    had: Option<&LinkSpec>,
    spec: &LinkSpec,
    mtu: Option<u32>,
    found: &Found,
    link: &mut FoundLink,
    steps: &mut Vec<Step>,
) {
    let name = || spec.name.clone();
    let switch = |link: &mut FoundLink, on: bool, steps: &mut Vec<Step>| {
        if link.is_up != on {
            steps.push(Step::Up(spec.name.clone(), on));
            link.is_up = on;
        }
    };
    if let Some(address) = spec.hardware_addr.filter(|own| link.hardware_addr != *own) {
        // Most drivers refuse a new address while the link is up.
        switch(link, false, steps);
        steps.push(Step::HardwareAddr(name(), address));
    }
    let master = spec.master();
    let index = master.map(|master| found.links.get(master).map(|link| link.index));
    match index {
        Some(Some(index)) if link.master != index => {
            // A bond accepts only links that are down.
            if !spec.bond_name.is_empty() {
                switch(link, false, steps);
            }
            steps.push(Step::Master(name(), master.map(str::to_owned)));
        }
        None if link.master != 0 && had.and_then(LinkSpec::master).is_some() => {
            steps.push(Step::Master(name(), None));
        }
        _ => {}
    }
    let was_ours = had.is_some_and(|had| had.mtu != 0 && had.mtu == link.mtu);
    let own = mtu.filter(|_| was_ours).unwrap_or(link.mtu);
    let size = if spec.mtu == 0 { own } else { spec.mtu };
    if size != link.mtu {
        steps.push(Step::Mtu(name(), size));
    }
    if let Some(takes) = spec
        .multicast
        .filter(|takes| *takes != link.takes_multicast)
    {
        steps.push(Step::Multicast(name(), takes));
    }
    if let Some(tunnel) = &spec.wireguard {
        let had = had.and_then(|had| had.wireguard.as_ref());
        let change = wireguard::change(had, tunnel, link.wireguard.as_ref());
        steps.extend(change.map(|change| Step::Wireguard(name(), Box::new(change))));
    }
    // A new bond is made with its settings; it has no index yet.
    if let Some(wanted) = spec.bond_master.as_ref().filter(|_| link.index != 0) {
        let had = had.and_then(|had| had.bond_master.as_ref());
        let change = bond::change(had, wanted, &link.bond);
        if bond::need_it_down(&change) {
            switch(link, false, steps);
        }
        if !change.is_empty() {
            steps.push(Step::Bond(name(), change));
        }
    }
    prefer(had, spec, link, found, steps);
    switch(link, spec.up != Some(false), steps);
}

/// Sets the preferred port of a bond once the port is in it: often it joins after the bond is made.
fn prefer(
    had: Option<&LinkSpec>,
    spec: &LinkSpec,
    bond: &FoundLink,
    found: &Found,
    steps: &mut Vec<Step>,
) {
    let port = primary(Some(spec));
    let step = |port: Option<&str>| Step::Primary(spec.name.clone(), port.map(str::to_owned));
    match port.map(|port| found.links.get(port)) {
        Some(Some(link)) => {
            let is_in = bond.index != 0 && link.master == bond.index;
            if is_in && bond.primary != link.index {
                steps.push(step(port));
            }
        }
        None if bond.primary != 0 && primary(had).is_some() => steps.push(step(None)),
        _ => {}
    }
}

/// The preferred port of a bond whose mode has one.
fn primary(spec: Option<&LinkSpec>) -> Option<&str> {
    bond::primary(spec?.bond_master.as_ref()?)
}

fn addresses(index: u32, had: &Unit, wanted: &Unit, found: &Found, steps: &mut Vec<Step>) {
    let is_there = |address: &AddressSpec| found.addresses.contains_key(&(index, address.address));
    let missing: Vec<&AddressSpec> = wanted
        .addresses
        .iter()
        .filter(|address| !is_there(address))
        .collect();
    let is_wanted = |address: Prefix| wanted.addresses.iter().any(|spec| spec.address == address);
    let surplus: Vec<&AddressSpec> = had
        .addresses
        .iter()
        .filter(|address| is_there(address) && !is_wanted(address.address))
        .collect();
    // Removing an address also removes the later addresses of its network (kernel: ip-sysctl, promote_secondaries), and
    // IPv6 allows an address only once. In both cases the old address must go first.
    let in_the_way = |old: &&AddressSpec| {
        missing.iter().any(|new| {
            new.address.address == old.address.address
                || new.address.network() == old.address.network()
        })
    };
    let (first, last): (Vec<&AddressSpec>, Vec<&AddressSpec>) =
        surplus.into_iter().partition(in_the_way);
    let remove = |address: &AddressSpec| Step::RemoveAddress(address.clone());
    steps.extend(first.into_iter().map(remove));
    let add = |address: &AddressSpec| Step::AddAddress(address.clone());
    steps.extend(missing.into_iter().map(add));
    steps.extend(last.into_iter().map(remove));
}

/// A route through the link of this index, as the kernel shows it.
fn as_found(index: u32, route: &RouteSpec) -> FoundRoute {
    FoundRoute {
        table: route.table,
        dst: route.dst,
        gateway: route.gateway,
        priority: route.priority,
        link: index,
    }
}

fn routes(index: u32, had: &Unit, wanted: &Unit, found: &Found, steps: &mut Vec<Step>) {
    let as_found = |route: &RouteSpec| as_found(index, route);
    let is_there = |route: &RouteSpec| found.routes.contains(&as_found(route));
    let changed = |route: &RouteSpec| {
        let same = |old: &&RouteSpec| as_found(old) == as_found(route);
        let old = had.routes.iter().find(same);
        old.is_some_and(|old| (old.src, old.mtu) != (route.src, route.mtu))
    };
    // Routes of the kernel and of other programs are left alone.
    for route in had.routes.iter().filter(|route| is_there(route)) {
        let stays = |new: &&RouteSpec| as_found(new) == as_found(route) && !changed(new);
        if !wanted.routes.iter().any(|new| stays(&new)) {
            steps.push(Step::RemoveRoute(route.clone()));
        }
    }
    let waits =
        |route: &RouteSpec| lacks_source(route, found) || lacks_way(index, route, wanted, found);
    let mut missing: Vec<&RouteSpec> = wanted
        .routes
        .iter()
        .filter(|route| (!is_there(route) || changed(route)) && !waits(route))
        .collect();
    // Routes without a gateway first: they make the gateways reachable.
    missing.sort_by_key(|route| route.gateway.is_some());
    steps.extend(
        missing
            .into_iter()
            .map(|route| Step::AddRoute(route.clone())),
    );
}

/// Whether IPv6 would refuse the source of a route: the address is still tentative, for the second that duplicate address
/// detection takes.
fn lacks_source(route: &RouteSpec, found: &Found) -> bool {
    let source = route.src.filter(IpAddr::is_ipv6);
    source.is_some_and(|source| {
        let mut own = found.addresses.iter();
        !own.any(|((_, prefix), usable)| prefix.address == source && *usable)
    })
}

/// Whether nothing on the link leads to an IPv4 gateway: the routes of a lease, or of the config, can be known before the
/// address. An IPv6 gateway is reached through the link-local address, which the kernel adds by itself.
fn lacks_way(index: u32, route: &RouteSpec, wanted: &Unit, found: &Found) -> bool {
    let is_there = |(link, prefix): &(u32, Prefix)| *link == index && prefix.address.is_ipv4();
    let leads = |other: &RouteSpec| other.gateway.is_none() && other.dst.address.is_ipv4();
    route.gateway.is_some_and(|gateway| gateway.is_ipv4())
        && !wanted
            .addresses
            .iter()
            .any(|own| own.address.address.is_ipv4())
        && !wanted.routes.iter().any(leads)
        && !found.addresses.keys().any(is_there)
}

#[cfg(test)]
mod tests {
    use corten_types::network_spec::Layer;

    use super::*;
    use crate::apply::units;
    use crate::layers::Specs;

    #[test]
    fn dependency_depth_of_cyclic_links_is_bounded() {
        let mut specs = Specs::default();
        let link = specs.link(Layer::Platform, "b");
        "b".clone_into(&mut link.bond_name);
        "b".clone_into(&mut link.parent_name);
        for number in 0..12 {
            let member = specs.link(Layer::Platform, &format!("a{number}"));
            "b".clone_into(&mut member.bond_name);
        }
        let wanted = units(specs.links.into_iter(), [].into_iter(), [].into_iter());
        assert_eq!(depth(&wanted, "b", 0), DEEPEST);
        assert_eq!(depth(&wanted, "a0", 0), DEEPEST);
        assert_eq!(in_order(&wanted).len(), 13);
    }
}
