//! The boot entry that was started, as the boot loader reports it: systemd-boot by EFI variables, GRUB by a kernel
//! parameter.

use std::fs;
use std::path::Path;

use corten_base::cmdline::Cmdline;
use corten_base::efi;
use corten_installer::grub::PARAMETER;
use corten_installer::{Entry, Loader};

/// Directory that exists if UEFI firmware started the machine.
const UEFI: &str = "/sys/firmware/efi";

/// A boot entry that was started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Booted {
    /// The boot loader that started it.
    pub loader: Loader,
    /// Its ID: the name of its file without the boot counter.
    pub entry: String,
    /// Whether the boot loader counts its starts.
    pub is_counted: bool,
}

/// Whether UEFI firmware started the machine.
#[must_use]
pub fn by_uefi() -> bool {
    Path::new(UEFI).exists()
}

/// The boot entry that was started; `None` if the machine was started over the network, from a CD, or by another boot
/// loader.
#[must_use]
pub fn booted() -> Option<Booted> {
    if by_uefi() {
        return Some(Booted {
            loader: Loader::SystemdBoot,
            entry: efi::booted()?,
            is_counted: efi::is_counted(),
        });
    }
    by_grub(&fs::read_to_string("/proc/cmdline").unwrap_or_default())
}

/// The entry that GRUB reports. Its parameter comes after those of the image.
fn by_grub(parameters: &str) -> Option<Booted> {
    let parameters = Cmdline::parse(parameters);
    let entry = Entry::parse(parameters.get(PARAMETER)?)?;
    Some(Booted {
        loader: Loader::Grub,
        entry: entry.id(),
        is_counted: entry.counter.is_some(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grub_reports_the_started_entry_and_its_counter_by_a_parameter() {
        let started = |name: &str| by_grub(&format!("quiet corten.entry=x corten.entry={name}\n"));
        let by_grub = |is_counted| {
            Some(Booted {
                loader: Loader::Grub,
                entry: "corten-1.2.0.efi".to_owned(),
                is_counted,
            })
        };
        assert_eq!(started("corten-1.2.0.efi"), by_grub(false));
        assert_eq!(started("corten-1.2.0+3.efi"), by_grub(true));
        for name in ["", "other.efi", "../corten-1.2.0+3", "corten-1.2.0+.efi"] {
            assert_eq!(started(name), None, "{name}");
        }
        assert_eq!(super::by_grub("quiet corten.platform=metal"), None);
    }
}
