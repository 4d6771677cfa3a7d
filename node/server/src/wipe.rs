//! Decides which disks and partitions may be wiped, from their resources, and wipes them while the node runs.

use std::sync::Arc;

use corten_api::storage as api;
use corten_api::storage::block_device_wipe_descriptor::Method;
use corten_observe::at_most;
use corten_observe::stream::ended_by_bug;
use corten_resources::{Store, Typed};
use corten_types::block::{BlockDevice, DiscoveredVolume, Disk, SystemDisk};
use corten_types::volume::VolumeStatus;
use corten_volumes::{DETACH, DeviceWipe, STARTED_FROM, is_of_a_node};
use tokio::task::spawn_blocking;
use tonic::Status;

use crate::node::{Node, refused};

/// machined keeps this partition open.
const META: &str = "META";
/// Limit of disks and partitions in one request.
pub(super) const MOST_DEVICES: usize = 256;

/// Wipes devices one after the other, if all of them may be wiped. Continues when the caller disconnects. An anonymous
/// caller, in maintenance mode, may not skip a check or wipe a disk with volumes of a node.
pub(super) async fn wipe(
    node: Arc<dyn Node>,
    request: api::BlockDeviceWipeRequest,
    is_anonymous: bool,
) -> Result<api::BlockDeviceWipeResponse, Status> {
    if request.devices.is_empty() {
        return Err(Status::invalid_argument(
            "devices: name at least one disk or partition, such as vdb or vdb1",
        ));
    }
    at_most("devices", request.devices.len(), MOST_DEVICES)?;
    let wipes: Result<Vec<DeviceWipe>, Status> = request
        .devices
        .iter()
        .map(|asked| {
            if is_anonymous {
                check_anonymous(node.store(), asked)?;
            }
            checked(node.store(), asked)
        })
        .collect();
    let wipes = wipes?;
    let names = request.devices.iter().map(|asked| asked.device.as_str());
    let names = names.collect::<Vec<_>>().join(", ");
    spawn_blocking(move || node.wipe_devices(&wipes))
        .await
        .map_err(|_| ended_by_bug(&format!("the wipe of {names}")))?
        .map_err(|error| refused(&error))?;
    Ok(api::BlockDeviceWipeResponse {
        messages: vec![api::BlockDeviceWipe { metadata: None }],
    })
}

/// Checks whether a caller without a certificate may make this request at all.
fn check_anonymous(store: &Store, asked: &api::BlockDeviceWipeDescriptor) -> Result<(), Status> {
    let skipped = [
        ("skip_volume_check", asked.skip_volume_check),
        ("skip_secondary_check", asked.skip_secondary_check),
    ];
    if let Some((field, _)) = skipped.iter().find(|(_, is_set)| *is_set) {
        return Err(Status::permission_denied(format!(
            "{field}: an anonymous caller may not skip a check; apply a machine config, then ask as its administrator"
        )));
    }
    let name = asked.device.strip_prefix("/dev/").unwrap_or(&asked.device);
    let device = store.get_as::<BlockDevice>(name);
    let parent = device.map(|device| device.parent.clone());
    // Checks all of the disk, even for a single partition: a node that started from another medium does not know its
    // volumes.
    let disk = parent
        .filter(|parent| !parent.is_empty())
        .unwrap_or_else(|| name.to_owned());
    match volume_of_a_node(store, &disk) {
        None => Ok(()),
        // No administrator could wipe it either.
        Some(_) if carries(store, &disk) == Carries::Perhaps => {
            let why = format!("device: {}", perhaps_the_nodes(name));
            Err(Status::permission_denied(why))
        }
        Some(volume) => Err(Status::permission_denied(format!(
            "device: {disk} carries {volume}, a volume of a node, which an anonymous caller may not wipe; apply a machine \
             config, then ask as its administrator"
        ))),
    }
}

/// A volume of a node on the disk, by the names of its partitions. A volume on a whole disk has its name as the label of
/// its file system.
#[must_use]
pub fn volume_of_a_node(store: &Store, disk: &str) -> Option<String> {
    let devices = store.list_as::<BlockDevice>();
    let partitions = devices
        .iter()
        .filter(|device| device.parent == disk)
        .map(|device| device.partition_name.clone());
    let label = store.get_as::<DiscoveredVolume>(disk);
    let label = label.map(|volume| volume.label.clone());
    partitions.chain(label).find(|name| is_of_a_node(name))
}

fn checked(store: &Store, asked: &api::BlockDeviceWipeDescriptor) -> Result<DeviceWipe, Status> {
    let name = asked.device.strip_prefix("/dev/").unwrap_or(&asked.device);
    let method = Method::try_from(asked.method).map_err(|_| {
        Status::invalid_argument(format!(
            "method: {} is neither FAST nor ZEROES",
            asked.method
        ))
    })?;
    let device = store.get_as::<BlockDevice>(name).ok_or_else(|| {
        Status::not_found(format!(
            "device: there is no disk or partition {name:?}; `get discoveredvolumes` lists them"
        ))
    })?;
    let disk_name = if device.parent.is_empty() {
        name
    } else {
        &device.parent
    };
    let disk = store.get_as::<Disk>(disk_name).ok_or_else(|| {
        Status::invalid_argument(format!(
            "device: {name} stores no data of its own; name a disk or a partition"
        ))
    })?;
    let in_use = |why| Status::failed_precondition(format!("device: {why}"));
    check_writable(name, &disk).map_err(in_use)?;
    check_not_the_nodes(store, name, &device).map_err(in_use)?;
    if !asked.skip_secondary_check
        && let Some((part, user)) = users(store, name).first()
    {
        return Err(in_use(format!("{part} is a part of {user}")));
    }
    if !asked.skip_volume_check
        && let Some(volume) = volume_on(store, name, &device.parent)
    {
        let why = format!("{name} is in use by the volume {volume}");
        return Err(in_use(why));
    }
    let partition_of =
        (!device.parent.is_empty()).then(|| (device.parent.clone(), device.partition_number));
    Ok(DeviceWipe {
        device: name.to_owned(),
        partition_of,
        sequence: disk.sequence,
        zeros: method == Method::Zeroes,
        drop_partition: asked.drop_partition,
    })
}

/// Checks that a reset may wipe this disk. It exists, does not carry the node, and only the node's volumes use it,
/// which a reset unmounts.
pub(super) fn user_disk(store: &Store, path: &str) -> Result<corten_volumes::Disk, Status> {
    let disks = store.list_as::<Disk>();
    let disk = disks
        .iter()
        .find(|disk| disk.dev_path == path || disk.symlinks.iter().any(|link| link == path));
    let disk = disk.ok_or_else(|| {
        Status::not_found(format!(
            "user_disks_to_wipe: there is no disk {path:?}; `get disks` lists the disks and their paths"
        ))
    })?;
    let in_use = |why| Status::failed_precondition(format!("user_disks_to_wipe: {why}"));
    check_writable(path, disk).map_err(in_use)?;
    match carries(store, disk.id()) {
        Carries::Nothing => {}
        Carries::Node => {
            return Err(in_use(format!(
                "{path} is the disk that carries the node; leave it out, and use mode all to wipe both"
            )));
        }
        Carries::Perhaps => return Err(in_use(perhaps_the_nodes(path))),
    }
    let foreign = users(store, disk.id())
        .into_iter()
        .find(|(part, _)| volume_on(store, part, "").is_none());
    match foreign {
        Some((part, user)) => Err(in_use(format!("{part} is a part of {user}"))),
        None => Ok(corten_volumes::Disk::new(disk.id(), disk.sequence)),
    }
}

fn check_writable(name: &str, disk: &Disk) -> Result<(), String> {
    if disk.readonly {
        return Err(format!("{name} is read-only"));
    }
    if disk.cdrom {
        return Err(format!("{name} is a CD drive"));
    }
    Ok(())
}

/// Devices built from the device or its partitions (a RAID, a logical volume, an opened encryption): pairs of the part
/// and its user.
fn users(store: &Store, name: &str) -> Vec<(String, String)> {
    let devices = store.list_as::<BlockDevice>();
    let belongs = |part: &String| {
        let of_it = |device: &Typed<BlockDevice>| device.id() == part && device.parent == name;
        part == name || devices.iter().any(of_it)
    };
    let mut users = Vec::new();
    for user in &devices {
        for part in user.secondaries.iter().filter(|part| belongs(part)) {
            users.push((part.clone(), user.id().to_owned()));
        }
    }
    users
}

/// The node's own disk is protected, whatever checks the caller skips. While any of several disks may be it, so are all
/// their partitions: each may hold the node's data.
fn check_not_the_nodes(store: &Store, name: &str, device: &BlockDevice) -> Result<(), String> {
    let label = device.partition_name.as_str();
    let is_started_from = STARTED_FROM.contains(&label) || label == META;
    match (carries(store, name), carries(store, &device.parent)) {
        (Carries::Perhaps, _) | (_, Carries::Perhaps) => Err(perhaps_the_nodes(name)),
        (Carries::Node, _) => Err(the_nodes(name)),
        (_, Carries::Node) if is_started_from => Err(the_nodes(name)),
        _ => Ok(()),
    }
}

fn the_nodes(name: &str) -> String {
    format!("{name} carries the node; `reset` wipes the disk it is on")
}

fn perhaps_the_nodes(name: &str) -> String {
    format!("{name} may carry this node, whose own disk is not certain; {DETACH}")
}

/// Whether a disk carries the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Carries {
    Nothing,
    Node,
    /// The node's disk is unknown, because several disks look like it, and this is one of them.
    Perhaps,
}

fn carries(store: &Store, disk: &str) -> Carries {
    if let Some(system) = store.get_as::<SystemDisk>(SystemDisk::ID) {
        return match system.disk_id == disk {
            true => Carries::Node,
            false => Carries::Nothing,
        };
    }
    let devices = store.list_as::<BlockDevice>();
    let mut its = devices.iter().filter(|device| device.parent == disk);
    match its.any(|device| device.partition_name == META) {
        true => Carries::Perhaps,
        false => Carries::Nothing,
    }
}

/// The volume on the device, on its disk `parent`, or on one of its partitions.
fn volume_on(store: &Store, name: &str, parent: &str) -> Option<String> {
    let is = |path: &str, name: &str| path.strip_prefix("/dev/") == Some(name);
    let volumes = store.list_as::<VolumeStatus>();
    let found = volumes.iter().find(|volume| {
        [&volume.location, &volume.mount_location]
            .into_iter()
            .any(|place| is(place, name) || is(place, parent))
            || is(&volume.parent_location, name)
    });
    found.map(|volume| volume.id().to_owned())
}
