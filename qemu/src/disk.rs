//! The disks of a machine.

use std::path::{Path, PathBuf};

/// Format of a disk image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiskFormat {
    /// Plain bytes.
    Raw,
    /// QEMU's copy-on-write format.
    Qcow2,
}

/// Persistence of the guest's writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiskMode {
    /// Kept while QEMU runs (through guest reboots), then gone.
    Snapshot,
    /// Kept in a qcow2 overlay in the machine's directory, until a machine of the same name starts.
    Overlay,
    /// Written to the image itself.
    Direct,
    /// Written to the raw image itself, and recorded in order in the file of [`log_of`], in the format of Linux's
    /// dm-log-writes.
    Logged,
}

/// The log of the writes to a disk of [`DiskMode::Logged`].
#[must_use]
pub fn log_of(disk: &Path) -> PathBuf {
    let mut name = disk.as_os_str().to_owned();
    name.push(".writes");
    name.into()
}

/// The bus between a machine and a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Bus {
    /// Paravirtualised; the disk has a serial number.
    #[default]
    Virtio,
    /// A namespace of an NVMe controller.
    Nvme,
    /// A drive of an AHCI controller.
    Sata,
    /// A stick at a USB 3 port.
    Usb,
    /// A card in an SD host controller. Its size is a power of two, and firmware is not told to start it first.
    Sd,
}

/// A disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Disk {
    /// The image.
    pub path: PathBuf,
    /// Its format.
    pub format: DiskFormat,
    /// Persistence of the guest's writes.
    pub mode: DiskMode,
    /// Size of the disk for the guest in MiB, if larger than the image. Only for an overlay.
    pub size_mib: Option<u64>,
    /// Its bus.
    pub bus: Bus,
}

impl Disk {
    /// A raw image that stays unchanged.
    pub fn raw(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            format: DiskFormat::Raw,
            mode: DiskMode::Snapshot,
            size_mib: None,
            bus: Bus::default(),
        }
    }

    /// A qcow2 image that stays unchanged.
    pub fn qcow2(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            format: DiskFormat::Qcow2,
            mode: DiskMode::Snapshot,
            size_mib: None,
            bus: Bus::default(),
        }
    }

    /// The same disk in an overlay, enlarged to `mib` MiB.
    #[must_use]
    pub fn enlarged(mut self, mib: u64) -> Self {
        self.mode = DiskMode::Overlay;
        self.size_mib = Some(mib);
        self
    }

    /// The same disk with another persistence of writes.
    #[must_use]
    pub fn mode(mut self, mode: DiskMode) -> Self {
        self.mode = mode;
        self
    }

    /// The same disk on another bus.
    #[must_use]
    pub fn bus(mut self, bus: Bus) -> Self {
        self.bus = bus;
        self
    }
}
