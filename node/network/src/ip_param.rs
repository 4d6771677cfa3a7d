//! The `ip=` kernel parameter (kernel: Documentation/admin-guide/nfs/nfsroot.rst), with common extensions: IPv6 in
//! brackets, a prefix length as mask, `<device>:dhcp`.

use std::net::{IpAddr, Ipv4Addr};

use corten_types::prefix::Prefix;

use corten_values::is_host_name;

/// Contents of one `ip=` parameter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IpParam {
    /// Link of the parameter; `None`: see [`method_for`].
    pub device: Option<String>,
    /// Source of the link's addresses.
    pub method: Method,
    /// Host name, for any method.
    pub hostname: Option<String>,
    /// Name servers, for any method.
    pub dns: Vec<IpAddr>,
    /// Time server, for any method.
    pub ntp: Option<IpAddr>,
}

/// Source of a link's address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Method {
    /// From a DHCP server.
    Dhcp,
    /// A fixed address.
    Static {
        /// Address of the link.
        address: Prefix,
        /// Default gateway.
        gateway: Option<IpAddr>,
    },
    /// No address.
    Off,
}

/// An invalid parameter, with the reason.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("kernel parameter ip={text}: {what}")]
pub struct BadParam {
    text: String,
    what: String,
}

/// Parses the value of one `ip=`.
///
/// # Errors
/// Names the invalid part.
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
        return Ok(IpParam::only(None, method));
    }
    if let [device, word] = fields.as_slice()
        && let Some(method) = automatic(word)
    {
        return Ok(IpParam::only(Some((*device).to_owned()), method));
    }
    if fields.len() > 10 {
        return Err(bad(format!(
            "it has {} fields; at most 10 are defined",
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
    let ntp = address(9, "time server")?;
    let method = match address(0, "client")? {
        None => match field(6) {
            None => Method::Dhcp,
            Some(word) => {
                automatic(word).ok_or_else(|| bad(format!("autoconf {word:?} is unknown")))?
            }
        },
        Some(client) => {
            let prefix =
                prefix(client, field(3)).ok_or_else(|| bad("the netmask is invalid".to_owned()))?;
            Method::Static {
                address: Prefix {
                    address: client,
                    length: prefix,
                },
                gateway: address(2, "gateway")?,
            }
        }
    };
    Ok(IpParam {
        device,
        method,
        hostname: hostname.filter(|name| is_host_name(name)),
        dns,
        ntp,
    })
}

impl IpParam {
    fn only(device: Option<String>, method: Method) -> IpParam {
        IpParam {
            device,
            method,
            hostname: None,
            dns: Vec::new(),
            ntp: None,
        }
    }
}

/// Parses the keywords for DHCP and for no address.
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

/// The prefix length of a netmask. Without one: the address's class, or 64 for IPv6.
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

/// The prefix length of a netmask; `None` for a netmask with gaps.
#[must_use]
pub fn prefix_of(mask: Ipv4Addr) -> Option<u8> {
    let bits = mask.to_bits();
    let ones = bits.leading_ones();
    (bits.count_ones() == ones)
        .then_some(ones)
        .and_then(|ones| u8::try_from(ones).ok())
}

/// The method for the link of that name. A parameter for this link has precedence. A parameter without a device applies
/// to all links, or only to the first one (`is_first`) if it has an address.
#[must_use]
pub fn method_for(parameters: &[IpParam], name: &str, is_first: bool) -> Option<Method> {
    let own = parameters
        .iter()
        .find(|parameter| parameter.device.as_deref() == Some(name));
    let is_static = |parameter: &IpParam| matches!(parameter.method, Method::Static { .. });
    let general = parameters
        .iter()
        .find(|parameter| parameter.device.is_none() && (is_first || !is_static(parameter)));
    own.or(general).map(|parameter| parameter.method.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fixed(text: &str) -> (String, Option<String>) {
        match parse(text).unwrap().method {
            Method::Static { address, gateway } => (
                address.to_string(),
                gateway.map(|gateway| gateway.to_string()),
            ),
            other => panic!("{text} is {other:?}"),
        }
    }

    #[test]
    fn short_forms_of_the_ip_parameter_parse() {
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
    fn long_form_of_the_ip_parameter_parses() {
        let text = "10.0.2.15::10.0.2.2:255.255.255.0:node1:eth0:none:10.0.2.3:1.1.1.1:10.0.2.9";
        let parsed = parse(text).unwrap();
        assert_eq!(
            (parsed.device.as_deref(), parsed.hostname.as_deref()),
            (Some("eth0"), Some("node1"))
        );
        let expected = ("10.0.2.15/24".to_owned(), Some("10.0.2.2".to_owned()));
        assert_eq!(fixed(text), expected);
        let dns: Vec<String> = parsed.dns.iter().map(ToString::to_string).collect();
        assert_eq!(dns, ["10.0.2.3", "1.1.1.1"]);
        assert_eq!(parsed.ntp, Some("10.0.2.9".parse().unwrap()));
    }

    #[test]
    fn netmasks_and_prefix_lengths_parse() {
        assert_eq!(fixed("10.1.2.3:::16").0, "10.1.2.3/16");
        assert_eq!(fixed("192.168.1.1").0, "192.168.1.1/24");
        let six = fixed("[2001:db8::5]::[2001:db8::1]:56::eth0:off");
        let expected = ("2001:db8::5/56".to_owned(), Some("2001:db8::1".to_owned()));
        assert_eq!(six, expected);
        assert_eq!(prefix_of(Ipv4Addr::new(255, 0, 255, 0)), None);
        assert_eq!(prefix_of(Ipv4Addr::UNSPECIFIED), Some(0));
    }

    #[test]
    fn dhcp_with_device_and_host_name_parses() {
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
    fn malformed_ip_parameter_is_refused_by_field() {
        for (text, part) in [
            ("10.0.0.300", "client"),
            ("10.0.0.1:::255.0.255.0", "netmask"),
            ("10.0.0.1::gw:24", "gateway"),
            (":::::eth0:magic", "autoconf"),
            ("1.1.1.1:::::::::x", "time server"),
            ("1.1.1.1::::::::::x", "fields"),
        ] {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.contains(part) && error.contains(text), "{error}");
        }
    }

    #[test]
    fn parameter_applies_to_its_named_or_the_first_link() {
        let for_eth1 = parse("10.0.0.1:::24::eth1:none").unwrap();
        let for_any = parse("10.0.0.2:::24").unwrap();
        let both = [for_eth1.clone(), for_any.clone()];
        assert_eq!(method_for(&both, "eth1", false), Some(for_eth1.method));
        assert_eq!(method_for(&both, "eth0", true), Some(for_any.method));
        assert_eq!(method_for(&both, "eth2", false), None);
        assert_eq!(method_for(&[], "eth0", true), None);
        let off = [parse("off").unwrap()];
        assert_eq!(method_for(&off, "eth7", false), Some(Method::Off));
    }
}
