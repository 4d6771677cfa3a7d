//! The services of the API, as clients of a connection.

use corten_api::cluster::cluster_service_client::ClusterServiceClient;
use corten_api::cosi::resource::state_client::StateClient;
use corten_api::inspect::inspect_service_client::InspectServiceClient;
use corten_api::machine::image_service_client::ImageServiceClient;
use corten_api::machine::lifecycle_service_client::LifecycleServiceClient;
use corten_api::machine::lvm_service_client::LvmServiceClient;
use corten_api::machine::machine_service_client::MachineServiceClient;
use corten_api::machine::md_service_client::MdServiceClient;
use corten_api::machine::storage_service_client::StorageServiceClient as FileSystemServiceClient;
use corten_api::storage::storage_service_client::StorageServiceClient;
use corten_api::time::time_service_client::TimeServiceClient;
use tonic::transport::Channel;

/// The machine itself: most calls.
pub type Machine = MachineServiceClient<Channel>;
/// The health of the cluster.
pub type Cluster = ClusterServiceClient<Channel>;
/// Disks.
pub type Disks = StorageServiceClient<Channel>;
/// File systems.
pub type FileSystems = FileSystemServiceClient<Channel>;
/// Container images.
pub type Images = ImageServiceClient<Channel>;
/// Controllers and their resources.
pub type Inspect = InspectServiceClient<Channel>;
/// Installation and upgrade.
pub type Lifecycle = LifecycleServiceClient<Channel>;
/// Volumes of LVM.
pub type Lvm = LvmServiceClient<Channel>;
/// Software RAID.
pub type Md = MdServiceClient<Channel>;
/// Resources.
pub type State = StateClient<Channel>;
/// The clock and time servers.
pub type Time = TimeServiceClient<Channel>;

/// A client on an open connection.
pub trait Service {
    /// A client on the connection.
    fn over(channel: Channel) -> Self;
}

macro_rules! services {
    ($($kind:ty),* $(,)?) => {
        $(impl Service for $kind {
            /// A client on the connection.
    fn over(channel: Channel) -> Self {
                <$kind>::new(channel)
                    .max_decoding_message_size(corten_api::MAX_MESSAGE)
                    .max_encoding_message_size(corten_api::MAX_MESSAGE)
            }
        })*
    };
}

services!(
    Machine,
    Cluster,
    Disks,
    FileSystems,
    Images,
    Inspect,
    Lifecycle,
    Lvm,
    Md,
    State,
    Time
);
