//! URLs, paths, clocks and receivers of logs.

use corten_yaml::read::Reader;
use corten_yaml::tree::Node;

use crate::names::is_host_name;
use crate::text::texts;

texts! {
    /// A time source.
    TimeSource = "a name, an IP address with or without a port, or a clock such as /dev/ptp0",
        |text| text.parse::<std::net::IpAddr>().is_ok()
            || text.parse::<std::net::SocketAddr>().is_ok()
            || is_host_name(text)
            || is_clock(text);
    /// The clock of a device.
    ClockDevice = "a clock such as /dev/ptp0", is_clock;
    /// A URL with a scheme and a host.
    Url = "a URL such as https://example.org", is_url;
    /// An `https` URL.
    HttpsUrl = "a URL such as https://10.0.0.1:6443",
        |text| text.starts_with("https://") && is_url(text);
    /// An absolute path without `..`.
    AbsolutePath = "an absolute path without ..", is_absolute_path;
}

/// Whether the path is in the directory of device clocks: opening any other file may block or have side effects.
#[must_use]
pub fn is_clock(path: &str) -> bool {
    let name = path.strip_prefix("/dev/ptp");
    let is_of_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    name.is_some_and(|rest| !rest.is_empty() && rest.bytes().all(is_of_name))
}

/// The part of RFC 3986 that finds obvious errors; the program that opens the URL finds the rest.
fn is_url(text: &str) -> bool {
    let Some((scheme, rest)) = text.split_once("://") else {
        return false;
    };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host = authority.rsplit('@').next().unwrap_or_default();
    let usual = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.');
    scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme.chars().all(usual)
        && !host.is_empty()
        && !host.starts_with(':')
        && !text.chars().any(|c| c.is_whitespace() || c.is_control())
}

fn is_absolute_path(text: &str) -> bool {
    text.starts_with('/')
        && text.len() < 4096
        && !text.contains('\0')
        && !text.split('/').any(|part| part == "..")
}

/// Reports a field that is not a receiver of logs.
pub fn check_receiver(node: &Node, field: &str, reader: &mut Reader<'_>) {
    let good = |text: &str| {
        let rest = text.strip_prefix("tcp://").or(text.strip_prefix("udp://"));
        let authority = rest.map(|rest| rest.strip_suffix('/').unwrap_or(rest));
        let parts = authority.and_then(|authority| authority.rsplit_once(':'));
        parts.is_some_and(|(host, port)| {
            let bracketed = host.starts_with('[') && host.ends_with(']');
            !host.is_empty()
                && !host.contains(['@', '/', '?', '#'])
                && (bracketed || !host.contains(':'))
                && matches!(port.parse(), Ok(1..=u16::MAX))
        })
    };
    let given = node.get(field).and_then(Node::text);
    if given.is_some_and(|text| !good(text)) {
        reader.wrong_in(node, field, "must be tcp://host:port or udp://host:port");
    }
}
