//! What the tags mean that the node itself sets or reads. The reference's tags end at 0x11; 0xc0 and above are ours.

use crate::Tag;

/// How STATE is encrypted: the config that says it is on STATE itself (`corten_config::kinds::Encryption`).
pub const STATE_ENCRYPTION: Tag = tag(0x09);
/// What the platform says of the network (`corten_config::platform::PlatformNetwork`).
pub const PLATFORM_NETWORK: Tag = tag(0x0a);

/// The authorities of the node's owner: certificates in PEM, as `machine.ca` and `machine.acceptedCAs` have them. A node
/// whose STATE is lost knows its owner by them. The reference's tags end at 0x11.
pub const OWNER: Tag = tag(0xc0);

/// The record of the version that was tried last (`corten_installer::Trial`).
pub const TRIAL: Tag = tag(0xc1);
/// STATE was encrypted: one in the clear was put in its place. A reset of STATE removes it.
pub const WAS_ENCRYPTED: Tag = tag(0xc3);
/// Why a boot was locked (machined's `last_stop::Note`), until the next one has told it.
pub const LOCK: Tag = tag(0xc2);

const fn tag(number: u8) -> Tag {
    match Tag::new(number) {
        Some(tag) => tag,
        None => Tag::MIN,
    }
}
