//! LUKS2, the on-disk format of encrypted volumes ("LUKS2 On-Disk Format Specification", version 1.1.1).
//!
//! Owns: the format. A volume starts with two copies of a header (a binary part with a sequence number and a
//! checksum, then JSON), followed by the key slots; each slot holds the volume's key, split and encrypted
//! under a passphrase. The newer whole header counts, so that a power cut in any write costs nothing.
//! Never does: encrypt data (the kernel does, with the key found here), or know a volume or where a
//! passphrase comes from.
//! Talks to: the [`Device`] it is given, a file as a rule.
//! On a laptop: `cargo test -p corten-luks`; what it writes is what `cryptsetup` reads, and the reverse.

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

/// Key slots are numbered from 0 to one below it.
pub const SLOTS: u8 = 32;
/// What lies before the data of a volume made here, in bytes: both headers and the key slots.
pub const DATA_OFFSET: u64 = 16 << 20;
/// How volumes made here, and all key slots, are encrypted; the kernel's name.
pub const CIPHER: &str = "aes-xts-plain64";

/// The key a volume is encrypted with. `Debug` does not show it, and its memory is wiped.
#[derive(Clone, PartialEq, Eq)]
pub struct VolumeKey(Zeroizing<Vec<u8>>);

impl VolumeKey {
    /// Its bytes, for the kernel.
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

/// Why a volume cannot be made, opened or changed.
#[derive(Debug, thiserror::Error)]
pub enum LuksError {
    /// The device's.
    #[error("the LUKS header cannot be read or written: {0}")]
    Device(#[from] io::Error),
    /// An older format.
    #[error("it is LUKS version {0}; only version 2 can be opened")]
    Version(u16),
    /// Neither copy of the header can be used.
    #[error(
        "both copies of its LUKS header are damaged ({0}); restore them from a backup, or wipe it"
    )]
    Damaged(String),
    /// The header asks for something that is not implemented, or out of all bounds.
    #[error("its LUKS header has {0}, which is not supported")]
    Unsupported(String),
    /// No such slot, or no room for it.
    #[error("key slot {slot} {why}")]
    Slot {
        /// The slot.
        slot: u8,
        /// What is wrong with it.
        why: &'static str,
    },
    /// The kernel gives no random numbers, or the machine no memory.
    #[error("the machine gives no {0}")]
    Machine(&'static str),
}

fn unsupported(what: impl fmt::Display) -> LuksError {
    LuksError::Unsupported(what.to_string())
}

fn random(bytes: &mut [u8]) -> Result<(), LuksError> {
    SystemRandom::new()
        .fill(bytes)
        .map_err(|_| LuksError::Machine("random numbers"))
}
