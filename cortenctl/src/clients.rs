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

pub(crate) type Machine = MachineServiceClient<Channel>;
pub(crate) type Cluster = ClusterServiceClient<Channel>;
pub(crate) type Disks = StorageServiceClient<Channel>;
pub(crate) type FileSystems = FileSystemServiceClient<Channel>;
pub(crate) type Images = ImageServiceClient<Channel>;
pub(crate) type Inspect = InspectServiceClient<Channel>;
pub(crate) type Lifecycle = LifecycleServiceClient<Channel>;
pub(crate) type Lvm = LvmServiceClient<Channel>;
pub(crate) type Md = MdServiceClient<Channel>;
pub(crate) type State = StateClient<Channel>;
pub(crate) type Time = TimeServiceClient<Channel>;

/// A client on an open connection.
pub(crate) trait Service {
    fn over(channel: Channel) -> Self;
}

macro_rules! services {
    ($($kind:ty),* $(,)?) => {
        $(impl Service for $kind {
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
