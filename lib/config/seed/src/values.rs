//! The value types of both versions of `network-config` (cloud-init's documentation: "Networking config").

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use corten_values::Cidr;
use corten_yaml::read::{LEFT_OUT, Reader, Value, scalar};
use corten_yaml::table::Shape;
use corten_yaml::tree::{Content, Node};

/// A boolean of YAML 1.1, which cloud-init reads.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Truth(pub bool);

impl Value for Truth {
    const SHAPE: Shape = Shape::Plain("true or false");
    fn read(node: &Node, reader: &mut Reader<'_>) -> Option<Self> {
        scalar(node, reader, "true or false", |text| {
            match text.to_ascii_lowercase().as_str() {
                "true" | "yes" | "on" => Some(Truth(true)),
                "false" | "no" | "off" => Some(Truth(false)),
                _ => None,
            }
        })
    }
}

/// A switch of the kernel: a boolean, or 0 or 1.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Switch(pub bool);

impl Switch {
    pub(crate) fn number(self) -> u8 {
        u8::from(self.0)
    }
}

impl Value for Switch {
    const SHAPE: Shape = Shape::Plain("true or false");
    fn read(node: &Node, reader: &mut Reader<'_>) -> Option<Self> {
        match node.text() {
            Some("0") => Some(Switch(false)),
            Some("1") => Some(Switch(true)),
            _ => Truth::read(node, reader).map(|truth| Switch(truth.0)),
        }
    }
}

/// An address of a link: text, or a map from the text to options.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Own(pub Cidr);

impl Value for Own {
    const SHAPE: Shape = Cidr::SHAPE;
    fn read(node: &Node, reader: &mut Reader<'_>) -> Option<Self> {
        let [(key, options)] = node.entries() else {
            return Cidr::read(node, reader).map(Own);
        };
        let text = Node {
            mark: key.mark,
            content: Content::Scalar {
                text: key.name.clone(),
                plain: false,
            },
        };
        for (option, _) in options.entries() {
            reader.within(&option.name, |reader| {
                reader.leave_out(option.mark, LEFT_OUT)
            });
        }
        Cidr::read(&text, reader).map(Own)
    }
}

/// A single value or a list.
#[derive(Debug, Clone, PartialEq)]
pub struct OneOrMore<T>(pub Vec<T>);

impl<T> Default for OneOrMore<T> {
    fn default() -> Self {
        OneOrMore(Vec::new())
    }
}

impl<T: Value> Value for OneOrMore<T> {
    const SHAPE: Shape = Shape::List(&T::SHAPE);
    fn read(node: &Node, reader: &mut Reader<'_>) -> Option<Self> {
        match &node.content {
            Content::List(_) => Vec::read(node, reader).map(OneOrMore),
            _ => T::read(node, reader).map(|one| OneOrMore(vec![one])),
        }
    }
}

/// A destination or an address: an address with or without a prefix, or `default`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Place {
    /// Address; absent: everywhere.
    pub address: Option<IpAddr>,
    /// Prefix length; absent: not part of the text.
    pub prefix: Option<u8>,
}

impl Place {
    fn parse(text: &str) -> Option<Place> {
        if text == "default" {
            return Some(Place::default());
        }
        if let Some(cidr) = Cidr::parse(text) {
            return Some(Place {
                address: Some(cidr.address),
                prefix: Some(cidr.prefix),
            });
        }
        Some(Place {
            address: Some(text.parse().ok()?),
            prefix: None,
        })
    }

    /// The network, with an optional separate mask; an address without either is a single host. `None`: everywhere.
    pub(crate) fn network(self, mask: Option<Mask>) -> Option<Cidr> {
        let address = self.address?;
        let whole = width(address);
        let prefix = self.prefix.or(mask.map(|mask| mask.0)).unwrap_or(whole);
        let cidr = Cidr {
            address,
            prefix: prefix.min(whole),
        };
        (!cidr.is_default()).then_some(cidr)
    }

    /// Reports a mask that is longer than the address.
    pub(crate) fn check_mask(self, mask: Option<Mask>, node: &Node, reader: &mut Reader<'_>) {
        let whole = self.address.map_or(u8::MAX, width);
        if mask.is_some_and(|mask| mask.0 > whole) {
            let what = format!("must have at most {whole} bits, as the address has");
            reader.wrong_in(node, "netmask", &what);
        }
    }
}

/// Length of an address in bits.
pub(crate) fn width(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

impl Value for Place {
    const SHAPE: Shape = Shape::Text("an address with or without prefix, or default");
    fn read(node: &Node, reader: &mut Reader<'_>) -> Option<Self> {
        let what = "an address with or without prefix, or default";
        scalar(node, reader, what, Place::parse)
    }
}

/// A network mask: `255.255.255.0`, `ffff:ffff::`, or its number of bits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Mask(pub u8);

impl Mask {
    fn parse(text: &str) -> Option<Mask> {
        if let Ok(bits) = text.parse::<u8>() {
            return (bits <= 128).then_some(Mask(bits));
        }
        let (ones, zeros, width) = match text.parse().ok()? {
            IpAddr::V4(mask) => leading(u128::from(mask.to_bits()) << 96, Ipv4Addr::BITS),
            IpAddr::V6(mask) => leading(mask.to_bits(), Ipv6Addr::BITS),
        };
        (ones + zeros >= width)
            .then(|| u8::try_from(ones).ok().map(Mask))
            .flatten()
    }
}

/// Leading ones, zeros after them, and the width, of a mask in the highest bits.
fn leading(bits: u128, width: u32) -> (u32, u32, u32) {
    let ones = bits.leading_ones();
    let zeros = bits
        .checked_shl(ones)
        .map_or(u128::BITS, u128::leading_zeros);
    (ones, zeros, width)
}

impl Value for Mask {
    const SHAPE: Shape = Shape::Text("a mask such as 255.255.255.0");
    fn read(node: &Node, reader: &mut Reader<'_>) -> Option<Self> {
        scalar(node, reader, "a mask such as 255.255.255.0", Mask::parse)
    }
}
