//! Answer types of the methods that can be called on several nodes: one reply or a stream.
//!
//! Other nodes' answers become parts of one merged message or stream. Bytes of a wrong type would make the whole
//! unreadable for the client. So they are checked here and fail only the row of the node that sent them.

use corten_api::{cluster, common, inspect, machine, storage, time};
use prost::Message;

/// How a method answers. The function checks that bytes are such an answer.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Reply {
    /// One message: a list of elements.
    One(fn(&[u8]) -> bool),
    /// A stream of messages.
    Stream(fn(&[u8]) -> bool),
}

use Reply::{One, Stream};

fn is<M: Message + Default>(bytes: &[u8]) -> bool {
    M::decode(bytes).is_ok()
}

/// Like [`is`], with a length limit: a list of numbers takes eight bytes of memory per encoded byte.
fn is_short<M: Message + Default>(bytes: &[u8]) -> bool {
    bytes.len() <= SHORT && is::<M>(bytes)
}

/// Limit in bytes; a node's counters take a few KiB.
const SHORT: usize = 1 << 20;

/// How the method at `path` answers; `None` if it cannot be called on several nodes.
pub(crate) fn of(path: &str) -> Option<Reply> {
    REPLIES
        .iter()
        .find(|(known, _)| *known == path)
        .map(|(_, reply)| *reply)
}

const REPLIES: &[(&str, Reply)] = &[
    (
        "/machine.MachineService/ApplyConfiguration",
        One(is::<machine::ApplyConfigurationResponse>),
    ),
    (
        "/machine.MachineService/Bootstrap",
        One(is::<machine::BootstrapResponse>),
    ),
    (
        "/machine.MachineService/Containers",
        One(is::<machine::ContainersResponse>),
    ),
    ("/machine.MachineService/Copy", Stream(is::<common::Data>)),
    (
        "/machine.MachineService/CPUFreqStats",
        One(is::<machine::CpuFreqStatsResponse>),
    ),
    (
        "/machine.MachineService/CPUInfo",
        One(is::<machine::CpuInfoResponse>),
    ),
    (
        "/machine.MachineService/DiskStats",
        One(is::<machine::DiskStatsResponse>),
    ),
    ("/machine.MachineService/Dmesg", Stream(is::<common::Data>)),
    (
        "/machine.MachineService/Events",
        Stream(is::<machine::Event>),
    ),
    (
        "/machine.MachineService/EtcdMemberList",
        One(is::<machine::EtcdMemberListResponse>),
    ),
    (
        "/machine.MachineService/EtcdRemoveMemberByID",
        One(is::<machine::EtcdRemoveMemberByIdResponse>),
    ),
    (
        "/machine.MachineService/EtcdLeaveCluster",
        One(is::<machine::EtcdLeaveClusterResponse>),
    ),
    (
        "/machine.MachineService/EtcdForfeitLeadership",
        One(is::<machine::EtcdForfeitLeadershipResponse>),
    ),
    (
        "/machine.MachineService/EtcdRecover",
        One(is::<machine::EtcdRecoverResponse>),
    ),
    (
        "/machine.MachineService/EtcdSnapshot",
        Stream(is::<common::Data>),
    ),
    (
        "/machine.MachineService/EtcdAlarmList",
        One(is::<machine::EtcdAlarmListResponse>),
    ),
    (
        "/machine.MachineService/EtcdAlarmDisarm",
        One(is::<machine::EtcdAlarmDisarmResponse>),
    ),
    (
        "/machine.MachineService/EtcdDefragment",
        One(is::<machine::EtcdDefragmentResponse>),
    ),
    (
        "/machine.MachineService/EtcdStatus",
        One(is::<machine::EtcdStatusResponse>),
    ),
    (
        "/machine.MachineService/EtcdDowngradeValidate",
        One(is::<machine::EtcdDowngradeValidateResponse>),
    ),
    (
        "/machine.MachineService/EtcdDowngradeEnable",
        One(is::<machine::EtcdDowngradeEnableResponse>),
    ),
    (
        "/machine.MachineService/EtcdDowngradeCancel",
        One(is::<machine::EtcdDowngradeCancelResponse>),
    ),
    (
        "/machine.MachineService/Hostname",
        One(is::<machine::HostnameResponse>),
    ),
    (
        "/machine.MachineService/Kubeconfig",
        Stream(is::<common::Data>),
    ),
    (
        "/machine.MachineService/List",
        Stream(is::<machine::FileInfo>),
    ),
    (
        "/machine.MachineService/DiskUsage",
        Stream(is::<machine::DiskUsageInfo>),
    ),
    (
        "/machine.MachineService/LoadAvg",
        One(is::<machine::LoadAvgResponse>),
    ),
    ("/machine.MachineService/Logs", Stream(is::<common::Data>)),
    (
        "/machine.MachineService/LogsContainers",
        One(is::<machine::LogsContainersResponse>),
    ),
    (
        "/machine.MachineService/Memory",
        One(is::<machine::MemoryResponse>),
    ),
    (
        "/machine.MachineService/Mounts",
        One(is::<machine::MountsResponse>),
    ),
    (
        "/machine.MachineService/NetworkDeviceStats",
        One(is::<machine::NetworkDeviceStatsResponse>),
    ),
    (
        "/machine.MachineService/Processes",
        One(is::<machine::ProcessesResponse>),
    ),
    ("/machine.MachineService/Read", Stream(is::<common::Data>)),
    (
        "/machine.MachineService/Reboot",
        One(is::<machine::RebootResponse>),
    ),
    (
        "/machine.MachineService/Restart",
        One(is::<machine::RestartResponse>),
    ),
    (
        "/machine.MachineService/Rollback",
        One(is::<machine::RollbackResponse>),
    ),
    (
        "/machine.MachineService/Reset",
        One(is::<machine::ResetResponse>),
    ),
    (
        "/machine.MachineService/ServiceList",
        One(is::<machine::ServiceListResponse>),
    ),
    (
        "/machine.MachineService/ServiceRestart",
        One(is::<machine::ServiceRestartResponse>),
    ),
    (
        "/machine.MachineService/ServiceStart",
        One(is::<machine::ServiceStartResponse>),
    ),
    (
        "/machine.MachineService/ServiceStop",
        One(is::<machine::ServiceStopResponse>),
    ),
    (
        "/machine.MachineService/Shutdown",
        One(is::<machine::ShutdownResponse>),
    ),
    (
        "/machine.MachineService/Stats",
        One(is::<machine::StatsResponse>),
    ),
    (
        "/machine.MachineService/SystemStat",
        One(is_short::<machine::SystemStatResponse>),
    ),
    (
        "/machine.MachineService/Upgrade",
        One(is::<machine::UpgradeResponse>),
    ),
    (
        "/machine.MachineService/Version",
        One(is::<machine::VersionResponse>),
    ),
    (
        "/machine.MachineService/GenerateClientConfiguration",
        One(is::<machine::GenerateClientConfigurationResponse>),
    ),
    (
        "/machine.MachineService/PacketCapture",
        Stream(is::<common::Data>),
    ),
    (
        "/machine.MachineService/Netstat",
        One(is::<machine::NetstatResponse>),
    ),
    (
        "/machine.MachineService/MetaWrite",
        One(is::<machine::MetaWriteResponse>),
    ),
    (
        "/machine.MachineService/MetaDelete",
        One(is::<machine::MetaDeleteResponse>),
    ),
    (
        "/machine.MachineService/ImageList",
        Stream(is::<machine::ImageListResponse>),
    ),
    (
        "/machine.MachineService/ImagePull",
        One(is::<machine::ImagePullResponse>),
    ),
    ("/time.TimeService/Time", One(is::<time::TimeResponse>)),
    ("/time.TimeService/TimeCheck", One(is::<time::TimeResponse>)),
    (
        "/storage.StorageService/Disks",
        One(is::<storage::DisksResponse>),
    ),
    (
        "/storage.StorageService/BlockDeviceWipe",
        One(is::<storage::BlockDeviceWipeResponse>),
    ),
    (
        "/cluster.ClusterService/HealthCheck",
        Stream(is::<cluster::HealthCheckProgress>),
    ),
    (
        "/inspect.InspectService/ControllerRuntimeDependencies",
        One(is::<inspect::ControllerRuntimeDependenciesResponse>),
    ),
];

#[cfg(test)]
mod tests {
    use super::*;
    use corten_api::roles::METHODS;

    /// Services whose methods may be called on several nodes, by the contract.
    const MANY: [&str; 5] = [
        "/machine.MachineService/",
        "/cluster.ClusterService/",
        "/inspect.InspectService/",
        "/storage.StorageService/",
        "/time.TimeService/",
    ];

    #[test]
    fn every_fan_out_method_is_listed_once() {
        let can_be_many = |path: &str| MANY.iter().any(|service| path.starts_with(service));
        for method in METHODS {
            let listed = REPLIES.iter().filter(|(path, _)| *path == method.path);
            let wanted = usize::from(can_be_many(method.path));
            assert_eq!(listed.count(), wanted, "{}", method.path);
        }
        assert!(REPLIES.iter().all(|(path, _)| can_be_many(path)));
    }

    #[test]
    fn streaming_methods_match_the_contract() {
        let names: Vec<_> = REPLIES
            .iter()
            .filter(|(_, reply)| matches!(reply, Stream(_)))
            .filter_map(|(path, _)| path.rsplit('/').next())
            .collect();
        let contract = "Copy Dmesg Events EtcdSnapshot Kubeconfig List DiskUsage Logs Read \
                        PacketCapture ImageList HealthCheck";
        assert_eq!(names.join(" "), contract);
    }

    #[test]
    fn reply_bytes_of_another_type_are_refused() {
        let Some(One(is_memory)) = of("/machine.MachineService/Memory") else {
            panic!("not unary")
        };
        let memory = machine::MemoryResponse::default().encode_to_vec();
        assert!(is_memory(&memory));
        let Some(One(is_stat)) = of("/machine.MachineService/SystemStat") else {
            panic!("not unary")
        };
        let stat = |numbers| {
            let irq = vec![1; numbers];
            let stat = machine::SystemStat {
                irq,
                ..Default::default()
            };
            let messages = vec![stat];
            machine::SystemStatResponse { messages }.encode_to_vec()
        };
        assert!(is_stat(&stat(1000)) && !is_stat(&stat(SHORT)));
        // An element whose second field, a message, is truncated.
        assert!(!is_memory(&[0x0a, 0x03, 0x12, 0x05, 0x00]));
        assert!(of("/machine.ImageService/List").is_none());
    }
}
