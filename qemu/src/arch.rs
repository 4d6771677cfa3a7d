//! What differs between architectures, as a table.

/// Architecture of the guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Arch {
    /// 64-bit x86, machine type q35.
    X86_64,
}

/// One row of the table.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Row {
    /// The emulator.
    pub program: &'static str,
    /// `-machine` type.
    pub machine: &'static str,
    /// `-cpu` under TCG: all features but two. 5-level paging only makes each
    /// emulated page walk longer. 16-byte compare-and-exchange is not atomic
    /// in QEMU 7.2 (Debian 12) with several CPUs, and Linux keeps its free
    /// lists with it: kernel memory gets corrupted, whatever the kernel.
    pub tcg_cpu: &'static str,
    /// UEFI code and variable store, most wanted first. Debian 12 and 13
    /// install the same names; 2 MiB builds only exist on 12.
    pub uefi: &'static [(&'static str, &'static str)],
    /// Kernel parameter that puts the console on the captured serial port.
    pub console: &'static str,
}

impl Arch {
    pub(crate) const fn row(self) -> Row {
        match self {
            Self::X86_64 => Row {
                program: "qemu-system-x86_64",
                machine: "q35",
                tcg_cpu: "max,la57=off,cx16=off",
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
                console: "console=ttyS0",
            },
        }
    }

    /// The kernel parameter that sends the console to the captured port.
    #[must_use]
    pub const fn console_parameter(self) -> &'static str {
        self.row().console
    }
}
