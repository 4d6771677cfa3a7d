//! The role table: the only definition of which role may call which method.
//!
//! apid checks it before it forwards a call, and machined checks again on its own socket. apid refuses a method without
//! an entry to every caller; machined's socket requires `os:admin` for it.

/// A role as written in a certificate's Organization and in `talos-role`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// Everything.
    Admin,
    /// Reads, and changes outside of the configuration: reboot, services.
    Operator,
    /// Reads.
    Reader,
    /// etcd snapshots.
    EtcdBackup,
    /// Verification of container images.
    ImageVerifier,
    /// Writing META keys.
    MetaWriter,
    /// Calls on behalf of another caller; the role of another node's apid.
    Impersonator,
}

use Role::{Admin, EtcdBackup, ImageVerifier, MetaWriter, Operator, Reader};

impl Role {
    /// Every role.
    pub const ALL: [Role; 7] = [
        Role::Admin,
        Role::Operator,
        Role::Reader,
        Role::EtcdBackup,
        Role::ImageVerifier,
        Role::MetaWriter,
        Role::Impersonator,
    ];

    /// The role's name on the wire.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Role::Admin => "os:admin",
            Role::Operator => "os:operator",
            Role::Reader => "os:reader",
            Role::EtcdBackup => "os:etcd:backup",
            Role::ImageVerifier => "os:image:verifier",
            Role::MetaWriter => "os:meta:writer",
            Role::Impersonator => "os:impersonator",
        }
    }

    /// The role with this name. Unknown names grant nothing.
    #[must_use]
    pub fn parse(name: &str) -> Option<Role> {
        Role::ALL.into_iter().find(|role| role.name() == name)
    }
}

const A: &[Role] = &[Admin];
const AM: &[Role] = &[Admin, MetaWriter];
const AO: &[Role] = &[Admin, Operator];
const AOB: &[Role] = &[Admin, Operator, EtcdBackup];
const AOR: &[Role] = &[Admin, Operator, Reader];
const AORB: &[Role] = &[Admin, Operator, Reader, EtcdBackup];
const AORV: &[Role] = &[Admin, Operator, Reader, ImageVerifier];
/// Readers are allowed only in maintenance: [`allows`].
const AR: &[Role] = &[Admin, Reader];

/// A row of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Method {
    /// The path of the HTTP/2 request: `/package.Service/Method`.
    pub path: &'static str,
    /// Roles of which one suffices.
    pub roles: &'static [Role],
}

const fn m(path: &'static str, roles: &'static [Role]) -> Method {
    Method { path, roles }
}

/// The table.
pub const METHODS: &[Method] = &[
    m("/machine.MachineService/ApplyConfiguration", AR),
    m("/machine.MachineService/Bootstrap", A),
    m("/machine.MachineService/Copy", A),
    m("/machine.MachineService/EtcdForfeitLeadership", A),
    m("/machine.MachineService/EtcdLeaveCluster", A),
    m("/machine.MachineService/EtcdRecover", A),
    m("/machine.MachineService/EtcdRemoveMemberByID", A),
    m("/machine.MachineService/EtcdDowngradeValidate", A),
    m("/machine.MachineService/EtcdDowngradeEnable", A),
    m("/machine.MachineService/EtcdDowngradeCancel", A),
    m("/machine.MachineService/GenerateClientConfiguration", A),
    m("/machine.MachineService/Kubeconfig", A),
    m("/machine.MachineService/Read", A),
    m("/machine.MachineService/Reset", A),
    m("/machine.MachineService/Rollback", A),
    m("/machine.MachineService/Upgrade", A),
    m("/machine.MachineService/CPUInfo", AOR),
    m("/machine.MachineService/CPUFreqStats", AOR),
    m("/machine.MachineService/DiskStats", AOR),
    m("/machine.MachineService/Hostname", AOR),
    m("/machine.MachineService/LoadAvg", AOR),
    m("/machine.MachineService/LogsContainers", AOR),
    m("/machine.MachineService/Memory", AOR),
    m("/machine.MachineService/Mounts", AOR),
    m("/machine.MachineService/NetworkDeviceStats", AOR),
    m("/machine.MachineService/Processes", AOR),
    m("/machine.MachineService/ServiceList", AOR),
    m("/machine.MachineService/SystemStat", AOR),
    m("/machine.MachineService/Version", AOR),
    m("/machine.MachineService/Containers", AOR),
    m("/machine.MachineService/Netstat", AOR),
    m("/machine.MachineService/Stats", AOR),
    m("/machine.MachineService/DiskUsage", AOR),
    m("/machine.MachineService/Dmesg", AOR),
    m("/machine.MachineService/Events", AOR),
    m("/machine.MachineService/ImageList", AOR),
    m("/machine.MachineService/List", AOR),
    m("/machine.MachineService/Logs", AOR),
    m("/machine.MachineService/EtcdAlarmList", AORB),
    m("/machine.MachineService/EtcdMemberList", AORB),
    m("/machine.MachineService/EtcdStatus", AORB),
    m("/machine.MachineService/EtcdSnapshot", AOB),
    m("/machine.MachineService/EtcdAlarmDisarm", AO),
    m("/machine.MachineService/EtcdDefragment", AO),
    m("/machine.MachineService/ImagePull", AO),
    m("/machine.MachineService/PacketCapture", AO),
    m("/machine.MachineService/Reboot", AO),
    m("/machine.MachineService/Restart", AO),
    m("/machine.MachineService/ServiceStart", AO),
    m("/machine.MachineService/ServiceStop", AO),
    m("/machine.MachineService/ServiceRestart", AO),
    m("/machine.MachineService/Shutdown", AO),
    m("/machine.MachineService/MetaWrite", AM),
    m("/machine.MachineService/MetaDelete", AM),
    m("/machine.ImageService/List", AOR),
    m("/machine.ImageService/Pull", AO),
    m("/machine.ImageService/Import", A),
    m("/machine.ImageService/Remove", A),
    m("/machine.ImageService/Verify", AORV),
    m("/machine.DebugService/ContainerRun", A),
    m("/machine.LifecycleService/Install", AR),
    m("/machine.LifecycleService/Upgrade", A),
    m("/machine.StorageService/Statfs", AOR),
    m("/machine.LVMService/LogicalVolumeRemove", AR),
    m("/machine.LVMService/VolumeGroupRemove", AR),
    m("/machine.LVMService/PhysicalVolumeRemove", AR),
    m("/machine.MDService/Destroy", AR),
    m("/storage.StorageService/Disks", AOR),
    m("/storage.StorageService/BlockDeviceWipe", AR),
    m("/time.TimeService/Time", AOR),
    m("/time.TimeService/TimeCheck", AOR),
    m("/cluster.ClusterService/HealthCheck", AOR),
    m("/inspect.InspectService/ControllerRuntimeDependencies", AOR),
    m("/cosi.resource.State/Get", AOR),
    m("/cosi.resource.State/List", AOR),
    m("/cosi.resource.State/Watch", AOR),
    m("/cosi.resource.State/Create", A),
    m("/cosi.resource.State/Update", A),
    m("/cosi.resource.State/Destroy", A),
    m("/cosi.resource.State/Teardown", A),
    m("/cosi.resource.State/TeardownAndDestroy", A),
];

/// The roles that may call `path`; only `os:admin` for a method without an entry.
#[must_use]
pub fn allowed_for(path: &str) -> &'static [Role] {
    METHODS
        .iter()
        .find(|method| method.path == path)
        .map_or(A, |method| method.roles)
}

/// Whether the table has `path`. apid refuses every other method.
#[must_use]
pub fn is_listed(path: &str) -> bool {
    METHODS.iter().any(|method| method.path == path)
}

/// Whether a method changes state or reveals secrets, so that a reader may not call it on a configured node. Such calls
/// are audited.
#[must_use]
pub fn needs_more_than_reader(path: &str) -> bool {
    !allows(path, &[Reader], false)
}

/// Whether a caller with these roles may call `path`. In `maintenance` (no machine config yet) readers may bring the
/// node into service; otherwise those methods need `os:admin`.
#[must_use]
pub fn allows(path: &str, caller: &[Role], maintenance: bool) -> bool {
    let allowed = allowed_for(path);
    if allowed == AR && !maintenance {
        return caller.contains(&Admin);
    }
    caller.iter().any(|role| allowed.contains(role))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip_and_unknown_names_are_nothing() {
        for role in Role::ALL {
            assert_eq!(Role::parse(role.name()), Some(role));
        }
        assert_eq!(Role::parse("os:root"), None);
        assert_eq!(Role::parse("OS:ADMIN"), None);
    }

    #[test]
    fn a_missing_method_needs_admin() {
        for path in [
            "/machine.MachineService/Nothing",
            "",
            "/",
            "machine.MachineService/Version",
        ] {
            assert!(
                !allows(path, &[Operator, Reader, Role::Impersonator], false),
                "{path}"
            );
            assert!(allows(path, &[Admin], false), "{path}");
        }
    }

    #[test]
    fn caller_without_a_role_may_call_no_method() {
        for method in METHODS {
            assert!(!allows(method.path, &[], false), "{}", method.path);
            assert!(
                !allows(method.path, &[Role::Impersonator], true),
                "{}",
                method.path
            );
            assert!(allows(method.path, &[Admin], false), "{}", method.path);
        }
    }

    #[test]
    fn a_reader_applies_a_config_in_maintenance_only() {
        let path = "/machine.MachineService/ApplyConfiguration";
        assert!(allows(path, &[Reader], true));
        assert!(!allows(path, &[Reader], false));
        assert!(!allows(path, &[Operator], true));
    }

    #[test]
    fn readers_change_nothing() {
        for verb in [
            "Reboot",
            "Shutdown",
            "Reset",
            "Upgrade",
            "ServiceStop",
            "Read",
            "Kubeconfig",
        ] {
            let path = format!("/machine.MachineService/{verb}");
            assert!(!allows(&path, &[Reader], true), "{verb}");
        }
        assert!(allows("/machine.MachineService/Reboot", &[Operator], false));
        assert!(!allows("/machine.MachineService/Reset", &[Operator], false));
    }

    #[test]
    fn what_changes_or_shows_secrets_is_audited() {
        for verb in ["ApplyConfiguration", "Reboot", "Read", "EtcdSnapshot"] {
            assert!(needs_more_than_reader(&format!(
                "/machine.MachineService/{verb}"
            )));
        }
        assert!(needs_more_than_reader(
            "/storage.StorageService/BlockDeviceWipe"
        ));
        assert!(needs_more_than_reader("/machine.MachineService/Nothing"));
        assert!(!needs_more_than_reader("/machine.MachineService/Memory"));
    }

    #[test]
    fn the_table_has_every_method_of_the_contract_once_and_no_other() {
        let declared = crate::contract::methods();
        let mut declared: Vec<_> = declared.iter().map(|method| &*method.path).collect();
        declared.sort_unstable();
        let mut listed: Vec<_> = METHODS.iter().map(|method| method.path).collect();
        listed.sort_unstable();
        assert_eq!(listed, declared);
        assert!(listed.len() > 75, "{}", listed.len());
    }
}
