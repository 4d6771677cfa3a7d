//! `CONST{key}`: facts that do not change while the machine runs.

use crate::sysfs::Sysfs;

/// A constant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Constant {
    /// `arch`: architecture of the processor, as ConditionArchitecture= of systemd.unit(5) names it.
    Architecture,
    /// `virt`: hypervisor, as systemd-detect-virt(1) names it.
    Virtualization,
    /// `cvm`: confidential computing technology.
    Confidential,
}

/// Clock sources that only guests of one hypervisor have, and the hypervisor.
const CLOCKS: [(&str, &str); 3] = [
    ("kvm-clock", "kvm"),
    ("hyperv_clocksource", "microsoft"),
    ("xen", "xen"),
];

/// Prefix of the vendor's name in the firmware tables, and the hypervisor.
const VENDORS: [(&str, &str); 8] = [
    ("Amazon EC2", "amazon"),
    ("Google", "google"),
    ("VMware", "vmware"),
    ("innotek", "oracle"),
    ("Parallels", "parallels"),
    ("Xen", "xen"),
    ("QEMU", "qemu"),
    ("BHYVE", "bhyve"),
];

impl Constant {
    /// Parses the name of a constant.
    pub fn named(name: &str) -> Option<Self> {
        Some(match name {
            "arch" => Self::Architecture,
            "virt" => Self::Virtualization,
            "cvm" => Self::Confidential,
            _ => return None,
        })
    }

    /// Value of the constant.
    pub fn value(self, sysfs: &Sysfs) -> &'static str {
        match self {
            Self::Architecture => match std::env::consts::ARCH {
                "x86_64" => "x86-64",
                "aarch64" => "arm64",
                other => other,
            },
            Self::Virtualization => virtualization(sysfs),
            Self::Confidential => "none",
        }
    }
}

fn virtualization(sysfs: &Sysfs) -> &'static str {
    let clocks = sysfs.text(
        "/devices/system/clocksource/clocksource0",
        "available_clocksource",
    );
    let clocks = clocks.unwrap_or_default();
    let vendor = sysfs
        .text("/class/dmi/id", "sys_vendor")
        .unwrap_or_default();
    let by_clock = CLOCKS
        .iter()
        .find(|(clock, _)| clocks.split_whitespace().any(|has| has == *clock));
    let by_vendor = VENDORS.iter().find(|(start, _)| vendor.starts_with(start));
    // A vendor's name is more specific than the clock source, except for QEMU's.
    match (by_vendor, by_clock) {
        (Some((_, "qemu")) | None, Some((_, name))) | (Some((_, name)), _) => name,
        (None, None) => "none",
    }
}

#[cfg(test)]
mod tests {
    use super::Constant;
    use crate::sysfs::Sysfs;
    use crate::testing::Tree;

    #[test]
    fn virtualization_constant_names_the_hypervisor() {
        let tree = Tree::new();
        let virt = || Constant::Virtualization.value(&Sysfs::new(tree.path()));
        assert_eq!(virt(), "none");
        tree.attribute("/class/dmi/id", "sys_vendor", "QEMU\n");
        assert_eq!(virt(), "qemu");
        let clock = "/devices/system/clocksource/clocksource0";
        tree.attribute(clock, "available_clocksource", "kvm-clock tsc \n");
        assert_eq!(virt(), "kvm");
        tree.attribute("/class/dmi/id", "sys_vendor", "Google\n");
        assert_eq!(virt(), "google");
        assert_eq!(Constant::named("weather"), None);
    }
}
