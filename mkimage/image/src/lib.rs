//! The formats of an image: each is a pure function from files and parameters to one file.
//!
//! Owns: the unified kernel image with its signatures, its wrappings, and the way back ([`inspect`], [`compare`]).
//! Never: reads a clock, a random number or a host name; ids and dates come from [`Release`].

pub mod checksums;
pub mod compare;
pub mod fat;
pub mod gcp;
pub mod grub;
pub mod initramfs;
pub mod inspect;
pub mod installer;
pub mod iso;
pub mod layout;
pub mod oci;
pub mod output;
pub mod ova;
pub mod provenance;
pub mod pxe;
pub mod qcow2;
pub mod raw;
pub mod sbom;
pub mod secure_boot;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod uki;
pub mod vhd;
pub mod vmdk;

mod bytes;
mod pe;
mod tarball;

#[cfg(test)]
mod tests;

use corten_steps::arch::Arch;
use uuid::Uuid;

/// The identity of an image; the seed of all its ids and dates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Release {
    /// The version, as in `corten-<version>-<arch>.efi`.
    pub version: String,
    /// Architecture of the node.
    pub arch: Arch,
    /// `SOURCE_DATE_EPOCH`: seconds since 1970, the only date in an image.
    pub epoch: u64,
}

/// Namespace of every UUID in an image: `uuid5(NAMESPACE_DNS, "corten.image")`.
const NAMESPACE: &[u8] = b"corten.image";

impl Release {
    /// The file name of every output, without its extension: `corten-<version>-<arch>`.
    pub fn stem(&self) -> String {
        format!("corten-{}-{}", self.version, self.arch)
    }

    /// The id of the part called `what`, fixed for a version and architecture.
    pub fn uuid(&self, what: &str) -> Uuid {
        let namespace = Uuid::new_v5(&Uuid::NAMESPACE_DNS, NAMESPACE);
        Uuid::new_v5(&namespace, format!("{}/{what}", self.stem()).as_bytes())
    }

    /// The first 32 bits of [`Self::uuid`], for formats with short ids.
    pub fn id32(&self, what: &str) -> u32 {
        self.uuid(what).as_fields().0
    }
}
