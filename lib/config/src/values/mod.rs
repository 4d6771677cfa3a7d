//! Scalar types beyond plain text, one per format.

mod arguments;
mod credential;
mod expression;
mod extension;
mod facts;
mod kubernetes;
mod network;
mod pci;
mod quantity;
mod wireguard;

use std::fmt;
use std::ops::Deref;

use corten_yaml::read::{Reader, Value, scalar};
use corten_yaml::table::Shape;
use corten_yaml::tree::Node;

pub use arguments::Arguments;
pub(crate) use arguments::check_protected;
pub use credential::{
    AcceptedCa, Base64Certificate, Base64Key, KeyPair, PemCertificates, PemKey, PemKeyPair,
    PemPublicKey,
};
pub use expression::on_reader;
pub use extension::ExtensionSource;
pub(crate) use facts::Subject;
pub use facts::{DiskFacts, LinkFacts, VolumeFacts};
pub use kubernetes::quantity;
pub(crate) use kubernetes::{is_label_value, is_qualified_name, is_subdomain, is_taint};
pub use network::{Cidr, Endpoint, Mac, Ports};
pub use pci::PciAddress;
pub use quantity::{Comparison, FileMode, MatchSize, MaxSize, Size};
pub use wireguard::{WireguardKey, WireguardSecret};

/// Declares a text type with a check.
macro_rules! texts {
    ($( $(#[$attribute:meta])* $name:ident = $what:literal, $check:expr; )*) => { $(
        $(#[$attribute])*
        #[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
        pub struct $name(String);

        impl Deref for $name {
            type Target = str;
            fn deref(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl Value for $name {
            const SHAPE: Shape = Shape::Text($what);
            fn read(node: &Node, reader: &mut Reader<'_>) -> Option<Self> {
                let check: fn(&str) -> bool = $check;
                scalar(node, reader, $what, |text| check(text).then(|| $name(text.to_owned())))
            }
        }
    )* };
}

texts! {
    /// A host or domain name: RFC 1123, labels separated by dots.
    HostName = "a name of letters, digits and dashes in parts of at most 63", is_host_name;
    /// A host name or an IP address.
    HostOrAddress = "a name or an IP address",
        |text| text.parse::<std::net::IpAddr>().is_ok() || is_host_name(text);
    /// A time source.
    TimeSource = "a name, an IP address with or without a port, or a clock such as /dev/ptp0",
        |text| text.parse::<std::net::IpAddr>().is_ok()
            || text.parse::<std::net::SocketAddr>().is_ok()
            || is_host_name(text)
            || is_clock(text);
    /// The clock of a device.
    ClockDevice = "a clock such as /dev/ptp0", is_clock;
    /// The name of a network link in the kernel's limits (`IFNAMSIZ` is 16).
    LinkName = "the name of a network link, at most 15 characters", is_link_name;
    /// A pattern for names of network links, with `*`, `?` and `[abc]`.
    LinkPattern = "the name of a network link, which may have *, ? and [abc] in it",
        |text| text.len() <= 64
            && text.chars().all(|c| c.is_ascii_graphic() && c != '/')
            && glob::Pattern::new(text).is_ok();
    /// A URL with a scheme and a host.
    Url = "a URL such as https://example.org", is_url;
    /// An `https` URL.
    HttpsUrl = "a URL such as https://10.0.0.1:6443",
        |text| text.starts_with("https://") && is_url(text);
    /// An absolute path without `..`.
    AbsolutePath = "an absolute path without ..", is_absolute_path;
    /// The name of a volume, which becomes a partition label and a directory.
    VolumeName = "a name of letters, digits and dashes, at most 34", is_volume_name;
    /// An expression that selects disks, volumes or links. Its syntax and depth are checked later, where its variables
    /// are known.
    Expression = "an expression of at most 1024 bytes, its brackets at most 24 deep",
        |text| !text.trim().is_empty() && text.len() <= expression::LENGTH;
    /// A network or an address, possibly excluded.
    SubnetMatch = "a network such as 10.0.0.0/8 or an address; with ! in front it is left out",
        |text| {
            let text = text.strip_prefix('!').unwrap_or(text);
            Cidr::parse(text).is_some() || text.parse::<std::net::IpAddr>().is_ok()
        };
    /// The name of a Kubernetes object.
    ObjectName = "a name of lower-case letters, digits and dashes in parts of at most 63", is_subdomain;
    /// An alias of one or several links: `net%d` is `net0`, `net1` and so on.
    LinkAlias = "a name of at most 15 characters, or one of at most 12 with %d behind it", is_link_alias;
    /// A variable as `NAME=value`. Never shown: values may hold credentials.
    Assignment = "NAME=value",
        |text| text.split_once('=').is_some_and(|(name, value)| is_variable(name) && !value.contains('\0'));
    /// The name of a driver in `/sys/bus/pci/drivers`.
    DriverName = "the name of a driver: letters, digits, `_`, `-` and `.`",
        |text| (1..=64).contains(&text.len())
            && !matches!(text, "." | "..")
            && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.'));
    /// The name of a kernel module.
    ModuleName = "the name of a kernel module",
        |text| (1..=64).contains(&text.len())
            && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-'));
    /// The image of a system extension, in a registry or on a volume.
    ExtensionImage = "an image with its digest: NAME@sha256:..., or oci-archive://LABEL/FILE@sha256:...",
        extension::is_image;
    /// A parameter of a kernel module, `name` or `name=value`.
    ModuleParameter = "a module's parameter such as option=1",
        |text| text.len() <= 1024 && !text.chars().any(char::is_control) && {
            let name = text.split('=').next().unwrap_or_default();
            !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.'))
                && !name.starts_with('-')
        };
}

/// A value of any form, passed unchanged to the program that understands it.
#[derive(Clone, PartialEq)]
pub struct Object(pub(crate) Node);

impl Object {
    /// The value as a YAML document.
    #[must_use]
    pub fn yaml(&self) -> String {
        corten_yaml::emit::document(&self.0)
    }

    /// The value as JSON.
    #[must_use]
    pub fn json(&self) -> serde_json::Value {
        corten_yaml::json::of(&self.0)
    }
}

impl fmt::Debug for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<object>")
    }
}

impl Value for Object {
    const SHAPE: Shape = Shape::Object;
    fn read(node: &Node, _: &mut Reader<'_>) -> Option<Self> {
        Some(Object(node.clone()))
    }
}

/// Whether untrusted text is a host or domain name (RFC 1123, 2.1), which is safe to write into files and messages.
#[must_use]
pub fn is_host_name(name: &str) -> bool {
    let label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    name.len() <= 253 && name.split('.').all(label)
}

pub(crate) fn is_link_name(name: &str) -> bool {
    (1..=15).contains(&name.len())
        && !matches!(name, "." | "..")
        && name
            .chars()
            .all(|c| c.is_ascii_graphic() && !matches!(c, '/' | ':' | '%'))
}

fn is_link_alias(name: &str) -> bool {
    match name.strip_suffix("%d") {
        // Three digits after it must still make a valid name.
        Some(start) => start.len() <= 12 && is_link_name(start),
        None => is_link_name(name),
    }
}

/// Reports a field that is not a receiver of logs.
pub(crate) fn check_receiver(node: &Node, field: &str, reader: &mut Reader<'_>) {
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

/// Whether the path is in the directory of device clocks: opening any other file may block or have side effects.
#[must_use]
pub fn is_clock(path: &str) -> bool {
    let name = path.strip_prefix("/dev/ptp");
    let is_of_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    name.is_some_and(|rest| !rest.is_empty() && rest.bytes().all(is_of_name))
}

fn is_absolute_path(text: &str) -> bool {
    text.starts_with('/')
        && text.len() < 4096
        && !text.contains('\0')
        && !text.split('/').any(|part| part == "..")
}

fn is_volume_name(text: &str) -> bool {
    (1..=34).contains(&text.len())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')
        && !text.starts_with('-')
        && !text.ends_with('-')
}

/// Whether the text is a valid name of an environment variable.
pub(crate) fn is_variable(name: &str) -> bool {
    let usual = |c: char| c.is_ascii_alphanumeric() || c == '_';
    !name.is_empty() && !name.starts_with(|c: char| c.is_ascii_digit()) && name.chars().all(usual)
}

/// Whether the text is a valid name of a device feature (`linux/ethtool.h`, `ETH_GSTRING_LEN`).
pub(crate) fn is_device_feature(name: &str) -> bool {
    (1..32).contains(&name.len()) && name.chars().all(|c| c.is_ascii_graphic())
}

/// Whether the name stays below `/proc/sys` or `/sys` when it becomes a path.
pub(crate) fn is_kernel_setting(name: &str) -> bool {
    let usual =
        |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '/' | '*' | ':');
    // An absolute path is refused, and a leading dot would become a slash.
    !name.is_empty()
        && !name.starts_with(['.', '/'])
        && !name.contains("..")
        && name.chars().all(usual)
}
