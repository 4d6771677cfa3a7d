//! Disks and the clock over the wire.

use std::net::Ipv4Addr;
use std::time::{Duration, SystemTime};

use corten_api::storage::disk::DiskType;
use corten_api::storage::storage_service_client::StorageServiceClient;
use corten_api::time as api;
use corten_api::time::time_service_client::TimeServiceClient;
use corten_resources::Draft;
use corten_types::block::{Disk, SystemDisk};
use corten_types::network_names::TimeServerStatus;
use tokio::net::UdpSocket;
use tonic::Code;

use super::world;
use crate::node::Node as _;

#[tokio::test]
async fn disks_are_listed_and_the_system_disk_is_marked() {
    let world = world();
    let store = world.node.store();
    store.register::<Disk>().unwrap();
    store.register::<SystemDisk>().unwrap();
    let disk = |transport: &str, rotational| Disk {
        dev_path: format!("/dev/{transport}"),
        size: 1 << 30,
        transport: transport.to_owned(),
        rotational,
        ..Disk::default()
    };
    for (id, spec) in [
        ("sda", disk("sata", true)),
        ("vda", disk("virtio", false)),
        ("nvme0n1", disk("nvme", false)),
    ] {
        store.put(Draft::new(id, spec), "").unwrap();
    }
    let system = SystemDisk {
        disk_id: "vda".to_owned(),
        dev_path: "/dev/vda".to_owned(),
    };
    store.put(Draft::new(SystemDisk::ID, system), "").unwrap();
    let mut client = StorageServiceClient::new(world.channel.clone());
    let reply = client.disks(()).await.unwrap().into_inner();
    let disks = &reply.messages[0].disks;
    let shown: Vec<_> = disks
        .iter()
        .map(|disk| (&*disk.device_name, disk.r#type(), disk.system_disk))
        .collect();
    assert_eq!(
        shown,
        [
            ("/dev/nvme", DiskType::Nvme, false),
            ("/dev/sata", DiskType::Hdd, false),
            ("/dev/virtio", DiskType::Ssd, true),
        ]
    );
    assert_eq!(disks[0].size, 1 << 30);
}

/// A local time server with a fixed time.
async fn time_server(seconds_since_1900: u32) -> String {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = socket.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let mut question = [0; 64];
            let (_, from) = socket.recv_from(&mut question).await.unwrap();
            let mut answer = [0; 48];
            answer[..2].copy_from_slice(&[0x24, 1]);
            answer[24..32].copy_from_slice(&question[40..48]);
            for at in [32, 40] {
                answer[at..at + 4].copy_from_slice(&seconds_since_1900.to_be_bytes());
            }
            socket.send_to(&answer, from).await.unwrap();
        }
    });
    address.to_string()
}

fn time(time: &api::Time) -> (SystemTime, SystemTime) {
    let read =
        |stamp: Option<prost_types::Timestamp>| SystemTime::try_from(stamp.unwrap()).unwrap();
    (read(time.localtime), read(time.remotetime))
}

#[tokio::test]
async fn clock_is_compared_with_the_first_or_the_requested_time_server() {
    let world = world();
    let mut client = TimeServiceClient::new(world.channel.clone());
    let none = client.time(()).await.unwrap_err();
    assert_eq!(none.code(), Code::FailedPrecondition);

    // 2020 and 2030.
    let (past, future) = (
        time_server(3_786_825_600).await,
        time_server(4_102_444_800).await,
    );
    let store = world.node.store();
    store.register::<TimeServerStatus>().unwrap();
    let servers = TimeServerStatus {
        time_servers: vec![past.clone(), future.clone()],
    };
    store
        .put(Draft::new(TimeServerStatus::ID, servers), "")
        .unwrap();
    let reply = client.time(()).await.unwrap().into_inner();
    assert_eq!(reply.messages[0].server, past);
    let (local, remote) = time(&reply.messages[0]);
    let age = SystemTime::now().duration_since(local).unwrap();
    assert!(age < Duration::from_secs(600) && remote < local);

    let check = |server: &str| api::TimeRequest {
        server: server.to_owned(),
    };
    let reply = client
        .time_check(check(&future))
        .await
        .unwrap()
        .into_inner();
    let (local, remote) = time(&reply.messages[0]);
    assert!(remote > local, "{reply:?}");
    for bad in ["/dev/watchdog", "not a name"] {
        let refused = client.time_check(check(bad)).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument, "{bad}");
    }
}
