//! Announces handled events to libudev clients: a netlink message to their multicast group in libudev's format.

use crate::event::Event;
use crate::plan::Plan;
use rustix::net::netlink::{KOBJECT_UEVENT, SocketAddrNetlink};
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, sendto, socket_with};
use std::io;
use std::os::fd::OwnedFd;

/// The multicast group of handled events; group 1 is the kernel's own.
const GROUP: u32 = 2;

/// Marks a message of libudev's format, in network byte order.
const MAGIC: u32 = 0xfeed_cafe;

/// Length of the header in bytes: a prefix and eight 32-bit fields.
const HEADER: usize = 40;

/// The sending socket.
#[derive(Debug)]
pub struct Broadcast {
    socket: OwnedFd,
}

impl Broadcast {
    /// Opens the socket.
    ///
    /// # Errors
    /// If the kernel has no netlink.
    pub fn new() -> io::Result<Self> {
        let (family, kind) = (AddressFamily::NETLINK, SocketType::RAW);
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        Ok(Self {
            socket: socket_with(family, kind, flags, Some(KOBJECT_UEVENT))?,
        })
    }

    /// Announces that `event` was handled as `plan` says.
    ///
    /// # Errors
    /// Those of the socket. A missing listener is not an error.
    pub fn send(&self, event: &Event, plan: &Plan) -> io::Result<()> {
        let message = encode(event, plan);
        let to = SocketAddrNetlink::new(0, 1 << (GROUP - 1));
        match sendto(&self.socket, &message, SendFlags::empty(), &to) {
            Ok(_) | Err(rustix::io::Errno::CONNREFUSED) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// Encodes the message: the header, then `KEY=value` pairs, each terminated by a NUL. The fields that libudev defines
/// in network byte order use it; the others use host byte order.
fn encode(event: &Event, plan: &Plan) -> Vec<u8> {
    let properties = properties(event, plan);
    let filter = |text: Option<&str>| text.map_or(0, hash).to_be_bytes();
    let bloom = plan.tags.iter().fold(0, |bits, tag| bits | bloom(tag));
    let length = u32::try_from(properties.len()).unwrap_or(u32::MAX);
    let mut message = Vec::with_capacity(HEADER + properties.len());
    message.extend_from_slice(b"libudev\0");
    message.extend_from_slice(&MAGIC.to_be_bytes());
    message.extend_from_slice(&40u32.to_ne_bytes());
    message.extend_from_slice(&40u32.to_ne_bytes());
    message.extend_from_slice(&length.to_ne_bytes());
    message.extend_from_slice(&filter(Some(&event.subsystem)));
    message.extend_from_slice(&filter(event.property("DEVTYPE")));
    // High half, then low half, each in network byte order.
    message.extend_from_slice(&bloom.to_be_bytes());
    message.extend_from_slice(&properties);
    message
}

fn properties(event: &Event, plan: &Plan) -> Vec<u8> {
    let mut all = event.properties.clone();
    all.extend(plan.properties.clone());
    if let Some(name) = all.get_mut("DEVNAME") {
        *name = format!("/dev/{name}");
    }
    if !plan.links.is_empty() && event.node().is_some() {
        let links: Vec<String> = plan
            .links
            .iter()
            .map(|link| format!("/dev/{link}"))
            .collect();
        all.insert("DEVLINKS".into(), links.join(" "));
    }
    if !plan.tags.is_empty() {
        let tags: String = plan.tags.iter().map(|tag| format!(":{tag}")).collect();
        all.insert("TAGS".into(), format!("{tags}:"));
        all.insert("CURRENT_TAGS".into(), format!("{tags}:"));
    }
    all.iter()
        .flat_map(|(key, value)| format!("{key}={value}\0").into_bytes())
        .collect()
}

/// MurmurHash2 with seed 0, which libudev's socket filters use.
fn hash(text: &str) -> u32 {
    const M: u32 = 0x5bd1_e995;
    let bytes = text.as_bytes();
    let mut state = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    let mut chunks = bytes.chunks_exact(4);
    for chunk in &mut chunks {
        let word = chunk
            .iter()
            .rev()
            .fold(0u32, |word, byte| word << 8 | u32::from(*byte));
        let word = word.wrapping_mul(M);
        let word = (word ^ (word >> 24)).wrapping_mul(M);
        state = state.wrapping_mul(M) ^ word;
    }
    let rest = chunks.remainder();
    if !rest.is_empty() {
        state ^= rest
            .iter()
            .rev()
            .fold(0u32, |word, byte| word << 8 | u32::from(*byte));
        state = state.wrapping_mul(M);
    }
    state = (state ^ (state >> 13)).wrapping_mul(M);
    state ^ (state >> 15)
}

/// Bloom filter of a tag: four of 64 bits, chosen by its hash.
fn bloom(tag: &str) -> u64 {
    let hash = hash(tag);
    [0, 6, 12, 18]
        .iter()
        .fold(0, |bits, shift| bits | 1 << ((hash >> shift) & 63))
}

#[cfg(test)]
mod tests {
    use super::{encode, hash};
    use crate::event::Event;
    use crate::plan::Plan;

    #[test]
    fn hash_matches_that_of_the_libudev_filters() {
        // Computed with the reference MurmurHash2, seed 0.
        assert_eq!(hash(""), 0);
        assert_eq!(hash("block"), 0xf003_1db7);
        assert_eq!(hash("net"), 0xa74d_3cc8);
        assert_eq!(hash("disk"), 0x7bcb_c5ee);
    }

    #[test]
    fn the_message_has_header_and_properties() {
        let event =
            b"ACTION=add\nDEVPATH=/devices/x\nSUBSYSTEM=block\nMAJOR=8\nMINOR=0\nDEVNAME=sda";
        let event = Event::parse(event).unwrap();
        let plan = Plan {
            links: ["disk/by-id/a".into(), "disk/by-id/b".into()].into(),
            tags: ["systemd".into()].into(),
            ..Plan::default()
        };
        let message = encode(&event, &plan);
        assert_eq!(&message[..12], b"libudev\0\xfe\xed\xca\xfe");
        assert_eq!(
            message[20..24],
            u32::try_from(message.len() - 40).unwrap().to_ne_bytes()
        );
        let text = String::from_utf8_lossy(&message[40..]);
        for part in [
            "\0DEVNAME=/dev/sda\0",
            "\0DEVLINKS=/dev/disk/by-id/a /dev/disk/by-id/b\0",
            "\0TAGS=:systemd:\0",
        ] {
            assert!(text.contains(part), "{text:?}");
        }
    }
}
