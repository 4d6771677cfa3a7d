//! The host's firmware files.

use std::path::{Path, PathBuf};

use crate::{Arch, VmError};

/// The firmware of a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Firmware {
    /// `SeaBIOS`, built into QEMU's package; only on x86.
    Bios,
    /// OVMF or AAVMF, with this machine's own copy of the variable store.
    Uefi,
    /// UEFI with Secure Boot, in setup mode: it starts any program until keys are enrolled. Only on
    /// x86.
    SecureBoot,
}

/// Code and variable template of a UEFI build.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct UefiFiles {
    pub code: PathBuf,
    pub vars: PathBuf,
}

/// Finds the first complete pair of files of `arch` for UEFI, or for Secure Boot. `exists` is a
/// parameter so that tests can simulate other hosts.
pub(crate) fn find_uefi(
    arch: Arch,
    firmware: Firmware,
    exists: impl Fn(&Path) -> bool,
) -> Result<UefiFiles, VmError> {
    let row = arch.row();
    let pairs = match firmware {
        Firmware::SecureBoot => row.secure_boot,
        _ => row.uefi,
    };
    pairs
        .iter()
        .find(|(code, vars)| exists(Path::new(code)) && exists(Path::new(vars)))
        .map(|(code, vars)| UefiFiles {
            code: code.into(),
            vars: vars.into(),
        })
        .ok_or_else(|| VmError::MissingFirmware {
            what: row.uefi_package,
            looked: pairs
                .iter()
                .map(|(code, _)| *code)
                .collect::<Vec<_>>()
                .join(", "),
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn four_megabyte_firmware_is_preferred() {
        let found = find_uefi(Arch::X86_64, Firmware::Uefi, |_| true).unwrap();
        assert_eq!(found.code, Path::new("/usr/share/OVMF/OVMF_CODE_4M.fd"));
        assert_eq!(found.vars, Path::new("/usr/share/OVMF/OVMF_VARS_4M.fd"));
    }

    #[test]
    fn uefi_code_without_variables_is_skipped() {
        let found = find_uefi(Arch::X86_64, Firmware::Uefi, |p| {
            !p.ends_with("OVMF_VARS_4M.fd")
        })
        .unwrap();
        assert_eq!(found.code, Path::new("/usr/share/OVMF/OVMF_CODE.fd"));
    }

    #[test]
    fn missing_firmware_error_names_the_package_to_install() {
        for (firmware, file) in [
            (Firmware::Uefi, "OVMF_CODE_4M.fd"),
            (Firmware::SecureBoot, "OVMF_CODE_4M.secboot.fd"),
        ] {
            let found = find_uefi(Arch::X86_64, firmware, |_| false);
            let error = found.unwrap_err().to_string();
            assert!(
                error.contains("make deps") && error.contains(file),
                "{error}"
            );
        }
    }
}
