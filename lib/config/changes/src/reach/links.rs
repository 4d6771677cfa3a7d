//! Changes of links and their addresses.

use corten_config::Document;
use corten_config::kinds::LinkRoute;
use corten_values::Cidr;

use super::described::{Described, Links, links};

/// Lost or changed properties of links.
pub(super) fn risks(old: &Document, new: &Document) -> Vec<String> {
    let (before, after) = (links(old), links(new));
    let mut risks = Vec::new();
    for (name, was) in before.iter().filter(|(_, was)| !was.down) {
        let nothing = Described::default();
        let is = after.get(name).unwrap_or(&nothing);
        addresses(name, was, is, &after, &mut risks);
        routes(name, was, is, &mut risks);
        if after.contains_key(name) {
            let differs = [
                (was.made != is.made, "is created with other settings"),
                (was.set != is.set, "works with other settings"),
                (was.mtu != is.mtu, "gets another MTU"),
                (
                    was.hardware_addr != is.hardware_addr,
                    "gets another hardware address",
                ),
            ];
            let told = differs.iter().filter(|(differs, _)| *differs);
            risks.extend(told.map(|(_, what)| format!("{name} {what}")));
            let members = was.members.iter();
            let left = members.filter(|member| !is.members.contains(member));
            risks.extend(left.map(|member| format!("{member} is no longer part of {name}")));
        } else if !was.made.is_empty() {
            risks.push(format!("{name} is removed"));
        }
    }
    for (name, is) in &after {
        comes(name, before.get(name), is, &mut risks);
        for route in is
            .routes
            .iter()
            .filter(|route| competes(route, name, &before))
        {
            risks.push(format!(
                "packets take another route: {name} gets {}",
                said(route)
            ));
        }
    }
    risks
}

fn addresses(name: &str, was: &Described, is: &Described, after: &Links, risks: &mut Vec<String>) {
    let is_on = |link: &Described, cidr: &Cidr| {
        let mut addresses = link.addresses.iter();
        !link.down && addresses.any(|other| other.address == cidr.address)
    };
    for cidr in was
        .addresses
        .iter()
        .filter(|cidr| !is.addresses.contains(cidr))
    {
        let elsewhere = after.iter().find(|(_, link)| is_on(link, cidr));
        risks.push(match elsewhere {
            None => format!("{name} loses the address {cidr}"),
            Some((other, _)) if other == name => {
                format!(
                    "the network around {name}'s address {} changes",
                    cidr.address
                )
            }
            Some((other, _)) => format!("the address {cidr} moves from {name} to {other}"),
        });
    }
    if is.dhcp.is_empty() && !was.dhcp.is_empty() {
        risks.push(format!("{name} no longer uses DHCP"));
    } else if was.dhcp.iter().any(|how| !is.dhcp.contains(how)) {
        risks.push(format!("{name} uses other DHCP settings"));
    }
}

fn routes(name: &str, was: &Described, is: &Described, risks: &mut Vec<String>) {
    let has_gateway = |link: &Described| link.routes.iter().any(|route| route.gateway.is_some());
    if has_gateway(was) && !has_gateway(is) {
        risks.push(format!("{name} loses its routes through a gateway"));
        return;
    }
    for route in was.routes.iter().filter(|route| !is.routes.contains(route)) {
        risks.push(format!("{name} loses {}", said(route)));
    }
}

/// Whether a new route competes with an old one to the same destination in the same table.
fn competes(route: &LinkRoute, name: &str, before: &Links) -> bool {
    let had = before
        .get(name)
        .is_some_and(|link| link.routes.contains(route));
    let leads_there =
        |other: &LinkRoute| (other.destination, other.table) == (route.destination, route.table);
    let mut others = before.values().flat_map(|link| &link.routes);
    !had && others.any(leads_there)
}

fn said(route: &LinkRoute) -> String {
    let network = route.destination.filter(|network| !network.is_default());
    let shown = network.map_or_else(
        || "the default route".to_owned(),
        |network| format!("the route to {network}"),
    );
    match route.gateway {
        Some(gateway) => format!("{shown} through {gateway}"),
        None => shown,
    }
}

fn comes(name: &str, was: Option<&Described>, is: &Described, risks: &mut Vec<String>) {
    if is.down && was.is_none_or(|was| !was.down) {
        risks.push(format!("{name} is switched off"));
    }
    if is.physical && is.dhcp.is_empty() && was.is_none() {
        risks.push(format!(
            "{name} no longer uses DHCP by default, because the config describes it"
        ));
    }
    let joined = |member: &&String| !was.is_some_and(|was| was.members.contains(member));
    for member in is.members.iter().filter(joined) {
        risks.push(format!(
            "{member} becomes part of {name} and loses its own addresses"
        ));
    }
}
