//! The `ip=` kernel parameter (kernel: Documentation/admin-guide/nfs/nfsroot.rst), with the extensions in
//! use: IPv6 in brackets, a prefix length as mask, `<device>:dhcp`.

use std::net::{IpAddr, Ipv4Addr};

use super::link_config::{LinkConfig, Route, default_route};

/// What one `ip=` says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IpParam {
    /// The link it is about; `None`: see [`method_for`].
    pub device: Option<String>,
    /// How that link gets its addresses.
    pub method: Method,
    /// Host name, whatever the method.
    pub hostname: Option<String>,
}

/// How a link gets its IPv4 address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Method {
    /// From a DHCP server.
    Dhcp,
    /// As written.
    Static(LinkConfig),
    /// Not at all.
    Off,
}

/// A parameter that cannot be understood; the text says which part.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("kernel parameter ip={text}: {what}")]
pub struct BadParam {
    text: String,
    what: String,
}

/// Reads the value of one `ip=`.
///
/// # Errors
/// Names the part that cannot be understood.
pub fn parse(text: &str) -> Result<IpParam, BadParam> {
    let bad = |what: String| BadParam {
        text: text.to_owned(),
        what,
    };
    let fields = split(text);
    let field = |at: usize| fields.get(at).copied().filter(|field| !field.is_empty());
    if let [one] = fields.as_slice()
        && let Some(method) = automatic(one)
    {
        return Ok(IpParam {
            device: None,
            method,
            hostname: None,
        });
    }
    if let [device, word] = fields.as_slice()
        && let Some(method) = automatic(word)
    {
        return Ok(IpParam {
            device: Some((*device).to_owned()),
            method,
            hostname: None,
        });
    }
    if fields.len() > 10 {
        return Err(bad(format!(
            "{} fields; at most 10 have a meaning",
            fields.len()
        )));
    }
    let address = |at: usize, name: &str| {
        let parsed = field(at).map(|field| field.parse::<IpAddr>());
        parsed.transpose().map_err(|_| {
            bad(format!(
                "{name} {:?} is not an address",
                field(at).unwrap_or_default()
            ))
        })
    };
    let device = field(5).map(str::to_owned);
    let hostname = field(4).map(str::to_owned);
    let mut dns = Vec::new();
    for at in [7, 8] {
        dns.extend(address(at, "name server")?);
    }
    let method = match address(0, "client")? {
        None => match field(6) {
            None => Method::Dhcp,
            Some(word) => {
                automatic(word).ok_or_else(|| bad(format!("autoconf {word:?} is unknown")))?
            }
        },
        Some(client) => {
            let prefix =
                prefix(client, field(3)).ok_or_else(|| bad("the netmask is not one".to_owned()))?;
            let routes: Vec<Route> = address(2, "gateway")?
                .map(default_route)
                .into_iter()
                .collect();
            Method::Static(LinkConfig {
                addresses: vec![(client, prefix)],
                routes,
                dns,
                ..LinkConfig::default()
            })
        }
    };
    Ok(IpParam {
        device,
        method,
        hostname,
    })
}

/// The words for "ask a server" and "nothing".
fn automatic(word: &str) -> Option<Method> {
    match word {
        "dhcp" | "on" | "any" | "both" => Some(Method::Dhcp),
        "off" | "none" => Some(Method::Off),
        _ => None,
    }
}

/// Splits at colons outside of brackets, and takes the brackets off.
fn split(text: &str) -> Vec<&str> {
    let mut inside = false;
    let is_separator = |character: char| {
        match character {
            '[' => inside = true,
            ']' => inside = false,
            _ => {}
        }
        character == ':' && !inside
    };
    text.split(is_separator)
        .map(|field| field.trim_start_matches('[').trim_end_matches(']'))
        .collect()
}

/// The prefix length a netmask means. Without one: the address's old class, or 64.
fn prefix(client: IpAddr, mask: Option<&str>) -> Option<u8> {
    match (client, mask) {
        (IpAddr::V6(_), None) => Some(64),
        (IpAddr::V6(_), Some(mask)) => mask.parse().ok().filter(|length| *length <= 128),
        (IpAddr::V4(client), None) => match client.octets().first() {
            Some(0..=127) => Some(8),
            Some(128..=191) => Some(16),
            _ => Some(24),
        },
        (IpAddr::V4(_), Some(mask)) => match mask.parse::<Ipv4Addr>() {
            Ok(mask) => prefix_of(mask),
            Err(_) => mask.parse().ok().filter(|length| *length <= 32),
        },
    }
}

/// The prefix length of a netmask; `None` when its ones are not all in front.
#[must_use]
pub fn prefix_of(mask: Ipv4Addr) -> Option<u8> {
    let bits = mask.to_bits();
    let ones = bits.leading_ones();
    (bits.count_ones() == ones)
        .then_some(ones)
        .and_then(|ones| u8::try_from(ones).ok())
}

/// How the link of that name gets its address. A parameter for the very link goes first; one without a
/// device is for the first link to come (`is_first`) when it names an address, and for all otherwise.
#[must_use]
pub fn method_for(parameters: &[IpParam], name: &str, is_first: bool) -> Method {
    let own = parameters
        .iter()
        .find(|parameter| parameter.device.as_deref() == Some(name));
    let general = parameters.iter().find(|parameter| {
        parameter.device.is_none() && (is_first || !matches!(parameter.method, Method::Static(_)))
    });
    own.or(general)
        .map_or(Method::Dhcp, |parameter| parameter.method.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fixed(text: &str) -> LinkConfig {
        match parse(text).unwrap().method {
            Method::Static(config) => config,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_short_forms() {
        assert_eq!(parse("dhcp").unwrap().method, Method::Dhcp);
        assert_eq!(parse("off").unwrap().method, Method::Off);
        let one = parse("eth1:dhcp").unwrap();
        assert_eq!(
            (one.device.as_deref(), one.method),
            (Some("eth1"), Method::Dhcp)
        );
        assert_eq!(parse("").unwrap().method, Method::Dhcp);
    }

    #[test]
    fn the_long_form() {
        let text = "10.0.2.15::10.0.2.2:255.255.255.0:node1:eth0:none:10.0.2.3:1.1.1.1:10.0.2.9";
        let parsed = parse(text).unwrap();
        assert_eq!(
            (parsed.device.as_deref(), parsed.hostname.as_deref()),
            (Some("eth0"), Some("node1"))
        );
        let config = fixed(text);
        assert_eq!(config.addresses, [("10.0.2.15".parse().unwrap(), 24)]);
        assert_eq!(config.routes, [default_route("10.0.2.2".parse().unwrap())]);
        assert_eq!(
            config.dns,
            [
                "10.0.2.3".parse::<IpAddr>().unwrap(),
                "1.1.1.1".parse().unwrap()
            ]
        );
    }

    #[test]
    fn masks() {
        assert_eq!(
            fixed("10.1.2.3:::16").addresses,
            [("10.1.2.3".parse().unwrap(), 16)]
        );
        assert_eq!(
            fixed("192.168.1.1").addresses,
            [("192.168.1.1".parse().unwrap(), 24)]
        );
        let six = fixed("[2001:db8::5]::[2001:db8::1]:56::eth0:off");
        assert_eq!(six.addresses, [("2001:db8::5".parse().unwrap(), 56)]);
        assert_eq!(six.routes, [default_route("2001:db8::1".parse().unwrap())]);
        assert_eq!(prefix_of(Ipv4Addr::new(255, 0, 255, 0)), None);
        assert_eq!(prefix_of(Ipv4Addr::UNSPECIFIED), Some(0));
    }

    #[test]
    fn automatic_with_device_and_name() {
        let parsed = parse(":::::eth0:dhcp").unwrap();
        assert_eq!(
            (parsed.device.as_deref(), parsed.method),
            (Some("eth0"), Method::Dhcp)
        );
        assert_eq!(
            parse("::::node1:eth0:off").unwrap().hostname.as_deref(),
            Some("node1")
        );
    }

    #[test]
    fn nonsense_is_named() {
        for (text, part) in [
            ("10.0.0.300", "client"),
            ("10.0.0.1:::255.0.255.0", "netmask"),
            ("10.0.0.1::gw:24", "gateway"),
            (":::::eth0:magic", "autoconf"),
            ("1.1.1.1::::::::::x", "fields"),
        ] {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.contains(part) && error.contains(text), "{error}");
        }
    }

    #[test]
    fn which_link_a_parameter_is_for() {
        let for_eth1 = parse("10.0.0.1:::24::eth1:none").unwrap();
        let for_any = parse("10.0.0.2:::24").unwrap();
        let both = [for_eth1.clone(), for_any.clone()];
        assert_eq!(method_for(&both, "eth1", false), for_eth1.method);
        assert_eq!(method_for(&both, "eth0", true), for_any.method);
        assert_eq!(method_for(&both, "eth2", false), Method::Dhcp);
        assert_eq!(method_for(&[], "eth0", true), Method::Dhcp);
        assert_eq!(
            method_for(&[parse("off").unwrap()], "eth7", false),
            Method::Off
        );
    }
}
