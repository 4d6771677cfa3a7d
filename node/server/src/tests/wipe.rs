//! The disks and partitions that may be wiped.

use corten_api::machine as machine_api;
use corten_api::machine::reset_request::WipeMode;
use corten_api::storage as api;
use corten_api::storage::block_device_wipe_descriptor::Method;
use corten_api::storage::storage_service_client::StorageServiceClient;
use corten_resources::{Draft, Pointer, Spec};
use corten_types::block::{BlockDevice, Disk, SystemDisk};
use corten_types::volume::VolumeStatus;
use corten_volumes::DeviceWipe;
use tonic::Code;

use super::{World, world};
use crate::node::Node as _;

/// Disks: the node's vda with boot partitions, STATE and an unused partition; vdb with one partition and a symlink;
/// vdc, a part of dm-0; vdd with an open volume dm-1; vdr, read-only; a CD drive.
pub(super) fn put_disks(world: &World) {
    for name in ["vda", "vdb", "vdc", "vdd", "vdr", "sr0", "vdz"] {
        put_device(world, name, "", 0, "", &[]);
        let disk = Disk {
            dev_path: format!("/dev/{name}"),
            readonly: name == "vdr",
            cdrom: name == "sr0",
            symlinks: vec![format!("/dev/disk/by-id/the-{name}")],
            sequence: number(name),
            ..Disk::default()
        };
        put(world, name, disk);
    }
    put_device(world, "vda1", "vda", 1, "EFI", &[]);
    put_device(world, "vda4", "vda", 4, "STATE", &[]);
    put_device(world, "vda6", "vda", 6, "u-old", &[]);
    put_device(world, "vdb1", "vdb", 1, "", &[]);
    put_device(world, "vdc1", "vdc", 1, "", &[]);
    put_device(world, "vdd1", "vdd", 1, "u-data", &[]);
    put_device(world, "dm-0", "", 0, "", &["vdc1"]);
    put_device(world, "dm-1", "", 0, "", &["vdd1"]);
    for (id, disk, number) in [("STATE", "vda", 4), ("u-data", "vdd", 1)] {
        let status = VolumeStatus {
            location: format!("/dev/{disk}{number}"),
            parent_location: format!("/dev/{disk}"),
            ..VolumeStatus::default()
        };
        put(world, id, status);
    }
    // A volume that does not exist yet has no location.
    put(world, "EPHEMERAL", VolumeStatus::default());
    let system = SystemDisk {
        disk_id: "vda".to_owned(),
        dev_path: "/dev/vda".to_owned(),
    };
    put(world, SystemDisk::ID, system);
}

/// The kernel's sequence number of a disk, by its name or a partition's.
pub(super) fn number(device: &str) -> u64 {
    device.as_bytes().get(2).map_or(0, |byte| u64::from(*byte))
}

fn put<S: Spec>(world: &World, id: &str, spec: S) {
    let store = world.node.store();
    store.register::<S>().unwrap();
    store.put(Draft::new(id, spec), "").unwrap();
}

fn put_device(world: &World, name: &str, parent: &str, number: u32, label: &str, of: &[&str]) {
    let device = BlockDevice {
        kind: if parent.is_empty() {
            "disk"
        } else {
            "partition"
        },
        parent: parent.to_owned(),
        partition_number: number,
        partition_name: label.to_owned(),
        secondaries: of.iter().map(|part| (*part).to_owned()).collect(),
        ..BlockDevice::default()
    };
    put(world, name, device);
}

fn asked(device: &str) -> api::BlockDeviceWipeDescriptor {
    api::BlockDeviceWipeDescriptor {
        device: device.to_owned(),
        ..Default::default()
    }
}

async fn ask(
    world: &World,
    devices: Vec<api::BlockDeviceWipeDescriptor>,
) -> Result<(), tonic::Status> {
    let mut client = StorageServiceClient::new(world.channel.clone());
    let request = api::BlockDeviceWipeRequest { devices };
    let reply = client.block_device_wipe(request).await?.into_inner();
    assert_eq!(reply.messages.len(), 1);
    Ok(())
}

/// Asks as an anonymous caller: in maintenance mode, every caller is a reader.
async fn ask_as_stranger(
    world: &World,
    descriptor: api::BlockDeviceWipeDescriptor,
) -> Result<(), tonic::Status> {
    let mut client = StorageServiceClient::new(world.channel.clone());
    let devices = vec![descriptor];
    let mut request = tonic::Request::new(api::BlockDeviceWipeRequest { devices });
    let role = corten_api::metadata::ROLE;
    let reader = "os:reader".parse().unwrap();
    request.metadata_mut().insert(role, reader);
    client.block_device_wipe(request).await.map(drop)
}

fn wipe(device: &str) -> DeviceWipe {
    DeviceWipe {
        device: device.to_owned(),
        partition_of: None,
        sequence: number(device),
        zeros: false,
        drop_partition: false,
    }
}

#[tokio::test]
async fn unused_devices_are_wiped_as_requested() {
    let world = world();
    put_disks(&world);
    let zeroed = api::BlockDeviceWipeDescriptor {
        method: Method::Zeroes.into(),
        ..asked("/dev/vdb1")
    };
    let dropped = api::BlockDeviceWipeDescriptor {
        drop_partition: true,
        ..asked("vda6")
    };
    ask(&world, vec![asked("vdb"), zeroed, dropped])
        .await
        .unwrap();
    let of = |disk: &str, number| Some((disk.to_owned(), number));
    let expected = [
        wipe("vdb"),
        DeviceWipe {
            zeros: true,
            partition_of: of("vdb", 1),
            ..wipe("vdb1")
        },
        DeviceWipe {
            drop_partition: true,
            partition_of: of("vda", 6),
            ..wipe("vda6")
        },
    ];
    assert_eq!(*world.node.wipes.lock().unwrap(), expected);
}

#[tokio::test]
async fn device_in_use_is_named_and_nothing_is_wiped() {
    let world = world();
    put_disks(&world);
    let none = ask(&world, Vec::new()).await.unwrap_err();
    assert_eq!(none.code(), Code::InvalidArgument);
    let many = ask(&world, vec![asked("vdb"); 257]).await.unwrap_err();
    assert_eq!(many.code(), Code::InvalidArgument);
    assert!(many.message().starts_with("devices: "), "{many}");
    let unknown = api::BlockDeviceWipeDescriptor {
        method: 7,
        ..asked("vdb")
    };
    let unknown = ask(&world, vec![unknown]).await.unwrap_err();
    assert_eq!(unknown.code(), Code::InvalidArgument);
    assert!(unknown.message().starts_with("method: 7"), "{unknown}");
    for (device, code, why) in [
        ("vdx", Code::NotFound, "no disk or partition \"vdx\""),
        ("", Code::NotFound, "no disk or partition"),
        ("../vdb", Code::NotFound, "no disk or partition"),
        ("dm-0", Code::InvalidArgument, "stores no data of its own"),
        ("vdr", Code::FailedPrecondition, "vdr is read-only"),
        ("sr0", Code::FailedPrecondition, "sr0 is a CD drive"),
        ("vdc", Code::FailedPrecondition, "vdc1 is a part of dm-0"),
        ("vdc1", Code::FailedPrecondition, "vdc1 is a part of dm-0"),
        ("vda", Code::FailedPrecondition, "vda carries the node"),
        ("vda4", Code::FailedPrecondition, "by the volume STATE"),
        ("vda1", Code::FailedPrecondition, "vda1 carries the node"),
    ] {
        let refused = ask(&world, vec![asked("vdb"), asked(device)]).await;
        let refused = refused.unwrap_err();
        assert_eq!(refused.code(), code, "{device}: {refused}");
        assert!(refused.message().contains(why), "{device}: {refused}");
    }
    assert!(world.node.wipes.lock().unwrap().is_empty());
    // The node knows uses that the resources do not show.
    let busy = ask(&world, vec![asked("vdz")]).await.unwrap_err();
    assert_eq!(busy.code(), Code::FailedPrecondition);
}

#[tokio::test]
async fn every_candidate_system_disk_is_protected_from_a_wipe() {
    let mut world = world();
    put_disks(&world);
    put_device(&world, "vda3", "vda", 3, "META", &[]);
    put_device(&world, "vdz1", "vdz", 1, "EFI", &[]);
    put_device(&world, "vdz3", "vdz", 3, "META", &[]);
    world
        .node
        .store()
        .destroy(&Pointer::of::<SystemDisk>(SystemDisk::ID), "")
        .unwrap();
    let all = |device| api::BlockDeviceWipeDescriptor {
        skip_secondary_check: true,
        skip_volume_check: true,
        ..asked(device)
    };
    let names_the_remedy = |refused: &tonic::Status| {
        let message = refused.message();
        assert!(message.contains("may carry this node"), "{refused}");
        assert!(message.ends_with(corten_volumes::DETACH), "{refused}");
    };
    for device in ["vda", "vda1", "vda3", "vda4", "vda6", "vdz", "vdz1", "vdz3"] {
        names_the_remedy(&ask(&world, vec![all(device)]).await.unwrap_err());
        let refused = ask_as_stranger(&world, asked(device)).await.unwrap_err();
        assert_eq!(refused.code(), Code::PermissionDenied);
        names_the_remedy(&refused);
    }
    for disk in ["/dev/vda", "/dev/vdz"] {
        let request = machine_api::ResetRequest {
            user_disks_to_wipe: vec![disk.to_owned()],
            mode: WipeMode::UserDisks.into(),
            ..Default::default()
        };
        names_the_remedy(&world.client.reset(request).await.unwrap_err());
    }
    ask(&world, vec![asked("vdb")]).await.unwrap();
    assert_eq!(*world.node.wipes.lock().unwrap(), [wipe("vdb")]);
}

/// What the console and the refusals name as the remedy for two disks that carry a node.
#[tokio::test]
async fn another_nodes_disk_is_wiped_by_the_owner_of_a_node_that_knows_its_own() {
    let world = world();
    put_disks(&world);
    for (name, number, label) in [
        ("vdb1", 1, "EFI"),
        ("vdb3", 3, "META"),
        ("vdb4", 4, "STATE"),
    ] {
        put_device(&world, name, "vdb", number, label, &[]);
    }
    let refused = ask_as_stranger(&world, asked("vdb")).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied);
    assert!(world.node.wipes.lock().unwrap().is_empty());
    ask(&world, vec![asked("vdb")]).await.unwrap();
    assert_eq!(*world.node.wipes.lock().unwrap(), [wipe("vdb")]);
}

#[tokio::test]
async fn admin_may_skip_wipe_checks_except_for_the_system_disk() {
    let world = world();
    put_disks(&world);
    let apart = api::BlockDeviceWipeDescriptor {
        skip_secondary_check: true,
        ..asked("vdc")
    };
    let volume = api::BlockDeviceWipeDescriptor {
        skip_volume_check: true,
        ..asked("vda4")
    };
    ask(&world, vec![apart, volume]).await.unwrap();
    for (device, code) in [
        ("vda", Code::FailedPrecondition),
        ("vda1", Code::FailedPrecondition),
        ("dm-0", Code::InvalidArgument),
    ] {
        let all = api::BlockDeviceWipeDescriptor {
            skip_secondary_check: true,
            skip_volume_check: true,
            ..asked(device)
        };
        let refused = ask(&world, vec![all]).await.unwrap_err();
        assert_eq!(refused.code(), code, "{device}: {refused}");
    }
    let names: Vec<String> = world
        .node
        .wipes
        .lock()
        .unwrap()
        .iter()
        .map(|w| w.device.clone())
        .collect();
    assert_eq!(names, ["vdc", "vda4"]);
}

#[tokio::test]
async fn reset_wipes_other_unused_disks() {
    let mut world = world();
    put_disks(&world);
    let request = |disk: &str| machine_api::ResetRequest {
        user_disks_to_wipe: vec![disk.to_owned()],
        mode: WipeMode::UserDisks.into(),
        ..Default::default()
    };
    for (disk, code, why) in [
        ("/dev/vdx", Code::NotFound, "no disk \"/dev/vdx\""),
        ("vdb", Code::NotFound, "no disk \"vdb\""),
        ("/dev/vdb1", Code::NotFound, "no disk"),
        ("/dev/vda", Code::FailedPrecondition, "carries the node"),
        ("/dev/vdr", Code::FailedPrecondition, "is read-only"),
        ("/dev/sr0", Code::FailedPrecondition, "is a CD drive"),
        (
            "/dev/vdc",
            Code::FailedPrecondition,
            "vdc1 is a part of dm-0",
        ),
    ] {
        let refused = world.client.reset(request(disk)).await.unwrap_err();
        assert_eq!(refused.code(), code, "{disk}: {refused}");
        let message = refused.message();
        assert!(
            message.starts_with("user_disks_to_wipe: ") && message.contains(why),
            "{disk}: {refused}"
        );
    }
    assert!(world.node.actions.lock().unwrap().is_empty());
    // A volume on the disk is unmounted first. A disk may be named by a stable link.
    let by_id = request("/dev/disk/by-id/the-vdd");
    world.client.reset(by_id).await.unwrap();
    assert_eq!(world.node.actions.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn anonymous_caller_skips_no_check_and_wipes_no_volume_of_a_node() {
    let world = world();
    put_disks(&world);
    let refused = async |descriptor: api::BlockDeviceWipeDescriptor| {
        let status = ask_as_stranger(&world, descriptor).await.err();
        status.map(|status| {
            assert_eq!(status.code(), Code::PermissionDenied, "{status}");
            status.message().to_owned()
        })
    };
    assert_eq!(refused(asked("vdb")).await, None);
    let volumes = api::BlockDeviceWipeDescriptor {
        skip_volume_check: true,
        ..asked("vdb")
    };
    assert!(
        refused(volumes)
            .await
            .unwrap()
            .contains("skip_volume_check")
    );
    let secondary = api::BlockDeviceWipeDescriptor {
        skip_secondary_check: true,
        ..asked("vdb")
    };
    let why = refused(secondary).await.unwrap();
    assert!(why.contains("skip_secondary_check"), "{why}");
    for device in ["vdd", "vdd1", "/dev/vdd", "vda6"] {
        let why = refused(asked(device)).await.unwrap();
        assert!(why.contains("a volume of a node"), "{device}: {why}");
    }
    assert_eq!(world.node.wipes.lock().unwrap().len(), 1);
}
