//! Disks and what is on them: sysfs, and udevd's database beside it; and the node's volumes among them.

pub(super) mod config;
mod device;
pub(super) mod mounts;
pub(super) mod volumes;

use std::collections::BTreeMap;

use corten_resources::Draft;
use corten_resources::controller::{Context, Controller, Failure, Input, Output};
use tokio::task::spawn_blocking;

use crate::resources::block::{BlockDevice, DiscoveredVolume, Disk, SystemDisk};
use crate::uevents::{Message, Uevents};
use device::{Device, System};

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
            Output::exclusive::<BlockDevice>(),
            Output::exclusive::<Disk>(),
            Output::exclusive::<SystemDisk>(),
            Output::exclusive::<DiscoveredVolume>(),
        ]
    }

    async fn run(self, context: &mut Context) -> Result<(), Failure> {
        let mut messages = Uevents::listen()?;
        context.event().await;
        let mut generations = Generations::default();
        loop {
            // A disk may take its time to answer.
            let devices = spawn_blocking(|| System::of_this_machine().devices()).await?;
            write(context, &devices, &generations)?;
            generations.count(&messages.next("block").await?);
        }
    }
}

/// How often udevd told of each device.
#[derive(Debug, Default)]
struct Generations(BTreeMap<String, u32>);

impl Generations {
    fn count(&mut self, message: &Message) {
        let device = message.get("DEVNAME");
        let Some(device) = device.and_then(|path| path.strip_prefix("/dev/")) else {
            return;
        };
        if message.get("ACTION") == Some("remove") {
            self.0.remove(device);
            return;
        }
        let told = self.0.entry(device.to_owned()).or_default();
        *told = told.saturating_add(1);
    }

    /// The first look counts, too.
    fn of(&self, device: &str) -> u32 {
        let told = self.0.get(device).copied().unwrap_or_default();
        told.saturating_add(1)
    }
}

fn write(
    context: &mut Context,
    devices: &[Device],
    generations: &Generations,
) -> Result<(), Failure> {
    context.start_outputs();
    for device in devices {
        let name = device.name();
        let block_device = device.block_device(generations.of(name));
        context.put(Draft::new(name, block_device))?;
        let Some(volume) = device.volume() else {
            continue;
        };
        if volume.partition_label == "META" && volume.partition_index > 0 {
            let disk = SystemDisk {
                dev_path: format!("/dev/{}", volume.parent),
                disk_id: volume.parent.clone(),
            };
            context.put(Draft::new(SystemDisk::ID, disk))?;
        }
        context.put(Draft::new(name, volume))?;
        if let Some(disk) = device.disk() {
            context.put(Draft::new(name, disk))?;
        }
    }
    context.remove_others::<BlockDevice>()?;
    context.remove_others::<Disk>()?;
    context.remove_others::<SystemDisk>()?;
    context.remove_others::<DiscoveredVolume>()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_of_a_device_is_counted() {
        let mut generations = Generations::default();
        assert_eq!(generations.of("vda1"), 1);
        let told = Message::of("ACTION=change\0DEVNAME=/dev/vda1\0");
        generations.count(&told);
        generations.count(&told);
        assert_eq!((generations.of("vda1"), generations.of("vda")), (3, 1));
        for nonsense in ["", "DEVNAME=", "DEVNAME=vdb\0", "\0\0DEVNAME"] {
            generations.count(&Message::of(nonsense));
        }
        assert_eq!(generations.0.len(), 1);
        generations.count(&Message::of("ACTION=remove\0DEVNAME=/dev/vda1\0"));
        assert!(generations.0.is_empty());
    }
}
