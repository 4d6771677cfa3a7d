//! storage.StorageService: lists the disks, from their resources, and wipes them. Sizes are bytes.

use std::sync::Arc;

use corten_api::storage as api;
use corten_api::storage::disk::DiskType;
use corten_api::storage::storage_service_server::StorageService;
use corten_types::block::{Disk, SystemDisk};
use tonic::{Request, Response, Status, async_trait};

use super::callers::Caller;
use super::wipe;
use crate::node::{Node, Stage};

/// The service.
pub(super) struct Disks {
    node: Arc<dyn Node>,
}

impl Disks {
    pub(super) fn new(node: Arc<dyn Node>) -> Disks {
        Disks { node }
    }
}

#[async_trait]
impl StorageService for Disks {
    async fn disks(&self, _: Request<()>) -> Result<Response<api::DisksResponse>, Status> {
        let store = self.node.store();
        let system = store.get_as::<SystemDisk>(SystemDisk::ID);
        let system = system.map(|system| system.disk_id.clone());
        let all = store.list_as::<Disk>();
        let disks = all
            .iter()
            .map(|disk| describe(disk, system.as_deref() == Some(disk.id())));
        let disks = disks.collect();
        Ok(Response::new(api::DisksResponse {
            messages: vec![api::Disks {
                metadata: None,
                disks,
            }],
        }))
    }

    async fn block_device_wipe(
        &self,
        request: Request<api::BlockDeviceWipeRequest>,
    ) -> Result<Response<api::BlockDeviceWipeResponse>, Status> {
        let is_anonymous =
            self.node.stage() == Stage::Maintenance && !Caller::is_admin(request.extensions());
        wipe::wipe(self.node.clone(), request.into_inner(), is_anonymous)
            .await
            .map(Response::new)
    }
}

fn describe(disk: &Disk, system_disk: bool) -> api::Disk {
    let kind = match disk.transport.as_str() {
        _ if disk.cdrom => DiskType::Cd,
        "nvme" => DiskType::Nvme,
        "mmc" => DiskType::Sd,
        _ if disk.rotational => DiskType::Hdd,
        _ => DiskType::Ssd,
    };
    api::Disk {
        size: disk.size,
        model: disk.model.clone(),
        device_name: disk.dev_path.clone(),
        name: String::new(),
        serial: disk.serial.clone(),
        modalias: disk.modalias.clone(),
        uuid: String::new(),
        wwid: disk.wwid.clone(),
        r#type: kind.into(),
        bus_path: disk.bus_path.clone(),
        system_disk,
        subsystem: disk.sub_system.clone(),
        readonly: disk.readonly,
    }
}
