//! Network specs of the kernel parameters `ip=`, `vlan=`, `bond=` and our own.

use std::collections::BTreeSet;

use corten_base::cmdline::Cmdline;
use corten_base::console;
use corten_types::network_names::ResolverSpec;
use corten_types::network_spec::{Bond, Layer, Vlan};
use corten_types::prefix::Prefix;
use corten_values::is_host_name;

use super::default_layer::dhcp;
use super::ip_param::{self, IpParam, Method, method_for};
use super::layers::{Specs, hostname, resolver, route, time_servers};

const LAYER: Layer = Layer::Cmdline;

/// The parsed parameters.
#[derive(Debug, Clone, Default)]
pub struct Parameters {
    ip: Vec<IpParam>,
    hostname: Option<String>,
    vlans: Vec<(String, String, u16)>,
    bond: Option<BondParam>,
    /// Links that machined leaves alone.
    pub ignored: BTreeSet<String>,
}

#[derive(Debug, Clone)]
struct BondParam {
    name: String,
    members: Vec<String>,
    settings: Bond,
    mtu: u32,
}

/// Parses the parameters; invalid ones are reported on the console.
#[must_use]
pub fn parameters(cmdline: &Cmdline) -> Parameters {
    let understood = |text| {
        ip_param::parse(text)
            .inspect_err(|error| console::warn(&format!("network: {error}")))
            .ok()
    };
    let told = |name: &str, text: &str, what: &str| {
        console::warn(&format!("network: kernel parameter {name}={text}: {what}"));
    };
    let vlan = |text: &str| {
        let parsed = vlan(text);
        if parsed.is_none() {
            told("vlan", text, "must be NAME.ID:PARENT or vlanID:PARENT");
        }
        parsed
    };
    let bond = cmdline
        .all("bond")
        .next()
        .and_then(|text| bond(text).inspect_err(|what| told("bond", text, what)).ok());
    Parameters {
        ip: cmdline.all("ip").filter_map(understood).collect(),
        hostname: cmdline
            .ours("hostname")
            .filter(|name| is_host_name(name))
            .map(str::to_owned),
        vlans: cmdline.all("vlan").filter_map(vlan).collect(),
        bond,
        ignored: cmdline
            .all_ours("network.interface.ignore")
            // The empty name stands for routes without a link.
            .filter(|name| !name.is_empty())
            .map(str::to_owned)
            .collect(),
    }
}

/// `name:parent`, where the name ends in its number (dracut.cmdline(7)).
fn vlan(text: &str) -> Option<(String, String, u16)> {
    let (name, parent) = text.split_once(':')?;
    let digits = match name.rsplit_once('.') {
        Some((_, digits)) => digits,
        None => name.strip_prefix("vlan")?,
    };
    let id = digits.parse().ok().filter(|id| (1..=4094).contains(id))?;
    (!parent.is_empty()).then(|| (name.to_owned(), parent.to_owned(), id))
}

/// `name[:members[:options[:mtu]]]` (dracut.cmdline(7)); options are `key=value`, separated by commas.
fn bond(text: &str) -> Result<BondParam, String> {
    let mut fields = text.splitn(4, ':');
    let mut next = || fields.next().filter(|field| !field.is_empty());
    let name = next().unwrap_or("bond0").to_owned();
    let members = next().unwrap_or("eth0,eth1").split(',');
    let members = members.map(str::to_owned).collect();
    let mut settings = Bond::default();
    for option in next().into_iter().flat_map(|options| options.split(',')) {
        let (key, value) = option.split_once('=').unwrap_or((option, ""));
        super::bond::set(&mut settings, key, value)?;
    }
    let mtu = match next() {
        Some(text) => text
            .parse()
            .map_err(|_| format!("the MTU {text:?} is not a number"))?,
        None => 0,
    };
    Ok(BondParam {
        name,
        members,
        settings,
        mtu,
    })
}

impl Parameters {
    /// Specs for these links of devices. `first` gets an `ip=` without a device.
    #[must_use]
    pub fn specs(&self, physical: &[String], first: Option<&str>) -> Specs {
        let mut specs = Specs::default();
        if let Some(bond) = &self.bond {
            let link = specs.make(LAYER, &bond.name, "bond", None);
            link.bond_master = Some(bond.settings.clone());
            link.mtu = bond.mtu;
            for member in &bond.members {
                specs.link(LAYER, member).bond_name.clone_from(&bond.name);
            }
        }
        for (name, parent, id) in &self.vlans {
            specs.link(LAYER, parent);
            let link = specs.make(LAYER, name, "vlan", None);
            link.parent_name.clone_from(parent);
            let protocol = "802.1q";
            link.vlan = Some(Vlan { id: *id, protocol });
        }
        let named = self.ip.iter().filter_map(|ip| ip.device.as_ref());
        let all: BTreeSet<&String> = physical.iter().chain(named).collect();
        for name in all {
            if let Some(method) = method_for(&self.ip, name, first == Some(name)) {
                by_method(&mut specs, name, &method);
            }
        }
        self.names(&mut specs);
        specs
    }

    fn names(&self, specs: &mut Specs) {
        let by_ip = || self.ip.iter().find_map(|ip| ip.hostname.as_deref());
        let name = self.hostname.as_deref().or_else(by_ip);
        specs.hostname = name.map(|name| hostname(LAYER, name));
        specs.resolver = resolver(ResolverSpec {
            dns_servers: self.ip.iter().flat_map(|ip| ip.dns.clone()).collect(),
            layer: LAYER,
            ..ResolverSpec::default()
        });
        let ntp = self.ip.iter().filter_map(|ip| ip.ntp);
        specs.time_servers = time_servers(LAYER, ntp.map(|server| server.to_string()).collect());
    }
}

fn by_method(specs: &mut Specs, name: &str, method: &Method) {
    specs.link(LAYER, name);
    match method {
        Method::Off => {}
        Method::Dhcp => specs.operators.push(dhcp(LAYER, "dhcp4", name)),
        Method::Static { address, gateway } => {
            specs.address(LAYER, name, *address, 0);
            if let Some(gateway) = gateway {
                let everywhere = Prefix::everywhere(*gateway);
                specs
                    .routes
                    .push(route(LAYER, name, everywhere, Some(*gateway)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layers::Layered;

    fn specs(line: &str, physical: &[&str]) -> Specs {
        let physical: Vec<String> = physical.iter().map(|name| (*name).to_owned()).collect();
        let first = physical.first().map(String::as_str);
        parameters(&Cmdline::parse(line)).specs(&physical, first)
    }

    fn names(specs: &Specs) -> Vec<&str> {
        specs.links.iter().map(|link| &*link.name).collect()
    }

    #[test]
    fn malformed_parameter_does_not_affect_the_others() {
        let specs = specs("ip=10.0.0.999 ip=eth0:dhcp vlan=x bond=b:::x", &["eth0"]);
        assert_eq!(specs.operators, [dhcp(LAYER, "dhcp4", "eth0")]);
        assert_eq!(names(&specs), ["eth0"]);
    }

    #[test]
    fn static_address_without_a_device_goes_to_the_first_link() {
        let line = "ip=10.0.0.2::10.0.0.1:24:n1.example.org::none:10.0.0.3::10.0.0.4";
        let specs = specs(line, &["eth0", "eth1"]);
        assert_eq!(names(&specs), ["eth0"]);
        let addresses: Vec<String> = specs.addresses.iter().map(Layered::id).collect();
        assert_eq!(addresses, ["eth0/10.0.0.2/24"]);
        let routes: Vec<String> = specs.routes.iter().map(Layered::id).collect();
        assert_eq!(routes, ["inet4/10.0.0.1//1024"]);
        let name = specs.hostname.unwrap();
        assert_eq!((&*name.hostname, &*name.domainname), ("n1", "example.org"));
        assert_eq!(specs.resolver.unwrap().dns_servers.len(), 1);
        assert_eq!(specs.time_servers.unwrap().time_servers, ["10.0.0.4"]);
    }

    #[test]
    fn off_disables_dhcp_on_every_link() {
        let specs = specs("ip=off talos.hostname=a", &["eth0", "eth1"]);
        assert_eq!(names(&specs), ["eth0", "eth1"]);
        assert!(specs.operators.is_empty());
        assert_eq!(specs.hostname.unwrap().hostname, "a");
    }

    #[test]
    fn vlan_on_a_bond_is_read_from_the_parameters() {
        let line =
            "bond=bond1:eth0,eth1:mode=802.3ad,miimon=100:9000 vlan=bond1.7:bond1 ip=bond1.7:dhcp";
        let specs = specs(line, &["eth0", "eth1", "eth2"]);
        assert_eq!(names(&specs), ["bond1", "eth0", "eth1", "bond1.7"]);
        let bond = &specs.links[0];
        assert_eq!((bond.kind, bond.mtu), ("bond", 9000));
        assert_eq!(bond.bond_master.as_ref().unwrap().miimon, Some(100));
        assert_eq!(specs.links[1].master(), Some("bond1"));
        assert_eq!(specs.links[3].vlan.unwrap().id, 7);
        assert_eq!(specs.operators[0].link_name, "bond1.7");
        assert_eq!(vlan("vlan4095:eth0"), None);
        assert!(bond_error("b:eth0:mode=magic").contains("magic"));
        assert!(bond_error("b:eth0:speed=9").contains("speed"));
    }

    fn bond_error(text: &str) -> String {
        bond(text).unwrap_err()
    }
}
