//! Disks and what is on them: sysfs, and udevd's database beside it.

mod device;

use corten_resources::Draft;
use corten_resources::controller::{Context, Controller, Failure, Input, Output};
use rtnetlink::sys::protocols::NETLINK_KOBJECT_UEVENT;
use rtnetlink::sys::{AsyncSocket, AsyncSocketExt, SocketAddr, TokioSocket};
use tokio::task::spawn_blocking;

use crate::resources::block::{DiscoveredVolume, Disk, SystemDisk};
use device::{Device, System};

/// Where udevd repeats the kernel's messages, once it has handled them.
const UDEVD_GROUP: u32 = 2;

#[derive(Debug, Clone)]
pub(super) struct BlockDevices;

impl Controller for BlockDevices {
    fn name(&self) -> &'static str {
        "block.DevicesController"
    }

    fn inputs(&self) -> Vec<Input> {
        vec![]
    }

    fn outputs(&self) -> Vec<Output> {
        vec![
            Output::exclusive::<Disk>(),
            Output::exclusive::<SystemDisk>(),
            Output::exclusive::<DiscoveredVolume>(),
        ]
    }

    async fn run(self, context: &mut Context) -> Result<(), Failure> {
        let mut socket = TokioSocket::new(NETLINK_KOBJECT_UEVENT)?;
        socket.socket_mut().bind(&SocketAddr::new(0, UDEVD_GROUP))?;
        context.event().await;
        loop {
            // A disk may take its time to answer.
            let devices = spawn_blocking(|| System::of_this_machine().devices()).await?;
            write(context, &devices)?;
            loop {
                let (message, _) = socket.recv_from_full().await?;
                if is_of_a_block_device(&message) {
                    break;
                }
            }
        }
    }
}

fn write(context: &mut Context, devices: &[Device]) -> Result<(), Failure> {
    context.start_outputs();
    for device in devices {
        let volume = device.volume();
        if volume.partition_label == "META" && volume.partition_index > 0 {
            let disk = SystemDisk {
                dev_path: format!("/dev/{}", volume.parent),
                disk_id: volume.parent.clone(),
            };
            context.put(Draft::new(SystemDisk::ID, disk))?;
        }
        context.put(Draft::new(device.name(), volume))?;
        if let Some(disk) = device.disk() {
            context.put(Draft::new(device.name(), disk))?;
        }
    }
    context.remove_others::<Disk>()?;
    context.remove_others::<SystemDisk>()?;
    context.remove_others::<DiscoveredVolume>()?;
    Ok(())
}

/// `KEY=value` parts that end in NUL, after a header.
fn is_of_a_block_device(message: &[u8]) -> bool {
    message
        .split(|byte| *byte == 0)
        .any(|part| part == b"SUBSYSTEM=block")
}
