//! The differences between the architectures, one row each. No other module of the builder depends
//! on the architecture.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::{Failure, Result};

/// An architecture an image can be built for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Arch {
    /// 64-bit PC.
    #[serde(rename = "x86_64", alias = "amd64")]
    X86_64,
    /// 64-bit Arm.
    #[serde(rename = "arm64", alias = "aarch64")]
    Arm64,
}

/// The names of one architecture in the toolchains and formats that the builder uses.
#[derive(Debug)]
pub struct Names {
    /// Name in our file names, flags and profiles.
    pub corten: &'static str,
    /// `ARCH=` of the kernel's build.
    pub kernel: &'static str,
    /// The kernel image that EFI and the loaders start, inside the kernel's build tree.
    pub kernel_image: &'static str,
    /// The device trees of the supported boards, below the kernel's `dts` directory. A machine with
    /// ACPI needs none.
    pub device_trees: &'static [&'static str],
    /// `uname -m`.
    pub machine: &'static str,
    /// Debian's architecture.
    pub debian: &'static str,
    /// GNU triplet, also the multiarch directory of Debian's libraries.
    pub gnu: &'static str,
    /// The dynamic linker's file in that directory.
    pub loader: &'static str,
    /// `e_machine` of an ELF file.
    pub elf_machine: u16,
    /// Rust's target.
    pub rust: &'static str,
    /// Whether rustc by itself links static programs so that they run at any address
    /// (`static-position-independent-executables` of its target).
    pub rust_links_static_pie: bool,
    /// C compiler flag for hardware control-flow protection of jumps and returns.
    pub guarded_jumps: &'static str,
    /// `GOARCH`.
    pub go: &'static str,
    /// `architecture` of an OCI image.
    pub oci: &'static str,
    /// systemd-boot's file in the systemd-boot-efi package.
    pub sd_boot: &'static str,
    /// systemd-stub's file in the same package.
    pub sd_stub: &'static str,
    /// GRUB's platform for firmware without EFI; `None` where all firmware has EFI.
    pub grub: Option<&'static str>,
    /// VMware's name of the guest system in an OVA; `None` where VMware's servers import no OVA.
    pub vmware_guest: Option<&'static str>,
    /// First serial port as a kernel console.
    pub console: &'static str,
    /// `MachineTypes` of a PE file.
    pub pe_machine: u16,
}

static X86_64: Names = Names {
    corten: "x86_64",
    kernel: "x86_64",
    kernel_image: "arch/x86/boot/bzImage",
    device_trees: &[],
    machine: "x86_64",
    debian: "amd64",
    gnu: "x86_64-linux-gnu",
    loader: "ld-linux-x86-64.so.2",
    elf_machine: 62,
    rust: "x86_64-unknown-linux-gnu",
    rust_links_static_pie: true,
    guarded_jumps: "-fcf-protection",
    go: "amd64",
    oci: "amd64",
    sd_boot: "systemd-bootx64.efi",
    sd_stub: "linuxx64.efi.stub",
    grub: Some("i386-pc"),
    vmware_guest: Some("other5xLinux64Guest"),
    console: "ttyS0,115200n8",
    pe_machine: 0x8664,
};

static ARM64: Names = Names {
    corten: "arm64",
    kernel: "arm64",
    kernel_image: "arch/arm64/boot/vmlinuz.efi",
    device_trees: &[
        "broadcom/bcm2711-rpi-4-b.dtb",
        "broadcom/bcm2711-rpi-400.dtb",
        "broadcom/bcm2711-rpi-cm4-io.dtb",
        "broadcom/bcm2712-rpi-5-b.dtb",
    ],
    machine: "aarch64",
    debian: "arm64",
    gnu: "aarch64-linux-gnu",
    loader: "ld-linux-aarch64.so.1",
    elf_machine: 183,
    rust: "aarch64-unknown-linux-gnu",
    rust_links_static_pie: false,
    guarded_jumps: "-mbranch-protection=standard",
    go: "arm64",
    oci: "arm64",
    sd_boot: "systemd-bootaa64.efi",
    sd_stub: "linuxaa64.efi.stub",
    grub: None,
    vmware_guest: None,
    console: "ttyAMA0,115200n8",
    pe_machine: 0xaa64,
};

impl Arch {
    /// The build machine's architecture: the locked compilers and tools run on it.
    pub const BUILD: Self = Self::X86_64;

    /// All architectures.
    pub const ALL: [Self; 2] = [Self::X86_64, Self::Arm64];

    /// This architecture's row.
    pub fn names(self) -> &'static Names {
        match self {
            Self::X86_64 => &X86_64,
            Self::Arm64 => &ARM64,
        }
    }
}

impl fmt::Display for Arch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.names().corten)
    }
}

impl FromStr for Arch {
    type Err = anyhow::Error;

    /// Accepts our name and the names that other tools use for the same architecture.
    fn from_str(name: &str) -> Result<Self> {
        for arch in Self::ALL {
            let names = arch.names();
            if [names.corten, names.machine, names.debian].contains(&name) {
                return Ok(arch);
            }
        }
        Err(Failure::new(
            format!("unknown architecture {name:?}"),
            "use x86_64 (also amd64) or arm64 (also aarch64)",
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_usual_name_is_understood() {
        for (name, arch) in [
            ("x86_64", Arch::X86_64),
            ("amd64", Arch::X86_64),
            ("arm64", Arch::Arm64),
            ("aarch64", Arch::Arm64),
        ] {
            assert_eq!(name.parse::<Arch>().unwrap(), arch);
        }
        let error = "riscv64".parse::<Arch>().unwrap_err();
        assert_eq!(error.to_string(), "unknown architecture \"riscv64\"");
        assert!(
            error
                .downcast_ref::<Failure>()
                .unwrap()
                .remedy()
                .contains("aarch64")
        );
    }

    #[test]
    fn names_survive_a_round_trip() {
        for arch in Arch::ALL {
            assert_eq!(arch.to_string().parse::<Arch>().unwrap(), arch);
            let json = serde_json::to_string(&arch).unwrap();
            assert_eq!(json, format!("\"{arch}\""));
            assert_eq!(serde_json::from_str::<Arch>(&json).unwrap(), arch);
        }
    }
}
