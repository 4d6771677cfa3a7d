//! Access to the node that a message is from, and to the messages in a reply.

use corten_api::{cluster, common, inspect, machine, storage, time};

/// A message of one node.
pub(crate) trait Message {
    /// The node's name and error; a node that is called directly sends none.
    fn metadata(&self) -> Option<&common::Metadata>;
}

/// The reply of a call: a message of each node.
pub(crate) trait Reply {
    /// The message of a node.
    type Message: Message;
    fn messages(self) -> Vec<Self::Message>;
}

macro_rules! messages {
    ($($kind:path),* $(,)?) => {
        $(impl Message for $kind {
            fn metadata(&self) -> Option<&common::Metadata> {
                self.metadata.as_ref()
            }
        })*
    };
}

macro_rules! replies {
    ($($reply:path => $message:path),* $(,)?) => {
        $(impl Reply for $reply {
            type Message = $message;
            fn messages(self) -> Vec<$message> {
                self.messages
            }
        })*
        messages!($($message),*);
    };
}

// Frames of streams.
messages!(
    cluster::HealthCheckProgress,
    common::Data,
    machine::DiskUsageInfo,
    machine::Event,
    machine::FileInfo,
    machine::ImageListResponse,
);

replies!(
    inspect::ControllerRuntimeDependenciesResponse => inspect::ControllerRuntimeDependency,
    machine::ApplyConfigurationResponse => machine::ApplyConfiguration,
    machine::BootstrapResponse => machine::Bootstrap,
    machine::ContainersResponse => machine::Container,
    machine::DiskStatsResponse => machine::DiskStats,
    machine::EtcdAlarmDisarmResponse => machine::EtcdAlarmDisarm,
    machine::EtcdAlarmListResponse => machine::EtcdAlarm,
    machine::EtcdDefragmentResponse => machine::EtcdDefragment,
    machine::EtcdDowngradeCancelResponse => machine::EtcdDowngradeCancel,
    machine::EtcdDowngradeEnableResponse => machine::EtcdDowngradeEnable,
    machine::EtcdDowngradeValidateResponse => machine::EtcdDowngradeValidate,
    machine::EtcdForfeitLeadershipResponse => machine::EtcdForfeitLeadership,
    machine::EtcdLeaveClusterResponse => machine::EtcdLeaveCluster,
    machine::EtcdMemberListResponse => machine::EtcdMembers,
    machine::EtcdRecoverResponse => machine::EtcdRecover,
    machine::EtcdRemoveMemberByIdResponse => machine::EtcdRemoveMemberById,
    machine::EtcdStatusResponse => machine::EtcdStatus,
    machine::GenerateClientConfigurationResponse => machine::GenerateClientConfiguration,
    machine::ImagePullResponse => machine::ImagePull,
    machine::LoadAvgResponse => machine::LoadAvg,
    machine::MemoryResponse => machine::Memory,
    machine::MetaDeleteResponse => machine::MetaDelete,
    machine::MetaWriteResponse => machine::MetaWrite,
    machine::MountsResponse => machine::Mounts,
    machine::NetstatResponse => machine::Netstat,
    machine::NetworkDeviceStatsResponse => machine::NetworkDeviceStats,
    machine::ProcessesResponse => machine::Process,
    machine::RebootResponse => machine::Reboot,
    machine::ResetResponse => machine::Reset,
    machine::RestartResponse => machine::Restart,
    machine::RollbackResponse => machine::Rollback,
    machine::ServiceListResponse => machine::ServiceList,
    machine::ServiceRestartResponse => machine::ServiceRestart,
    machine::ServiceStartResponse => machine::ServiceStart,
    machine::ServiceStopResponse => machine::ServiceStop,
    machine::ShutdownResponse => machine::Shutdown,
    machine::StatsResponse => machine::Stats,
    machine::SystemStatResponse => machine::SystemStat,
    machine::UpgradeResponse => machine::Upgrade,
    machine::VersionResponse => machine::Version,
    storage::BlockDeviceWipeResponse => storage::BlockDeviceWipe,
    time::TimeResponse => time::Time,
);
