//! Names: of hosts, links, volumes, drivers, modules, variables and kernel settings.

use sha2::{Digest as _, Sha256};

use crate::text::texts;

/// Length limit of a link's name in bytes (kernel: `IFNAMSIZ`, less the zero byte at the end).
const LONGEST_LINK_NAME: usize = 15;

texts! {
    /// A host or domain name: RFC 1123, labels separated by dots.
    HostName = "a name of letters, digits and dashes in parts of at most 63", is_host_name;
    /// A host name or an IP address.
    HostOrAddress = "a name or an IP address",
        |text| text.parse::<std::net::IpAddr>().is_ok() || is_host_name(text);
    /// The name of a network link in the kernel's limits (`IFNAMSIZ` is 16).
    LinkName = "the name of a network link, at most 15 characters", is_link_name;
    /// A pattern for names of network links, with `*`, `?` and `[abc]`.
    LinkPattern = "the name of a network link, which may have *, ? and [abc] in it",
        |text| text.len() <= 64
            && text.chars().all(|c| c.is_ascii_graphic() && c != '/')
            && glob::Pattern::new(text).is_ok();
    /// The name of a volume, which becomes a partition label and a directory.
    VolumeName = "a name of letters, digits and dashes, at most 34", is_volume_name;
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
    /// A parameter of a kernel module, `name` or `name=value`.
    ModuleParameter = "a module's parameter such as option=1",
        |text| text.len() <= 1024 && !text.chars().any(char::is_control) && {
            let name = text.split('=').next().unwrap_or_default();
            !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.'))
                && !name.starts_with('-')
        };
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

/// Whether the text is a valid name of a network link in the kernel.
#[must_use]
pub fn is_link_name(name: &str) -> bool {
    (1..=LONGEST_LINK_NAME).contains(&name.len())
        && !matches!(name, "." | "..")
        && name
            .chars()
            .all(|c| c.is_ascii_graphic() && !matches!(c, '/' | ':' | '%'))
}

/// The name of a VLAN of `machine.network.interfaces`, as in the reference: that of its link and the VLAN's number. A
/// long link name is shortened to its first characters and a part of its SHA-256, for the kernel's limit.
#[must_use]
pub fn vlan_name(link: &str, id: u16) -> String {
    // The number of each VLAN fits, so that all VLANs of a link have names of the same form.
    if link.len() + ".4095".len() <= LONGEST_LINK_NAME {
        return format!("{link}.{id}");
    }
    let start: String = link.chars().take(4).collect();
    let [a, b, c, ..] = <[u8; 32]>::from(Sha256::digest(link));
    format!("{start}{a:02x}{b:02x}{c:02x}.{id}")
}

/// Whether the text is the name of a file that is not hidden: letters, digits, `_`, `-` and `.`.
#[must_use]
pub fn is_file_name(text: &str) -> bool {
    (1..=200).contains(&text.len())
        && !text.starts_with('.')
        && text
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.'))
}

fn is_link_alias(name: &str) -> bool {
    match name.strip_suffix("%d") {
        // Three digits after it must still make a valid name.
        Some(start) => start.len() <= 12 && is_link_name(start),
        None => is_link_name(name),
    }
}

fn is_volume_name(text: &str) -> bool {
    (1..=34).contains(&text.len())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')
        && !text.starts_with('-')
        && !text.ends_with('-')
}

/// Whether the text is a valid name of an environment variable.
#[must_use]
pub fn is_variable(name: &str) -> bool {
    let usual = |c: char| c.is_ascii_alphanumeric() || c == '_';
    !name.is_empty() && !name.starts_with(|c: char| c.is_ascii_digit()) && name.chars().all(usual)
}

/// Whether the text is a valid name of a device feature (`linux/ethtool.h`, `ETH_GSTRING_LEN`).
#[must_use]
pub fn is_device_feature(name: &str) -> bool {
    (1..32).contains(&name.len()) && name.chars().all(|c| c.is_ascii_graphic())
}

/// Whether the name stays below `/proc/sys` or `/sys` when it becomes a path.
#[must_use]
pub fn is_kernel_setting(name: &str) -> bool {
    let usual =
        |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '/' | '*' | ':');
    // An absolute path is refused, and a leading dot would become a slash.
    !name.is_empty()
        && !name.starts_with(['.', '/'])
        && !name.contains("..")
        && name.chars().all(usual)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vlan_name_fits_the_kernel_and_differs_by_link() {
        assert_eq!(vlan_name("eth0", 5), "eth0.5");
        assert_eq!(vlan_name("0123456789", 4095), "0123456789.4095");
        // `printf enp129s0f0np0 | sha256sum` begins with 5c0f63.
        assert_eq!(vlan_name("enp129s0f0np0", 100), "enp15c0f63.100");
        assert_ne!(vlan_name("enp129s0f1np1", 100), "enp15c0f63.100");
        assert!(is_link_name(&vlan_name("enp129s0f0np0", 4095)));
    }

    #[test]
    fn only_dns_names_are_names() {
        assert!(is_host_name("node-1.example") && is_host_name("a"));
        for text in ["", "-a", "a-", "a..b", "a b", "a\nb", "a.", "ä"] {
            assert!(!is_host_name(text), "{text:?}");
        }
        assert!(!is_host_name(&"a".repeat(64)) && !is_host_name(&"a.".repeat(127)));
    }
}
