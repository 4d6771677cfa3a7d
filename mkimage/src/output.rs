//! The formats the builder can write.

use std::fmt;
use std::str::FromStr;

use corten_steps::arch::Arch;
use serde::{Deserialize, Serialize};

/// A format the builder can write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Output {
    /// The unified kernel image alone.
    Uki,
    /// A disk image for BIOS and UEFI machines.
    Raw,
    /// A hybrid ISO: CD or USB stick, BIOS or UEFI.
    Iso,
    /// Kernel, initramfs and an iPXE script.
    Pxe,
    /// The disk for QEMU and OpenStack.
    Qcow2,
    /// The disk for Azure and Hyper-V.
    Vhd,
    /// The disk for VMware.
    Vmdk,
    /// The disk and a machine description for VMware.
    Ova,
    /// The disk in the form that Google Compute Engine imports.
    Gcp,
    /// An OCI archive with the files that an upgrade installs.
    Installer,
    /// An OCI archive with the container images of Kubernetes; made only on request.
    Images,
    /// The same images as a node's image cache, a squashfs; made only where it is asked for.
    ImageCache,
    /// The root file system of nodes in containers, a squashfs; made only where it is asked for.
    Rootfs,
    /// The root file system as a container image for Docker; made only where it is asked for.
    Container,
}

impl Output {
    /// Every format, in build order.
    pub const ALL: [Self; 14] = [
        Self::Uki,
        Self::Raw,
        Self::Iso,
        Self::Pxe,
        Self::Qcow2,
        Self::Vhd,
        Self::Vmdk,
        Self::Ova,
        Self::Gcp,
        Self::Installer,
        Self::Images,
        Self::ImageCache,
        Self::Rootfs,
        Self::Container,
    ];

    /// Every format of the node for an architecture, in build order.
    pub fn of(arch: Arch) -> impl Iterator<Item = Self> {
        let has = move |output: &Self| match output {
            Self::Ova => arch.names().vmware_guest.is_some(),
            // Kubernetes is no part of the node, and takes longer to build than all the rest.
            // Nor does a machine start from a root file system alone.
            Self::Images | Self::ImageCache | Self::Rootfs | Self::Container => false,
            _ => true,
        };
        Self::ALL.into_iter().filter(has)
    }

    /// Whether the format holds the disk: a board's firmware needs files that no other format has.
    pub fn holds_disk(self) -> bool {
        use Output::{Gcp, Ova, Qcow2, Raw, Vhd, Vmdk};
        matches!(self, Raw | Qcow2 | Vhd | Vmdk | Ova | Gcp)
    }

    /// The name in flags and profiles, and of the step.
    pub fn name(self) -> &'static str {
        match self {
            Self::Uki => "uki",
            Self::Raw => "raw",
            Self::Iso => "iso",
            Self::Pxe => "pxe",
            Self::Qcow2 => "qcow2",
            Self::Vhd => "vhd",
            Self::Vmdk => "vmdk",
            Self::Ova => "ova",
            Self::Gcp => "gcp",
            Self::Installer => "installer",
            Self::Images => "images",
            Self::ImageCache => "image-cache",
            Self::Rootfs => "rootfs",
            Self::Container => "container",
        }
    }

    /// The suffix of the output's file name, after `corten-<version>-<arch>` and the board's name.
    pub fn suffix(self) -> &'static str {
        match self {
            Self::Uki => ".efi",
            Self::Raw => ".raw",
            Self::Iso => ".iso",
            Self::Pxe => "-pxe",
            Self::Qcow2 => ".qcow2",
            Self::Vhd => ".vhd",
            Self::Vmdk => ".vmdk",
            Self::Ova => ".ova",
            Self::Gcp => "-gcp.tar.gz",
            Self::Installer => "-installer.tar",
            Self::Images => "-images.tar",
            Self::ImageCache => "-image-cache.squashfs",
            Self::Rootfs => "-rootfs.squashfs",
            Self::Container => "-container.tar",
        }
    }
}

impl fmt::Display for Output {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Output {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL
            .into_iter()
            .find(|output| output.name() == text)
            .ok_or_else(|| {
                let known: Vec<_> = Self::ALL.iter().map(|output| output.name()).collect();
                format!("unknown format; use one of {}", known.join(", "))
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_of_an_architecture_follow_its_table() {
        for arch in Arch::ALL {
            let all: Vec<Output> = Output::of(arch).collect();
            let has_guest = arch.names().vmware_guest.is_some();
            assert_eq!(all.contains(&Output::Ova), has_guest, "{arch}");
            let on_demand = [
                Output::Images,
                Output::ImageCache,
                Output::Rootfs,
                Output::Container,
            ];
            assert!(!on_demand.iter().any(|output| all.contains(output)));
            let left_out = on_demand.len() + usize::from(!has_guest);
            assert_eq!(all.len(), Output::ALL.len() - left_out);
        }
    }
}
