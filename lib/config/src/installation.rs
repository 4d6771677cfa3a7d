//! The installation that a config requests, in either form of the config.

use corten_values::{DiskFacts, Expression, MatchSize};

use crate::document::Document;
use crate::kinds::UnattendedInstallConfig;
use crate::v1alpha1::{DiskSelector, DiskType};

/// Installation that a config requests.
#[derive(Debug, Clone, PartialEq)]
pub struct Installation {
    /// Target disk.
    pub disk: Target,
    /// Image of the installer; `None` for the medium that the node was started from.
    pub image: Option<String>,
    /// Whether to overwrite any content of the disk.
    pub wipe: bool,
    /// Whether the protective MBR marks its partition as active.
    pub is_active: bool,
    /// Whether the node restarts into the installed version.
    pub restarts: bool,
}

impl Installation {
    /// An installation of this image to this device, which must be empty.
    #[must_use]
    pub fn to(device: String, image: Option<String>) -> Installation {
        Installation {
            disk: Target::Device(device),
            image,
            wipe: false,
            is_active: false,
            restarts: true,
        }
    }
}

/// Target of an installation.
#[derive(Debug, Clone, PartialEq)]
pub enum Target {
    /// The disk with this device, or a link to the device.
    Device(String),
    /// The first disk that matches the selector.
    Like(Box<DiskSelector>),
    /// The first disk for which the expression is true.
    Match(Expression),
}

impl Target {
    /// The config field of the target.
    #[must_use]
    pub fn field(&self) -> &'static str {
        match self {
            Target::Device(_) => "machine.install.disk",
            Target::Like(_) => "machine.install.diskSelector",
            Target::Match(_) => "UnattendedInstallConfig.provisioning.diskSelector",
        }
    }

    /// Device of the target disk; the first in this order if several match. A read-only disk is chosen only by its
    /// device.
    ///
    /// # Errors
    /// No disk matches; the text lists the disks.
    pub fn choose(&self, disks: &[DiskFacts]) -> Result<String, String> {
        let usable = |disk: &&DiskFacts| !disk.readonly && !disk.cdrom;
        let found = match self {
            Target::Device(device) => {
                let is_it =
                    |disk: &&DiskFacts| disk.dev_path == *device || disk.symlinks.contains(device);
                disks.iter().find(is_it)
            }
            Target::Like(selector) => disks
                .iter()
                .filter(usable)
                .find(|disk| selector.matches(disk)),
            Target::Match(expression) => {
                let usable: Vec<DiskFacts> = disks.iter().filter(usable).cloned().collect();
                let selected = expression
                    .selected(&usable)
                    .map_err(|why| format!("{} fails: {why}", self.field()))?;
                let first = selected.iter().position(|selected| *selected);
                let first = first.and_then(|at| usable.get(at));
                disks
                    .iter()
                    .find(|disk| first.is_some_and(|first| first.dev_path == disk.dev_path))
            }
        };
        if let Some(disk) = found {
            return Ok(disk.dev_path.clone());
        }
        let all: Vec<&str> = disks
            .iter()
            .filter(usable)
            .map(|disk| disk.dev_path.as_str())
            .collect();
        let all = match all.as_slice() {
            [] => "this machine has no writable disk".to_owned(),
            all => format!("this machine has {}", all.join(", ")),
        };
        let field = self.field();
        Err(match self {
            Target::Device(device) => format!("{field}: there is no disk {device}; {all}"),
            Target::Like(_) | Target::Match(_) => format!("{field} matches no disk; {all}"),
        })
    }
}

impl DiskSelector {
    /// Whether a disk matches every given field of the selector.
    fn matches(&self, disk: &DiskFacts) -> bool {
        let like = |pattern: &Option<String>, text: &str| {
            pattern.as_ref().is_none_or(|pattern| {
                glob::Pattern::new(pattern).is_ok_and(|pattern| pattern.matches(text))
            })
        };
        let is_kind = |kind: &DiskType| match kind {
            DiskType::Hdd => disk.rotational,
            DiskType::Nvme => disk.transport == "nvme",
            DiskType::Sd => disk.transport == "mmc",
            DiskType::Ssd => {
                !disk.rotational && !["nvme", "mmc"].contains(&disk.transport.as_str())
            }
        };
        self.size
            .as_ref()
            .is_none_or(|MatchSize(how, size)| how.holds(disk.size, *size))
            && self.kind.as_ref().is_none_or(is_kind)
            && like(&self.model, &disk.model)
            && like(&self.serial, &disk.serial)
            && like(&self.modalias, &disk.modalias)
            && like(&self.wwid, &disk.wwid)
            && like(&self.bus_path, &disk.bus_path)
    }
}

impl Document {
    /// The installation that the config requests; `None` for none.
    #[must_use]
    pub fn installation(&self) -> Option<Installation> {
        if let Some(kind) = self.all::<UnattendedInstallConfig>().next() {
            let provisioning = &kind.provisioning;
            let selector = provisioning.disk_selector.as_ref()?;
            return Some(Installation {
                disk: Target::Match(selector.expression.clone()),
                image: kind.installer.image.clone(),
                wipe: provisioning.wipe.unwrap_or(true),
                is_active: false,
                restarts: kind.reboot.unwrap_or(true),
            });
        }
        let install = &self.machine.install;
        let disk = match (&install.disk, &install.disk_selector) {
            (_, Some(selector)) => Target::Like(Box::new(selector.clone())),
            (Some(disk), None) if !disk.is_empty() => Target::Device(disk.to_string()),
            _ => return None,
        };
        Some(Installation {
            disk,
            image: install.image.clone(),
            wipe: install.wipe,
            is_active: install.legacy_bios_support,
            restarts: true,
        })
    }
}
