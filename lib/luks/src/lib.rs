//! LUKS2, the on-disk format of encrypted volumes.
//!
//! Owns: headers and key slots. A volume has two copies of the header, so a power cut during a write loses nothing.
//! Never: encrypts data (the kernel does, with the key from a slot), or knows a volume or the source of a passphrase.

mod binary;
mod device;
mod header;
mod keyslot;
mod metadata;
mod split;
#[cfg(test)]
mod tests;

use std::fmt;
use std::io;

use ring::rand::{SecureRandom as _, SystemRandom};
use zeroize::Zeroizing;

pub use device::Device;
pub use header::Luks;
pub use keyslot::Cost;
pub use metadata::Segment;

/// Number of key slots; they are numbered from 0.
pub const SLOTS: u8 = 32;
/// Offset of the data of a new volume in bytes; both headers and the key slots lie before it.
pub const DATA_OFFSET: u64 = 16 << 20;
/// Cipher of new volumes and of all key slots; the kernel's name.
pub const CIPHER: &str = "aes-xts-plain64";

/// The key that encrypts a volume. `Debug` does not show it, and its memory is wiped on drop.
#[derive(Clone, PartialEq, Eq)]
pub struct VolumeKey(Zeroizing<Vec<u8>>);

impl VolumeKey {
    /// The key's bytes, for the kernel.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for VolumeKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<secret>")
    }
}

/// An error of creating, opening or changing a volume.
#[derive(Debug, thiserror::Error)]
pub enum LuksError {
    /// The device failed.
    #[error("the LUKS header cannot be read or written: {0}")]
    Device(#[from] io::Error),
    /// The volume has an older format.
    #[error("it is LUKS version {0}; only version 2 can be opened")]
    Version(u16),
    /// Both copies of the header are damaged.
    #[error(
        "both copies of its LUKS header are damaged ({0}); restore them from a backup, or wipe it"
    )]
    Damaged(String),
    /// The header uses a feature that is not implemented, or a value beyond its limits.
    #[error("its LUKS header has {0}, which is not supported")]
    Unsupported(String),
    /// The slot does not exist, or has no room.
    #[error("key slot {slot} {why}")]
    Slot {
        /// The slot.
        slot: u8,
        /// Reason of the refusal.
        why: &'static str,
    },
    /// The kernel gives no random numbers, or the machine no memory.
    #[error("the machine {0}")]
    Machine(&'static str),
}

fn unsupported(what: impl fmt::Display) -> LuksError {
    LuksError::Unsupported(what.to_string())
}

fn random(bytes: &mut [u8]) -> Result<(), LuksError> {
    SystemRandom::new()
        .fill(bytes)
        .map_err(|_| LuksError::Machine("provides no random numbers"))
}
