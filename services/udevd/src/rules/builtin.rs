//! udev's builtins, and the udev helper programs that this daemon replaces, as values. `run.rs` runs them.

use super::template::Template;

/// A builtin with its arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Builtin {
    /// `blkid`: content of a block device.
    Blkid,
    /// `path_id`: location of the device.
    PathId,
    /// `usb_id`: identity of a USB device.
    UsbId,
    /// `ata_id`, `scsi_id`: identity of a disk. Gives properties only if the disk has a serial number and its `ID_BUS`
    /// is one of these.
    DiskId(&'static [&'static str]),
    /// `net_driver`: the driver of an interface.
    NetDriver,
    /// `net_id`: stable names of an interface.
    NetId,
    /// `kmod load`: loads modules; without names, those of the device's alias.
    Kmod(Vec<Template>),
    /// `dmsetup udevflags`: flags in an event's cookie.
    DmFlags(Template),
    /// `dmsetup splitname`: parts of a logical volume's name.
    DmName(Template),
    /// A builtin of udev that this node does not have.
    Unsupported,
}

/// The builtins of udev that this node does not have.
const UNSUPPORTED: [&str; 9] = [
    "btrfs",
    "dissect_image",
    "factory_reset",
    "hwdb",
    "input_id",
    "keyboard",
    "net_setup_link",
    "tpm2_id",
    "uaccess",
];

impl Builtin {
    /// Parses a command line. Options have no effect.
    ///
    /// # Errors
    /// A description of the mistake.
    pub fn new(command: &str) -> Result<Self, String> {
        let mut words = command.split_whitespace();
        let name = words.next().unwrap_or_default();
        Ok(match name.rsplit('/').next().unwrap_or_default() {
            "blkid" => Self::Blkid,
            "path_id" => Self::PathId,
            "usb_id" => Self::UsbId,
            "ata_id" => Self::DiskId(&["ata"]),
            "scsi_id" => Self::DiskId(&["ata", "scsi", "usb"]),
            "net_driver" => Self::NetDriver,
            "net_id" => Self::NetId,
            "kmod" => match words.next() {
                Some("load") => Self::Kmod(words.map(Template::new).collect::<Result<_, _>>()?),
                _ => return Err("the builtin kmod must be called as \"kmod load\"".to_owned()),
            },
            "dmsetup" => match (words.next(), words.next_back()) {
                (Some("udevflags"), Some(cookie)) => Self::DmFlags(Template::new(cookie)?),
                (Some("splitname"), Some(name)) => Self::DmName(Template::new(name)?),
                _ => Self::Unsupported,
            },
            name if UNSUPPORTED.contains(&name) => Self::Unsupported,
            name => return Err(format!("there is no builtin {name:?}")),
        })
    }

    /// Whether a builtin does the work of this program.
    pub fn replaces(command: &str) -> bool {
        matches!(Self::new(command), Ok(builtin) if builtin != Self::Unsupported)
    }
}
