//! Chooses the kernel's reaction to a processor that locks up, and owns the two parameters.
//!
//! A bare-metal machine panics, which is recorded and ends in a restart. A guest only reports the lockup: a hypervisor
//! may take a processor away for longer than the kernel's timeout, which looks like one.

use std::fmt;
use std::fs::{self, File};
use std::io::Read as _;
use std::path::Path;

use corten_base::sysfs::read;

use super::setting::Setting;

/// Parameters of the kernel's two detectors: a processor that stays in the kernel, and one that takes no interrupts.
const PARAMETERS: [&str; 2] = ["kernel.softlockup_panic", "kernel.hardlockup_panic"];
/// Length of the part of `/proc/cpuinfo` that is read, in bytes: enough for the flags of the first processor.
const FIRST_PROCESSOR: u64 = 16 << 10;
/// The x86 processor flag that a hypervisor sets. A device tree has a node of the same name.
const FLAG: &str = "hypervisor";
/// Prefixes of the vendor and product that the firmware's tables give virtual machines without the processor flag.
const MACHINES: [(&str, &str); 7] = [
    ("QEMU", ""),
    ("Google", "Google Compute Engine"),
    ("Microsoft Corporation", "Virtual Machine"),
    ("VMware", ""),
    ("Apple", "Apple Virtualization"),
    ("Parallels", ""),
    ("Xen", ""),
];
/// Vendor of virtual and of bare-metal machines; the suffix [`WHOLE`] of the product marks the latter.
const AMAZON: &str = "Amazon EC2";
const WHOLE: &str = ".metal";
/// Compatible string in the device tree of a virtual machine without firmware.
const DUMMY: &str = "linux,dummy-virt";

/// Reaction to a lockup.
#[derive(Debug, PartialEq, Eq)]
pub enum Choice {
    /// Panic: the machine shows no sign of a hypervisor.
    Panic,
    /// Report only. The text names the sign of a hypervisor.
    Report(String),
}

impl Choice {
    /// Chooses by the kernel's files below `root` (`/`).
    #[must_use]
    pub fn of(root: &Path) -> Choice {
        hypervisor(root).map_or(Choice::Panic, Choice::Report)
    }

    /// The kernel parameters that carry out the choice.
    pub fn settings(&self) -> impl Iterator<Item = Setting> {
        let value = match self {
            Choice::Panic => "1",
            Choice::Report(_) => "0",
        };
        PARAMETERS.into_iter().map(move |key| Setting {
            key: key.to_owned(),
            value: value.to_owned(),
            quiet: false,
        })
    }
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keys = PARAMETERS.join(" and ");
        match self {
            Choice::Panic => write!(
                f,
                "a CPU lockup panics the kernel ({keys} are 1): no hypervisor was found"
            ),
            Choice::Report(by) => write!(
                f,
                "the kernel only reports a CPU lockup ({keys} are 0): a hypervisor ({by}) may pause the CPU, which \
                 looks like a lockup"
            ),
        }
    }
}

/// The sign of a hypervisor, in words for the operator.
fn hypervisor(root: &Path) -> Option<String> {
    if has_flag(root) {
        return Some(format!("processor flag {FLAG}"));
    }
    let kind = read(&root.join("sys/hypervisor/type"));
    if !kind.is_empty() {
        return Some(format!("/sys/hypervisor/type is {kind}"));
    }
    let dmi = |name| read(&root.join("sys/class/dmi/id").join(name));
    let (vendor, product) = (dmi("sys_vendor"), dmi("product_name"));
    if is_virtual(&vendor, &product) {
        return Some(format!("the firmware names the machine {vendor} {product}"));
    }
    let tree = root.join("sys/firmware/devicetree/base");
    // A list of strings, each terminated by a zero byte.
    let words = fs::read(tree.join("compatible")).unwrap_or_default();
    let is_dummy = words
        .split(|byte| *byte == 0)
        .any(|word| word == DUMMY.as_bytes());
    (is_dummy || tree.join(FLAG).is_dir()).then(|| "device tree".to_owned())
}

fn has_flag(root: &Path) -> bool {
    let mut text = Vec::new();
    let read = File::open(root.join("proc/cpuinfo"))
        .and_then(|file| file.take(FIRST_PROCESSOR).read_to_end(&mut text));
    let text = String::from_utf8_lossy(&text);
    let flags = text
        .lines()
        .find_map(|line| line.strip_prefix("flags")?.split_once(':'));
    read.is_ok() && flags.is_some_and(|(_, flags)| flags.split_whitespace().any(|one| one == FLAG))
}

fn is_virtual(vendor: &str, product: &str) -> bool {
    let is_known = MACHINES
        .iter()
        .any(|(of, named)| vendor.starts_with(of) && product.starts_with(named));
    is_known || vendor.starts_with(AMAZON) && !product.ends_with(WHOLE)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Root directory of a machine with these files.
    fn machine(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = root.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    fn choice(files: &[(&str, &str)]) -> Choice {
        Choice::of(machine(files).path())
    }

    const VENDOR: &str = "sys/class/dmi/id/sys_vendor";
    const PRODUCT: &str = "sys/class/dmi/id/product_name";
    const TREE: &str = "sys/firmware/devicetree/base/compatible";

    #[test]
    fn lockup_panics_only_on_bare_metal() {
        let flags = |flags: &str| format!("processor\t: 0\nflags\t\t: fpu {flags} sse2\n");
        for virtual_machine in [
            &[("proc/cpuinfo", &*flags("hypervisor"))][..],
            &[("sys/hypervisor/type", "xen\n")],
            &[(VENDOR, "QEMU\n"), (PRODUCT, "QEMU Virtual Machine\n")],
            &[
                (VENDOR, "Microsoft Corporation\n"),
                (PRODUCT, "Virtual Machine\n"),
            ],
            &[(VENDOR, "Amazon EC2\n"), (PRODUCT, "m7g.large\n")],
            &[(TREE, "linux,dummy-virt\0")],
            &[(
                "sys/firmware/devicetree/base/hypervisor/compatible",
                "xen,xen\0",
            )],
        ] {
            let found = choice(virtual_machine);
            assert!(
                matches!(found, Choice::Report(_)),
                "{virtual_machine:?}: {found:?}"
            );
        }
        for machine in [
            &[("proc/cpuinfo", &*flags("vmx"))][..],
            // Only the line `flags` counts, not the processor's name.
            &[("proc/cpuinfo", "model name\t: hypervisor\nflags\t\t: fpu\n")],
            &[
                (VENDOR, "Microsoft Corporation\n"),
                (PRODUCT, "Surface Pro\n"),
            ],
            &[(VENDOR, "Amazon EC2\n"), (PRODUCT, "m7g.metal\n")],
            &[(TREE, "raspberrypi,4-model-b\0brcm,bcm2711\0")],
            &[],
        ] {
            assert_eq!(choice(machine), Choice::Panic, "{machine:?}");
        }
    }

    #[test]
    fn both_lockup_detectors_are_set_and_the_reason_is_logged() {
        let set = |choice: &Choice| {
            let all = choice.settings();
            all.map(|one| format!("{}={}", one.key, one.value))
                .collect::<Vec<_>>()
        };
        let (alone, guest) = (
            Choice::Panic,
            Choice::Report("processor flag hypervisor".into()),
        );
        assert_eq!(
            set(&alone),
            ["kernel.softlockup_panic=1", "kernel.hardlockup_panic=1"]
        );
        assert_eq!(
            set(&guest),
            ["kernel.softlockup_panic=0", "kernel.hardlockup_panic=0"]
        );
        assert!(alone.to_string().contains("no hypervisor was found"));
        let told = guest.to_string();
        assert!(told.contains("(processor flag hypervisor)"), "{told}");
    }
}
