//! OpenNebula: a volume with a file of shell variables.
//!
//! OpenNebula's documentation: "Open Cloud context", "Template: context section", one-apps "Contextualization".

use std::collections::BTreeMap;
use std::net::IpAddr;

use corten_seed::{SeedDhcp, SeedLink, SeedNetwork};
use corten_values::Cidr;

use crate::documents::Given;
use crate::instance::{Instance, Metadata, Network};
use crate::links;
use crate::request::{Platform, Role, Volume};
use crate::text::is_line;

const FILE: &str = "context.sh";
/// Limit of cards, and of further addresses of one card.
const MOST: usize = 64;

pub(super) const PLATFORM: Platform = Platform {
    name: "opennebula",
    volume: Some(Volume {
        labels: &["CONTEXT", "context"],
        files: &[(FILE, FILE)],
        role: Role::Whole,
    }),
    read,
    ..Platform::BLANK
};

fn read(given: &Given<'_>) -> Instance {
    let context = Context {
        given,
        variables: variables(&given.documents.raw(FILE)),
    };
    let user_data = ["USER_DATA", "USERDATA"].map(|name| context.long(name));
    let user_data = user_data.iter().find(|text| !text.is_empty());
    let config =
        user_data.and_then(|text| given.decoded(given.place(FILE), "USER_DATA ", text.as_bytes()));
    let id = context.text("VMID");
    let names = ["SET_HOSTNAME", "HOSTNAME", "NAME"].map(|name| context.text(name));
    let name = names.iter().find(|name| !name.is_empty());
    let metadata = Metadata {
        hostname: name.map(|name| as_host_name(name)).unwrap_or_default(),
        provider_id: format!("opennebula://{id}"),
        instance_id: id,
        ..Metadata::default()
    };
    let mut seed = SeedNetwork {
        dns_servers: context.addresses("DNS"),
        search_domains: context.words("SEARCH_DOMAIN"),
        ..SeedNetwork::default()
    };
    for number in 0..MOST {
        context.card(&format!("ETH{number}"), &mut seed);
    }
    let network = Network {
        seed,
        ..Network::default()
    };
    given.instance(FILE, config, metadata, network)
}

struct Context<'a> {
    given: &'a Given<'a>,
    variables: BTreeMap<String, String>,
}

impl Context<'_> {
    fn wrong(&self, name: &str, what: &str) {
        let place = self.given.place(FILE);
        self.given.note(place, &format!("{name} {what}"));
    }

    fn long(&self, name: &str) -> &str {
        self.variables.get(name).map_or("", |value| value.trim())
    }

    fn text(&self, name: &str) -> String {
        let text = self.long(name);
        if !is_line(text) {
            self.wrong(name, "must be one short line of text");
            return String::new();
        }
        text.to_owned()
    }

    fn words(&self, name: &str) -> Vec<String> {
        let text = self.text(name);
        text.split_whitespace()
            .take(MOST)
            .map(str::to_owned)
            .collect()
    }

    fn read<T>(&self, name: &str, what: &str, parse: impl Fn(&str) -> Option<T>) -> Option<T> {
        let text = self.text(name);
        if text.is_empty() {
            return None;
        }
        let found = parse(&text);
        if found.is_none() {
            self.wrong(name, what);
        }
        found
    }

    fn addresses(&self, name: &str) -> Vec<IpAddr> {
        let words = self.words(name);
        let found: Vec<IpAddr> = words.iter().filter_map(|word| word.parse().ok()).collect();
        if found.len() < words.len() {
            self.wrong(name, "must be IP addresses");
        }
        found
    }

    fn address(&self, name: &str) -> Option<IpAddr> {
        self.read(name, "must be an IP address", |text| text.parse().ok())
    }

    fn number(&self, name: &str) -> Option<u32> {
        self.read(name, "must be a number", |text| text.parse().ok())
    }

    /// Addresses of a card or of an alias: IPv4 with its mask, and IPv6.
    fn of(&self, prefix: &str) -> Vec<Cidr> {
        let mask = self.text(&format!("{prefix}_MASK"));
        let name = format!("{prefix}_IP");
        let what = "must be an address with a valid mask";
        let mut found: Vec<Cidr> = self
            .read(&name, what, |text| links::masked(text, &mask))
            .into_iter()
            .collect();
        let bits = self.text(&format!("{prefix}_IP6_PREFIX_LENGTH"));
        let bits = if bits.is_empty() {
            "64".to_owned()
        } else {
            bits
        };
        let names = ["IP6", "IPV6"].map(|name| format!("{prefix}_{name}"));
        let sixth = names.iter().find(|name| !self.long(name).is_empty());
        found.extend(
            sixth.and_then(|name| self.read(name, what, |text| links::masked(text, &bits))),
        );
        let local = format!("{prefix}_IP6_ULA");
        found.extend(self.read(&local, what, |text| links::masked(text, "64")));
        found
    }

    fn card(&self, prefix: &str, seed: &mut SeedNetwork) {
        let of = |name: &str| format!("{prefix}_{name}");
        let mac = self.read(&of("MAC"), "must be a hardware address", links::mac);
        let method = self.text(&of("METHOD")).to_ascii_lowercase();
        let sixth = self.text(&of("IP6_METHOD")).to_ascii_lowercase();
        let sixth = if sixth.is_empty() {
            method.clone()
        } else {
            sixth
        };
        if mac.is_none() || (method == "skip" && matches!(&*sixth, "skip" | "disable")) {
            return;
        }
        let mut link = links::card(&prefix.to_ascii_lowercase(), mac);
        let what = "must be a number from 576 to 65535";
        link.mtu = self.read(&of("MTU"), what, links::mtu);
        let metric = self.number(&of("METRIC"));
        let ask = |route_metric| {
            Some(SeedDhcp {
                route_metric,
                skip_hostname: true,
                ..SeedDhcp::default()
            })
        };
        let uses = |address: &Cidr| {
            let method = if address.address.is_ipv4() {
                &method
            } else {
                &sixth
            };
            matches!(&**method, "" | "static")
        };
        link.addresses
            .extend(self.of(prefix).into_iter().filter(uses));
        for number in 0..MOST {
            let alias = of(&format!("ALIAS{number}"));
            let is_elsewhere = self
                .text(&format!("{alias}_EXTERNAL"))
                .eq_ignore_ascii_case("yes")
                || !self.long(&format!("{alias}_DETACH")).is_empty();
            if !is_elsewhere {
                link.addresses.extend(self.of(&alias));
            }
        }
        if method == "dhcp" {
            link.dhcp4 = ask(metric);
        } else if method != "skip" {
            self.add_gateway(&mut link, &of("GATEWAY"), metric);
        }
        let metric6 = self.number(&of("IP6_METRIC")).or(metric);
        match &*sixth {
            "dhcp" => link.dhcp6 = ask(metric6),
            "skip" | "disable" | "auto" => {}
            _ => {
                self.add_gateway(&mut link, &of("IP6_GATEWAY"), metric6);
                self.add_gateway(&mut link, &of("GATEWAY6"), metric6);
            }
        }
        self.add_routes(&mut link, &of("ROUTES"));
        seed.dns_servers.extend(self.addresses(&of("DNS")));
        seed.search_domains.extend(self.words(&of("SEARCH_DOMAIN")));
        seed.links.push(link);
    }

    fn add_gateway(&self, link: &mut SeedLink, name: &str, metric: Option<u32>) {
        let gateway = self.address(name);
        let is_reachable = gateway.is_some_and(|gateway| {
            let mut own = link.addresses.iter();
            own.any(|own| own.address.is_ipv4() == gateway.is_ipv4())
        });
        if is_reachable {
            links::add_gateway(link, gateway);
            if let Some(added) = link.routes.last_mut() {
                added.route.metric = metric;
            }
        }
    }

    /// Comma-separated routes: `NETWORK/BITS via GATEWAY [METRIC]` or `NETWORK MASK GATEWAY [METRIC]`.
    fn add_routes(&self, link: &mut SeedLink, name: &str) {
        let text = self.text(name);
        let routes = text
            .split(',')
            .map(str::trim)
            .filter(|route| !route.is_empty());
        for route in routes.take(MOST) {
            let words: Vec<&str> = route.split_whitespace().collect();
            let found = match words.as_slice() {
                [to, "via", gateway, rest @ ..] => Some((links::masked(to, ""), gateway, rest)),
                [to, mask, gateway, rest @ ..] => Some((links::masked(to, mask), gateway, rest)),
                _ => None,
            };
            let found = found.and_then(|(to, gateway, rest)| {
                let (to, gateway) = (to?, gateway.parse::<IpAddr>().ok()?);
                let metric = rest.first().map(|metric| metric.parse().ok());
                let is_whole = to.address.is_ipv4() == gateway.is_ipv4() && metric != Some(None);
                is_whole.then(|| (to.network(), gateway, metric.flatten()))
            });
            let Some((to, gateway, metric)) = found else {
                self.wrong(name, "has a route that is not NETWORK/BITS via GATEWAY");
                continue;
            };
            links::add_route(link, Some(to), gateway);
            if let Some(added) = link.routes.last_mut() {
                added.route.metric = metric;
            }
        }
    }
}

/// A host name from a machine name, which may contain blanks and underscores.
fn as_host_name(name: &str) -> String {
    let plain = name.replace(
        |letter: char| !letter.is_ascii_alphanumeric() && letter != '.',
        "-",
    );
    let labels = plain.split('.').map(|label| label.trim_matches('-'));
    let labels: Vec<&str> = labels.filter(|label| !label.is_empty()).collect();
    labels.join(".")
}

/// Parses lines of the form `NAME='value'` or `NAME="value"`. In single quotes, `'\''` is a quote; in double quotes,
/// `\` escapes a special character.
fn variables(text: &str) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut rest = text;
    while let Some((line, behind)) = rest
        .split_once('\n')
        .or((!rest.is_empty()).then_some((rest, "")))
    {
        let line = line.trim_start().trim_start_matches("export ");
        let Some((name, _)) = line.split_once('=').filter(|(name, _)| is_variable(name)) else {
            rest = behind;
            continue;
        };
        // A value may span lines.
        let at = rest.find('=').map_or(rest.len(), |at| at + 1);
        let (value, after) = value(rest.get(at..).unwrap_or_default());
        found.insert(name.to_owned(), value);
        rest = after;
    }
    found
}

fn is_variable(name: &str) -> bool {
    !name.is_empty()
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// A value, and the text after its line.
fn value(text: &str) -> (String, &str) {
    let mut value = String::new();
    let mut quote = None;
    let mut letters = text.char_indices();
    while let Some((at, letter)) = letters.next() {
        match (quote, letter) {
            (None, '\n') => return (value, text.get(at + 1..).unwrap_or_default()),
            (None, '\'' | '"') => quote = Some(letter),
            (Some(open), letter) if open == letter => quote = None,
            (None | Some('"'), '\\') => value.extend(letters.next().map(|(_, letter)| letter)),
            (_, letter) => value.push(letter),
        }
    }
    (value, "")
}

#[cfg(test)]
mod tests {
    //! A context in the form of OpenNebula's documentation, written by hand.

    use super::*;
    use crate::testing::{Script, links as told};

    const CONTEXT: &str = r#"# Context variables generated by OpenNebula
DISK_ID='1'
DNS='192.0.2.53'
ETH0_DNS='192.0.2.54'
ETH0_GATEWAY='192.0.2.1'
ETH0_IP='192.0.2.8'
ETH0_IP6='2001:db8::8'
ETH0_IP6_GATEWAY='2001:db8::1'
ETH0_MAC='02:00:c0:a8:01:5c'
ETH0_MASK='255.255.255.0'
ETH0_MTU='1400'
ETH0_ROUTES='10.0.0.0/8 via 192.0.2.2, 172.16.0.0 255.240.0.0 192.0.2.3 50'
ETH0_ALIAS0_IP='192.0.2.9'
ETH0_ALIAS0_MAC='02:00:c0:a8:01:5c'
ETH0_ALIAS0_MASK='255.255.255.0'
ETH1_MAC='02:00:c0:a8:01:5d'
ETH1_METHOD='dhcp'
ETH2_MAC='02:00:c0:a8:01:5e'
ETH2_METHOD='skip'
NETWORK='YES'
SET_HOSTNAME='my node_1'
TEXT='it'\''s
two lines'
USER_DATA='bWFjaGluZToge30K'
VMID='42'
"#;

    #[tokio::test]
    async fn context_has_the_config_and_the_interfaces() {
        let (instance, notes) = Script::new()
            .file("context.sh", CONTEXT.as_bytes())
            .ask(&PLATFORM)
            .await;
        assert_eq!(notes, [""; 0]);
        assert_eq!(
            instance.config.as_deref(),
            Some(b"machine: {}\n".as_slice())
        );
        assert_eq!(instance.metadata.provider_id, "opennebula://42");
        assert_eq!(instance.network.hostname.as_deref(), Some("my-node-1"));
        assert_eq!(
            told(&instance.network.seed),
            [
                "eth0 02:00:c0:a8:01:5c mtu 1400 192.0.2.8/24 2001:db8::8/64 192.0.2.9/24",
                "eth0 default via 192.0.2.1",
                "eth0 default via 2001:db8::1",
                "eth0 10.0.0.0/8 via 192.0.2.2",
                "eth0 172.16.0.0/12 via 192.0.2.3 metric 50",
                "eth1 02:00:c0:a8:01:5d dhcp4 dhcp6",
                "dns 192.0.2.53",
                "dns 192.0.2.54"
            ]
        );
    }

    #[test]
    fn context_values_are_read_with_shell_quoting() {
        let found = variables(CONTEXT);
        assert_eq!(found["TEXT"], "it's\ntwo lines");
        assert_eq!(variables("A=\"x\\\"y\"\nexport B=z\n=1\nC")["A"], "x\"y");
        assert_eq!(
            variables("A='open").get("A").map(String::as_str),
            Some("open")
        );
    }

    #[tokio::test]
    async fn wrong_variable_is_named_and_the_others_are_used() {
        let context = CONTEXT.replace("255.255.255.0'\nETH0_MTU", "255.0.255.0'\nETH0_MTU");
        let (instance, notes) = Script::new()
            .file("context.sh", context.as_bytes())
            .ask(&PLATFORM)
            .await;
        let small = CONTEXT.replace("MTU='1400'", "MTU='140'");
        let script = Script::new().file("context.sh", small.as_bytes());
        let (_, of_small) = script.ask(&PLATFORM).await;
        assert!(
            of_small[0].contains("ETH0_MTU must be a number from 576"),
            "{of_small:?}"
        );
        assert!(
            notes[0].contains("context.sh: ETH0_IP must be an address"),
            "{notes:?}"
        );
        assert!(instance.config.is_some());
        assert_eq!(instance.network.seed.links.len(), 2);
    }
}
