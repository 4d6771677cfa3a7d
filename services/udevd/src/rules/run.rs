//! Runs udev's builtins for an event.

use super::builtin::Builtin;
use super::evaluation::Evaluation;
use crate::encode::tag;
use crate::event::Properties;
use crate::{defaults, disk, dm, net_name, path, usb};

impl Builtin {
    /// Properties of the device; `None` if there are none.
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
            // An empty set of flags is a valid result.
            Self::DmFlags(cookie) => return dm::flags(&evaluation.expand(cookie, false)),
            Self::DmName(name) => dm::volume(&evaluation.expand(name, false))?,
            Self::Kmod(_) | Self::Unsupported => return None,
        };
        (!found.is_empty()).then_some(found)
    }

    /// Modaliases and names of the modules to load.
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
