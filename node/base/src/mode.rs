//! The environment of the node and its limits: one table, which every part of the node consults before it acts.

use std::ffi::OsStr;
use std::sync::OnceLock;

/// Variable by which a container runtime tells process 1 that it runs in a container.
const PLATFORM: &str = "PLATFORM";
/// Value of the variable, and name of the platform.
pub const CONTAINER: &str = "container";
/// Variable with the machine config, in base64.
pub const USER_DATA: &str = "USERDATA";

/// Environment that the node runs in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// A machine of its own, with its kernel.
    Machine,
    /// A container: the host owns kernel, devices and clock.
    Container,
}

/// An operation that needs a whole machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ability {
    /// Read and write the kernel log.
    KernelLog,
    /// Read the kernel command line as the node's own.
    KernelParameters,
    /// Mount file systems with kernel interfaces, such as pstore and tracefs.
    KernelFileSystems,
    /// Set parameters of the whole kernel.
    Sysctls,
    /// Manage devices: udevd, uevents, drivers.
    Devices,
    /// Load kernel modules.
    Modules,
    /// Use disks: volumes, META, encryption, swap.
    Disks,
    /// Read the machine's firmware numbers as the node's own.
    Firmware,
    /// Set the clock.
    Clock,
    /// Protect the node's processes from the OOM killer.
    OomScores,
    /// Feed watchdogs.
    Watchdogs,
    /// Handle the power button and ctrl-alt-del.
    PowerButton,
    /// Install, upgrade and roll back versions.
    Versions,
}

impl Ability {
    /// All abilities.
    pub const ALL: [Ability; 13] = [
        Ability::KernelLog,
        Ability::KernelParameters,
        Ability::KernelFileSystems,
        Ability::Sysctls,
        Ability::Devices,
        Ability::Modules,
        Ability::Disks,
        Ability::Firmware,
        Ability::Clock,
        Ability::OomScores,
        Ability::Watchdogs,
        Ability::PowerButton,
        Ability::Versions,
    ];

    /// Reason why a container lacks the ability.
    const fn lacks_in_container(self) -> &'static str {
        match self {
            Ability::KernelLog => "the kernel log belongs to the host",
            Ability::KernelParameters => "the kernel command line belongs to the host",
            Ability::KernelFileSystems => "the kernel's own file systems belong to the host",
            Ability::Sysctls => "these parameters would also change the host",
            Ability::Devices => "the devices belong to the host",
            Ability::Modules => "only the host loads kernel modules",
            Ability::Disks => "the volumes of the node are directories of the host",
            Ability::Firmware => "the firmware identifies the host and not the node",
            Ability::Clock => "only the host sets the clock",
            Ability::OomScores => "OOM scores would affect the processes of the host",
            Ability::Watchdogs => "the watchdogs belong to the host",
            Ability::PowerButton => "the power button belongs to the host",
            Ability::Versions => "the version is fixed by the image of the container",
        }
    }
}

impl Mode {
    /// Mode of this process, from its initial environment. On a machine, init passes no such variable.
    #[must_use]
    pub fn now() -> Mode {
        static NOW: OnceLock<Mode> = OnceLock::new();
        *NOW.get_or_init(|| Mode::of(std::env::var_os(PLATFORM).as_deref()))
    }

    fn of(platform: Option<&OsStr>) -> Mode {
        if platform == Some(OsStr::new(CONTAINER)) {
            Mode::Container
        } else {
            Mode::Machine
        }
    }

    /// Whether a node in this mode has the ability.
    #[must_use]
    pub fn can(self, ability: Ability) -> bool {
        self.check(ability).is_ok()
    }

    /// Checks an ability for a caller that requests the operation.
    ///
    /// # Errors
    /// A sentence for the operator with the reason.
    pub fn check(self, ability: Ability) -> Result<(), String> {
        match self {
            Mode::Machine => Ok(()),
            Mode::Container => {
                let why = ability.lacks_in_container();
                Err(format!("this node runs in a container, where {why}"))
            }
        }
    }

    /// Whether a node in this mode sets this parameter (spelled as in sysctl(8)). In a container, those are the
    /// parameters of the network, IPC and UTS namespaces, which belong to the container.
    #[must_use]
    pub fn sets(self, parameter: &str) -> bool {
        let own = [
            "net.",
            "fs.mqueue.",
            "kernel.msg",
            "kernel.sem",
            "kernel.shm",
        ];
        let parameter = parameter.replace('/', ".");
        self.can(Ability::Sysctls) || own.iter().any(|start| parameter.starts_with(start))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_runtimes_variable_selects_container_mode() {
        for other in [None, Some(""), Some("metal"), Some("CONTAINER")] {
            assert_eq!(Mode::of(other.map(OsStr::new)), Mode::Machine, "{other:?}");
        }
        assert_eq!(Mode::of(Some(OsStr::new("container"))), Mode::Container);
    }

    #[test]
    fn machine_has_every_ability_and_container_names_the_reason_for_missing_ones() {
        for ability in Ability::ALL {
            assert_eq!(Mode::Machine.check(ability), Ok(()), "{ability:?}");
            let refused = Mode::Container.check(ability).unwrap_err();
            assert!(refused.starts_with("this node runs in a container, where "));
            assert!(!Mode::Container.can(ability));
        }
    }

    #[test]
    fn container_sets_only_parameters_of_its_own_namespaces() {
        for own in [
            "net.ipv4.ip_forward",
            "net/ipv6/conf/eth0.1/forwarding",
            "kernel.shmmax",
        ] {
            assert!(Mode::Container.sets(own), "{own}");
        }
        for hosts in [
            "kernel.panic",
            "vm.overcommit_memory",
            "fs.inotify.max_user_watches",
            "netx",
        ] {
            assert!(!Mode::Container.sets(hosts), "{hosts}");
            assert!(Mode::Machine.sets(hosts), "{hosts}");
        }
    }
}
