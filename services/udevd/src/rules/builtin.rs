//! udev's builtins, and its helper programs that this daemon does by itself.

use super::eval::Evaluation;
use super::template::Template;
use crate::encode::tag;
use crate::event::Properties;
use crate::{defaults, disk, dm, net_name, path, usb};

/// A builtin with its arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Builtin {
    /// `blkid`: what a block device holds.
    Blkid,
    /// `path_id`: where it is plugged in.
    PathId,
    /// `usb_id`: who it is, on USB.
    UsbId,
    /// `ata_id`, `scsi_id`: who a disk is. Properties only if it has a serial
    /// number and its `ID_BUS` is one of these.
    DiskId(&'static [&'static str]),
    /// `net_driver`: the driver of an interface.
    NetDriver,
    /// `net_id`: the names an interface could have.
    NetId,
    /// `kmod load`: modules; without names, those for the device's alias.
    Kmod(Vec<Template>),
    /// `dmsetup udevflags`: what is wanted of the rules, by an event's cookie.
    DmFlags(Template),
    /// `dmsetup splitname`: the parts of a logical volume's name.
    DmName(Template),
    /// One that this node has not.
    Unsupported,
}

/// Those of udev that are not here.
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
    /// Reads a command line. Options do not matter: there is one way to do each.
    ///
    /// # Errors
    /// What is wrong with it, in words.
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
                _ => return Err("the builtin kmod is called as \"kmod load\"".to_owned()),
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

    /// Whether what a program would do is done by a builtin.
    pub fn replaces(command: &str) -> bool {
        matches!(Self::new(command), Ok(builtin) if builtin != Self::Unsupported)
    }

    /// What it finds about the device; `None` when it finds nothing.
    pub fn properties(&self, evaluation: &Evaluation<'_>) -> Option<Properties> {
        let (world, event) = (evaluation.world, evaluation.event);
        let found: Properties = match self {
            Self::Blkid => defaults::content(world.sysfs, event, world.read),
            Self::PathId => {
                let path = path::id_path(world.sysfs, &event.devpath)?;
                [("ID_PATH_TAG".into(), tag(&path)), ("ID_PATH".into(), path)].into()
            }
            Self::UsbId => usb::identity(world.sysfs, event),
            Self::DiskId(buses) => {
                let found = disk::identity(world.sysfs, event);
                let bus = found.get("ID_BUS")?.as_str();
                (buses.contains(&bus) && found.contains_key("ID_SERIAL")).then_some(found)?
            }
            Self::NetDriver => {
                let device = format!("{}/device", event.devpath);
                let driver = world.sysfs.link(&device, "driver")?;
                [("ID_NET_DRIVER".into(), driver)].into()
            }
            Self::NetId => net_name::names(world.sysfs, event),
            // No flag is an answer, too.
            Self::DmFlags(cookie) => return dm::flags(&evaluation.expand(cookie, false)),
            Self::DmName(name) => dm::volume(&evaluation.expand(name, false))?,
            Self::Kmod(_) | Self::Unsupported => return None,
        };
        (!found.is_empty()).then_some(found)
    }

    /// The aliases or names of modules it loads.
    pub fn modules(&self, evaluation: &Evaluation<'_>) -> Vec<String> {
        match self {
            Self::Kmod(names) if names.is_empty() => evaluation
                .env("MODALIAS")
                .map(String::from)
                .into_iter()
                .collect(),
            Self::Kmod(names) => {
                let expanded = names.iter().map(|name| evaluation.expand(name, false));
                expanded
                    .filter(|name| !name.is_empty())
                    .map(String::from)
                    .collect()
            }
            _ => Vec::new(),
        }
    }
}
