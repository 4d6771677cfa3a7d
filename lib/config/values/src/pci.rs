//! Devices on PCI buses.

use std::ops::Deref;

use corten_yaml::read::{Reader, Value, scalar};
use corten_yaml::table::Shape;
use corten_yaml::tree::Node;

/// Format of an address.
const WHAT: &str = "the address of a device on a PCI bus, such as 0000:04:00.0";

/// The address of a device: domain, bus, device and function, in hexadecimal. It keeps its spelling;
/// [`PciAddress::normal`] gives the kernel's.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PciAddress(String);

impl PciAddress {
    /// Parses `0000:04:00.0`; the function may have a leading zero.
    #[must_use]
    pub fn parse(text: &str) -> Option<PciAddress> {
        parts(text).map(|_| PciAddress(text.to_owned()))
    }

    /// The address in the kernel's spelling (`Documentation/ABI/testing/sysfs-bus-pci`).
    #[must_use]
    pub fn normal(&self) -> String {
        let (domain, bus, device, function) = parts(&self.0).unwrap_or_default();
        format!("{domain:04x}:{bus:02x}:{device:02x}.{function}")
    }
}

fn parts(text: &str) -> Option<(u32, u8, u8, u8)> {
    let (domain, rest) = text.split_once(':')?;
    let (bus, rest) = rest.split_once(':')?;
    let (device, function) = rest.split_once('.')?;
    let number = |text: &str, lengths: std::ops::RangeInclusive<usize>| {
        let is_hex = text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let good = is_hex && lengths.contains(&text.len());
        u32::from_str_radix(text, 16).ok().filter(|_| good)
    };
    let domain = number(domain, 4..=8)?;
    let bus = u8::try_from(number(bus, 2..=2)?).ok()?;
    let device = u8::try_from(number(device, 2..=2)?).ok()?;
    let function = u8::try_from(number(function, 1..=2)?).ok()?;
    (device < 32 && function < 8).then_some((domain, bus, device, function))
}

impl Deref for PciAddress {
    type Target = str;
    fn deref(&self) -> &str {
        &self.0
    }
}

impl Value for PciAddress {
    const SHAPE: Shape = Shape::Text(WHAT);
    fn read(node: &Node, reader: &mut Reader<'_>) -> Option<Self> {
        scalar(node, reader, WHAT, PciAddress::parse)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pci_addresses_are_normalised() {
        for (text, normal) in [
            ("0000:04:00.0", "0000:04:00.0"),
            ("0000:04:00.00", "0000:04:00.0"),
            ("0000:AF:1f.07", "0000:af:1f.7"),
            ("00010000:e1:00.1", "10000:e1:00.1"),
        ] {
            assert_eq!(PciAddress::parse(text).unwrap().normal(), normal);
        }
        for text in [
            "",
            "04:00.0",
            "0000:04:00",
            "0000:04:00.8",
            "0000:04:20.0",
            "0000:004:00.0",
            "0000:04:0.0",
            "0000:04:00.000",
            "+000:04:00.0",
            "0000:04:00.0/..",
            "000000000:04:00.0",
            "0000:04:00.\u{e9}",
        ] {
            assert_eq!(PciAddress::parse(text), None, "{text}");
        }
    }
}
