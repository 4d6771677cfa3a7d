//! The tags that the node itself sets or reads. The reference's tags end at 0x11; 0xc0 and above are ours.

use crate::Tag;

/// Encryption of STATE (`corten_config::kinds::Encryption`); the machine config that states it lies on STATE itself.
pub const STATE_ENCRYPTION: Tag = tag(0x09);
/// Network config from the platform (`corten_seed::PlatformNetwork`).
pub const PLATFORM_NETWORK: Tag = tag(0x0a);
/// UUID that replaces the firmware's. Corten does not use it.
pub const UUID_OVERRIDE: Tag = tag(0x0f);

/// CAs of the node's owner: PEM certificates, as in `machine.ca` and `machine.acceptedCAs`. A node that lost STATE
/// recognizes its owner by them.
pub const OWNER: Tag = tag(0xc0);

/// Record of the last tried version (`corten_installer::Trial`).
pub const TRIAL: Tag = tag(0xc1);
/// Mark that STATE was encrypted and then replaced by a clear one. A reset of STATE removes the mark.
pub const WAS_ENCRYPTED: Tag = tag(0xc3);
/// Reason of a locked boot (machined's `last_stop::Note`), until the next boot has reported it.
pub const LOCK: Tag = tag(0xc2);

const fn tag(number: u8) -> Tag {
    match Tag::new(number) {
        Some(tag) => tag,
        None => Tag::MIN,
    }
}
