//! Messages of the ethtool family and their attributes (`linux/ethtool_netlink.h`).

use netlink_packet_core::{
    DecodeError, DefaultNla, Emitable, NLA_F_NESTED, NlasIterator, ParseableParametrized,
};
use netlink_packet_generic::{GenlFamily, GenlHeader};

/// In every message: the header, which names the link.
pub(super) const HEADER: u16 = 1;
/// In a header: the name of the link.
pub(super) const LINK: u16 = 2;
/// In a bitset: a flag that marks a list of the set bits.
pub(super) const NO_MASK: u16 = 1;
/// In a bitset: its bits.
pub(super) const BITS: u16 = 3;
/// Among the bits: one bit.
pub(super) const BIT: u16 = 1;
/// In a bit: its position.
pub(super) const PLACE: u16 = 1;
/// In a bit: its name.
pub(super) const NAME: u16 = 2;
/// In a bit: a flag that it is set.
pub(super) const SET: u16 = 3;

/// A message of the ethtool family.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Message {
    pub(super) command: u8,
    /// Encoded attributes.
    pub(super) attributes: Vec<u8>,
}

impl Message {
    /// A message about a link; `content` holds encoded attributes.
    pub(super) fn new(command: u8, link: &str, content: &[u8]) -> Message {
        let header = nested(HEADER, &[named(LINK, link)]);
        Message {
            command,
            attributes: [&*header, content].concat(),
        }
    }
}

/// Encodes an attribute.
pub(super) fn written(kind: u16, value: Vec<u8>) -> Vec<u8> {
    let attribute = DefaultNla::new(kind, value);
    let mut bytes = vec![0; attribute.buffer_len()];
    attribute.emit(&mut bytes);
    bytes
}

/// Encodes an attribute that nests others.
pub(super) fn nested(kind: u16, parts: &[Vec<u8>]) -> Vec<u8> {
    written(NLA_F_NESTED | kind, parts.concat())
}

/// Encodes a numeric attribute.
pub(super) fn counted(kind: u16, number: u32) -> Vec<u8> {
    written(kind, number.to_ne_bytes().to_vec())
}

/// Encodes a text attribute.
pub(super) fn named(kind: u16, text: &str) -> Vec<u8> {
    written(kind, [text.as_bytes(), &[0]].concat())
}

impl GenlFamily for Message {
    fn family_name() -> &'static str {
        super::FAMILY
    }

    fn command(&self) -> u8 {
        self.command
    }

    fn version(&self) -> u8 {
        1
    }
}

impl Emitable for Message {
    fn buffer_len(&self) -> usize {
        self.attributes.len()
    }

    fn emit(&self, buffer: &mut [u8]) {
        if let Some(place) = buffer.get_mut(..self.attributes.len()) {
            place.copy_from_slice(&self.attributes);
        }
    }
}

impl ParseableParametrized<[u8], GenlHeader> for Message {
    fn parse_with_param(bytes: &[u8], header: GenlHeader) -> Result<Message, DecodeError> {
        Ok(Message {
            command: header.cmd,
            attributes: bytes.to_vec(),
        })
    }
}

/// Attributes with their types, up to the first malformed one.
pub(super) fn attributes(bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    let whole = NlasIterator::new(bytes).map_while(Result::ok);
    whole.map(|attribute| {
        let (kind, length) = (attribute.kind(), attribute.length());
        let value = attribute.into_inner().get(4..length.into());
        (kind, value.unwrap_or_default())
    })
}

/// A numeric value of 8 or 32 bits.
pub(super) fn number(value: &[u8]) -> Option<u32> {
    match value {
        [byte] => Some((*byte).into()),
        _ => value.try_into().ok().map(u32::from_ne_bytes),
    }
}

pub(super) fn numbers(bytes: &[u8]) -> impl Iterator<Item = (u16, u32)> {
    attributes(bytes).filter_map(|(kind, value)| Some((kind, number(value)?)))
}

/// A bit of a bitset, with its name if the kernel has one.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Bit {
    pub(super) place: u32,
    pub(super) name: String,
    pub(super) is_set: bool,
}

/// All bits of a bitset.
pub(super) fn bits(bytes: &[u8]) -> Vec<Bit> {
    let is_list = attributes(bytes).any(|(kind, _)| kind == NO_MASK);
    let lists = attributes(bytes).filter(|(kind, _)| *kind == BITS);
    let all = lists.flat_map(|(_, list)| attributes(list));
    all.map(|(_, content)| {
        let mut bit = Bit {
            is_set: is_list,
            ..Bit::default()
        };
        for (kind, value) in attributes(content) {
            match kind {
                PLACE => bit.place = number(value).unwrap_or_default(),
                NAME => bit.name = text(value),
                SET => bit.is_set = true,
                _ => {}
            }
        }
        bit
    })
    .collect()
}

fn text(value: &[u8]) -> String {
    let value = value.strip_suffix(&[0]).unwrap_or(value);
    String::from_utf8_lossy(value).into_owned()
}
