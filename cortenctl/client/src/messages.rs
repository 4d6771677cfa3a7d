//! Access to the node that a message is from, to its error, and to the messages in a reply.

use corten_api::{cluster, common, inspect, machine, storage, time};
use tonic::Code;

/// A message of one node.
pub trait Message {
    /// The node's name and error; a node that is called directly sends none.
    fn metadata(&self) -> Option<&common::Metadata>;
}

/// The reply of a call: a message of each node.
pub trait Reply {
    /// The message of a node.
    type Message: Message;
    /// The messages of all nodes.
    fn messages(self) -> Vec<Self::Message>;
}

/// The node that a message is from; `name` if the message has none.
pub fn node_of(message: &impl Message, name: &str) -> String {
    message
        .metadata()
        .map(|metadata| metadata.hostname.clone())
        .filter(|hostname| !hostname.is_empty())
        .unwrap_or_else(|| name.to_owned())
}

/// The error of the node that a message is from.
pub fn failure_of(message: &impl Message) -> Option<String> {
    let metadata = message.metadata()?;
    if !metadata.error.is_empty() {
        return Some(metadata.error.clone());
    }
    let status = metadata.status.as_ref().filter(|status| status.code != 0)?;
    Some(format!(
        "{} ({:?})",
        status.message,
        Code::from(status.code)
    ))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_in_metadata_is_a_failure() {
        let status = corten_api::google::rpc::Status {
            code: 14,
            message: "no route".into(),
            details: Vec::new(),
        };
        let metadata = common::Metadata {
            status: Some(status),
            ..Default::default()
        };
        let message = machine::Memory {
            metadata: Some(metadata),
            meminfo: None,
        };
        assert_eq!(failure_of(&message).unwrap(), "no route (Unavailable)");
    }
}
