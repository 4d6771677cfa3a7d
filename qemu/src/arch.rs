//! The differences between architectures, as a table.

use std::path::Path;

use crate::Firmware;

/// Architecture of the guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Arch {
    /// 64-bit x86, machine type q35.
    X86_64,
    /// 64-bit Arm, machine type virt.
    Arm64,
}

/// One row of the table.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Row {
    /// Name in image files.
    pub name: &'static str,
    /// Other names of the same architecture: `uname -m`, Debian's.
    pub aliases: &'static [&'static str],
    /// The emulator.
    pub program: &'static str,
    /// `-machine` type.
    pub machine: &'static str,
    /// Suffix of the type for a machine without a display.
    pub no_display: &'static str,
    /// `-cpu` under TCG: all features except those that only slow down or break the emulation.
    pub tcg_cpu: &'static str,
    /// Suffix of `-cpu` that removes the random number instructions, where QEMU supports that.
    pub no_random: &'static str,
    /// Default firmware.
    pub firmware: Firmware,
    /// UEFI code and variable store, best first. Debian 12 and 13 use the same names.
    pub uefi: &'static [(&'static str, &'static str)],
    /// UEFI code and variable store with Secure Boot; empty if no package has them.
    pub secure_boot: &'static [(&'static str, &'static str)],
    /// Option of a machine type whose firmware variables only the firmware can write.
    pub protected: &'static str,
    /// Debian package of the firmware files, for messages.
    pub uefi_package: &'static str,
    /// Whether firmware other than UEFI exists.
    pub has_bios: bool,
    /// The display adapter.
    pub display: &'static str,
    /// Controller of the CD drive, if the machine type has none.
    pub cd_controller: Option<&'static str>,
    /// The CD drive.
    pub cd_drive: &'static str,
    /// Flag and value of a second serial port on the chardev `second`.
    pub second_serial: (&'static str, &'static str),
    /// Kernel parameter for a console on the captured serial port.
    pub console: &'static str,
}

/// CPU features disabled under TCG: 5-level paging makes each emulated page walk longer. 16-byte compare-and-exchange
/// is not atomic in QEMU 7.2 (Debian 12) with several CPUs. Every Linux kernel uses it for its free lists, so its
/// memory gets corrupted. With fast string instructions the kernel clears pages byte by byte in the emulator, a page
/// that held code in a millisecond. QEMU 7.2 interprets AVX2 lane by lane: Go and ring hash at half the speed with it.
/// 2 MiB builds of OVMF exist only on Debian 12.
const X86_64: Row = Row {
    name: "x86_64",
    aliases: &["amd64"],
    program: "qemu-system-x86_64",
    machine: "q35",
    no_display: ",graphics=off",
    tcg_cpu: "max,la57=off,cx16=off,erms=off,fsrm=off,avx2=off",
    no_random: ",rdrand=off,rdseed=off",
    firmware: Firmware::Bios,
    uefi: &[
        (
            "/usr/share/OVMF/OVMF_CODE_4M.fd",
            "/usr/share/OVMF/OVMF_VARS_4M.fd",
        ),
        (
            "/usr/share/OVMF/OVMF_CODE.fd",
            "/usr/share/OVMF/OVMF_VARS.fd",
        ),
    ],
    secure_boot: &[(
        "/usr/share/OVMF/OVMF_CODE_4M.secboot.fd",
        "/usr/share/OVMF/OVMF_VARS_4M.fd",
    )],
    protected: ",smm=on",
    uefi_package: "UEFI firmware (Debian package ovmf)",
    has_bios: true,
    display: "VGA",
    cd_controller: None,
    cd_drive: "ide-cd",
    second_serial: ("-serial", "chardev:second"),
    console: "console=ttyS0",
};

/// The architecture's standard algorithm for pointer authentication costs half of the emulator's
/// time; QEMU's own algorithm is equivalent here. Vectors of variable length are slow, too.
/// Servers have GIC 3 (SBSA level 3 and up).
const ARM64: Row = Row {
    name: "arm64",
    aliases: &["aarch64"],
    program: "qemu-system-aarch64",
    machine: "virt,gic-version=3",
    no_display: "",
    tcg_cpu: "max,pauth-impdef=on,sve=off,sme=off",
    no_random: "",
    firmware: Firmware::Uefi,
    uefi: &[(
        "/usr/share/AAVMF/AAVMF_CODE.fd",
        "/usr/share/AAVMF/AAVMF_VARS.fd",
    )],
    secure_boot: &[],
    protected: "",
    uefi_package: "UEFI firmware (Debian package qemu-efi-aarch64)",
    has_bios: false,
    display: "ramfb",
    cd_controller: Some("virtio-scsi-pci"),
    cd_drive: "scsi-cd",
    second_serial: ("-device", "pci-serial,chardev=second"),
    console: "console=ttyAMA0",
};

impl Arch {
    /// All architectures.
    pub const ALL: [Self; 2] = [Self::X86_64, Self::Arm64];

    pub(crate) const fn row(self) -> Row {
        match self {
            Self::X86_64 => X86_64,
            Self::Arm64 => ARM64,
        }
    }

    /// The architecture with this name: `x86_64` or `amd64`, `arm64` or `aarch64`.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|arch| {
            let row = arch.row();
            row.name == name || row.aliases.contains(&name)
        })
    }

    /// The architecture in an image's name, such as `corten-0.1.0-arm64.raw`.
    #[must_use]
    pub fn of_image(path: &Path) -> Option<Self> {
        let name = path.file_name()?.to_str()?;
        name.split(['-', '.']).find_map(Self::from_name)
    }

    /// Name in image files.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.row().name
    }

    /// Whether firmware other than UEFI exists.
    #[must_use]
    pub const fn has_bios(self) -> bool {
        self.row().has_bios
    }

    /// Kernel parameter for a console on the captured serial port.
    #[must_use]
    pub const fn console_parameter(self) -> &'static str {
        self.row().console
    }

    /// Whether this host is of the architecture.
    pub(crate) fn is_host(self) -> bool {
        Self::from_name(std::env::consts::ARCH) == Some(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_usual_name_is_understood() {
        for (name, arch) in [
            ("x86_64", Some(Arch::X86_64)),
            ("amd64", Some(Arch::X86_64)),
            ("arm64", Some(Arch::Arm64)),
            ("aarch64", Some(Arch::Arm64)),
            ("riscv64", None),
        ] {
            assert_eq!(Arch::from_name(name), arch, "{name}");
        }
    }

    #[test]
    fn image_name_determines_the_architecture() {
        for (name, arch) in [
            ("_out/corten-0.1.0-x86_64.raw", Some(Arch::X86_64)),
            ("corten-0.1.0-arm64-raspberry-pi.raw", Some(Arch::Arm64)),
            ("corten-0.1.0-arm64-pxe/", Some(Arch::Arm64)),
            ("arm64/disk.raw", None),
            ("/", None),
        ] {
            assert_eq!(Arch::of_image(Path::new(name)), arch, "{name}");
        }
    }
}
