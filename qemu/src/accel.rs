//! Probes which accelerator works on this host.

use std::path::Path;
use std::process::Stdio;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use crate::{Arch, Console, spawn};

/// The execution of the guest's instructions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Accel {
    /// By the CPU.
    Kvm,
    /// Translated by QEMU: works everywhere, about ten times slower.
    Tcg,
}

/// The result of the probe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Probe {
    /// The accelerator to use.
    pub accel: Accel,
    /// The reason, for a person.
    pub reason: String,
}

/// Timeout of the first output. `SeaBIOS` prints within milliseconds where KVM works; broken nested
/// KVM often hangs instead of failing.
const FIRST_WORD: Duration = Duration::from_secs(4);

impl Accel {
    /// The value of QEMU's `-accel`.
    #[must_use]
    pub const fn option(self) -> &'static str {
        match self {
            Self::Kvm => "kvm",
            Self::Tcg => "tcg,thread=multi",
        }
    }

    /// Kernel parameters that make a guest of many processes fast, for a machine that nobody attacks.
    ///
    /// Every switch of page tables empties the emulator's caches, every timer interrupt leaves them, and the
    /// components of Kubernetes cause thousands of both a second.
    #[must_use]
    pub const fn kernel_parameters(self) -> &'static [&'static str] {
        match self {
            Self::Kvm => &[],
            Self::Tcg => &[
                "pti=off",
                "kpti=0",
                "mitigations=off",
                "init_on_alloc=0",
                "init_on_free=0",
                "highres=off",
            ],
        }
    }

    /// The name as in `CORTEN_ACCEL` and `--accel`.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "kvm" => Some(Self::Kvm),
            "tcg" => Some(Self::Tcg),
            _ => None,
        }
    }

    /// The accelerator for a guest of `arch`: TCG for a foreign architecture, else the result of
    /// [`Accel::probe`].
    #[must_use]
    pub fn probe_for(arch: Arch) -> Probe {
        if arch.is_host() {
            return Self::probe().clone();
        }
        Probe {
            accel: Self::Tcg,
            reason: format!("an {} guest on {}", arch.name(), std::env::consts::ARCH),
        }
    }

    /// Probes once per program: `CORTEN_ACCEL` if set, else KVM if a guest runs on it, else TCG.
    pub fn probe() -> &'static Probe {
        static PROBE: OnceLock<Probe> = OnceLock::new();
        PROBE.get_or_init(|| {
            if let Some(accel) = std::env::var("CORTEN_ACCEL")
                .ok()
                .as_deref()
                .and_then(Self::from_name)
            {
                return Probe {
                    accel,
                    reason: "set by CORTEN_ACCEL".to_owned(),
                };
            }
            match kvm() {
                Ok(reason) => Probe {
                    accel: Self::Kvm,
                    reason,
                },
                Err(reason) => Probe {
                    accel: Self::Tcg,
                    reason,
                },
            }
        })
    }
}

/// Cheap checks first, then a guest.
fn kvm() -> Result<String, String> {
    if std::env::consts::ARCH != "x86_64" {
        return Err(format!(
            "KVM is not probed on {}; CORTEN_ACCEL=kvm uses it",
            std::env::consts::ARCH
        ));
    }
    let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    if !has_virtualization(&cpuinfo) {
        return Err("the CPU shows neither vmx nor svm".to_owned());
    }
    std::fs::File::options()
        .read(true)
        .write(true)
        .open("/dev/kvm")
        .map_err(|error| format!("/dev/kvm: {error}"))?;
    guest_speaks(Accel::Kvm, FIRST_WORD)
}

/// Whether the flags of the first CPU name a virtualization extension.
fn has_virtualization(cpuinfo: &str) -> bool {
    cpuinfo
        .lines()
        .find(|line| line.starts_with("flags"))
        .is_some_and(|line| {
            line.split_whitespace()
                .any(|flag| flag == "vmx" || flag == "svm")
        })
}

/// Runs the firmware alone and waits for its first output on the debug port.
fn guest_speaks(accel: Accel, deadline: Duration) -> Result<String, String> {
    let dir = tempfile::tempdir().map_err(|error| format!("no temporary directory: {error}"))?;
    let log = dir.path().join("debug.log");
    let chardev = format!("file,id=debug,path={}", log.display());
    let args = [
        "-nodefaults",
        "-display",
        "none",
        "-machine",
        "q35",
        "-m",
        "32",
        "-accel",
        accel.option(),
        "-chardev",
        &chardev,
        "-device",
        "isa-debugcon,iobase=0x402,chardev=debug",
    ]
    .map(str::to_owned);
    let mut child = spawn::spawn(Arch::X86_64.row().program, &args, |command| {
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
    })
    .map_err(|error| error.to_string())?;
    let start = Instant::now();
    let verdict = loop {
        if spoke(&log) {
            break Ok(format!(
                "a guest ran on it ({} ms)",
                start.elapsed().as_millis()
            ));
        }
        if let Ok(Some(status)) = child.try_wait() {
            break Err(format!("QEMU cannot use it ({status})"));
        }
        if start.elapsed() > deadline {
            break Err(format!(
                "a guest made no progress in {} s",
                deadline.as_secs()
            ));
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    spawn::end(&mut child);
    verdict
}

fn spoke(log: &Path) -> bool {
    Console::new(log.to_owned()).text().contains("SeaBIOS")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_flags_are_matched_as_words() {
        assert!(has_virtualization("processor: 0\nflags\t\t: fpu vmx sse\n"));
        assert!(has_virtualization("flags : svm\n"));
        assert!(!has_virtualization(
            "flags : fpu svm_lock avx\nvmx flags: vnmi\n"
        ));
        assert!(!has_virtualization(""));
    }

    #[test]
    fn the_probe_guest_speaks_under_tcg() {
        guest_speaks(Accel::Tcg, Duration::from_secs(60)).unwrap();
    }

    #[test]
    fn silent_probe_guest_is_a_failure() {
        let verdict = guest_speaks(Accel::Tcg, Duration::ZERO);
        assert!(verdict.unwrap_err().contains("no progress"));
    }
}
