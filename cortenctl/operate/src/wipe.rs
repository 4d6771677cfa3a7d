//! `wipe`: wipes disks and volumes.

use std::convert::Infallible;
use std::future::Future;
use std::time::Duration;

use corten_api::machine::{
    DiskStats, LvmServiceLogicalVolumeRemoveRequest, LvmServicePhysicalVolumeRemoveRequest,
    LvmServiceVolumeGroupRemoveRequest, MdDestroyRequest,
};
use corten_api::storage as api;
use corten_api::storage::block_device_wipe_descriptor::Method;
use corten_client::answers::{Answers, ask, ask_within};
use corten_client::clients::{Disks, Lvm, Machine, Md, Service};
use corten_client::connect::Route;
use corten_client::failure::{Failure, finish};
use corten_client::progress::Progress;
use corten_client::stream::each;
use corten_client::table::printable;
use tokio::time::sleep;
use tonic::{Request, Response, Status};

use crate::args::{Wipe, WipeDisk, WipeLvm, WipeMethod};

/// Interval between two queries of the progress.
const PAUSE: Duration = Duration::from_secs(1);
/// The unit in bytes of the kernel's write counters, whatever sector size a disk has
/// (`Documentation/admin-guide/iostats.rst`).
const SECTOR: u64 = 512;

/// Runs `wipe`.
///
/// # Errors
/// A node refuses.
pub async fn run(routes: Vec<Route>, what: &Wipe) -> Result<(), Failure> {
    match what {
        Wipe::Disk(args) => disk(routes, args).await,
        Wipe::Lv(args) => {
            let (group, volume) = logical_volume(&args.name)?;
            let body = LvmServiceLogicalVolumeRemoveRequest {
                volume_group: group.to_owned(),
                logical_volume: volume.to_owned(),
            };
            one_by_one(routes, args, body, |mut client: Lvm, request| async move {
                client.logical_volume_remove(request).await
            })
            .await
        }
        Wipe::Vg(args) => {
            let volume_group = args.name.clone();
            let body = LvmServiceVolumeGroupRemoveRequest { volume_group };
            one_by_one(routes, args, body, |mut client: Lvm, request| async move {
                client.volume_group_remove(request).await
            })
            .await
        }
        Wipe::Pv(args) => {
            let device = args.name.clone();
            let body = LvmServicePhysicalVolumeRemoveRequest { device };
            one_by_one(routes, args, body, |mut client: Lvm, request| async move {
                client.physical_volume_remove(request).await
            })
            .await
        }
        Wipe::Md(args) => {
            let device = args.name.clone();
            let body = MdDestroyRequest { device };
            one_by_one(routes, args, body, |mut client: Md, request| async move {
                client.destroy(request).await
            })
            .await
        }
    }
}

/// A logical volume and its group, from `vg0/lv0`.
fn logical_volume(name: &str) -> Result<(&str, &str), Failure> {
    let parts = name.split_once('/');
    let parts = parts
        .filter(|(group, volume)| !group.is_empty() && !volume.is_empty() && !volume.contains('/'));
    parts.ok_or_else(|| {
        Failure::usage(format!(
            "{name:?} is not a group and a volume such as vg0/lv0"
        ))
    })
}

/// Calls a service that answers for one node at a time.
async fn one_by_one<C, B, F, Fut>(
    routes: Vec<Route>,
    args: &WipeLvm,
    body: B,
    call: F,
) -> Result<(), Failure>
where
    C: Service,
    B: Clone,
    F: Fn(C, Request<B>) -> Fut,
    Fut: Future<Output = Result<Response<()>, Status>>,
{
    let failed = each(routes, async |node| {
        call(node.client(), node.brief(body.clone())).await?;
        eprintln!("{}: {} wiped", printable(&node.name), printable(&args.name));
        Ok(())
    })
    .await?;
    finish(&failed)
}

async fn disk(routes: Vec<Route>, args: &WipeDisk) -> Result<(), Failure> {
    let ways = routes.clone();
    // Without timeout: writing zeros to a large disk takes long.
    let wiping = ask_within(
        None,
        routes,
        request(args),
        |mut client: Disks, request| async move { client.block_device_wipe(request).await },
    );
    let answers = if args.method == WipeMethod::Zeroes {
        tokio::select! {
            answers = wiping => answers?,
            never = count(ways, &args.devices) => match never {},
        }
    } else {
        wiping.await?
    };
    for (node, _) in &answers.good {
        eprintln!("{}: {} wiped", printable(node), args.devices.join(", "));
    }
    answers.finish()
}

/// Counts the bytes that nodes write to the devices, as long as the counter is visible. The wipe
/// itself answers only at its end.
async fn count(ways: Vec<Route>, devices: &[String]) -> Infallible {
    let mut progress = Progress::new("written");
    let mut before = None;
    while progress.is_shown() {
        let call = |mut client: Machine, request| async move { client.disk_stats(request).await };
        // An error of the query does not end the count, because the wipe continues.
        if let Ok(answers) = ask(ways.clone(), (), call).await
            && answers.failed.is_empty()
        {
            let now = written(&answers, devices);
            let before = *before.get_or_insert(now);
            progress.set(now.saturating_sub(before));
        }
        sleep(PAUSE).await;
    }
    std::future::pending().await
}

/// The bytes that nodes have written to these devices since they booted. A device is named as in
/// the call: `vdb` or `/dev/vdb`.
fn written(answers: &Answers<DiskStats>, devices: &[String]) -> u64 {
    let bare = |device: &String| device.strip_prefix("/dev/").unwrap_or(device).to_owned();
    let devices: Vec<String> = devices.iter().map(bare).collect();
    let all = answers.good.iter().flat_map(|(_, stats)| &stats.devices);
    let wanted = all.filter(|device| devices.contains(&device.name));
    let sectors = wanted.fold(0_u64, |sum, device| {
        sum.saturating_add(device.write_sectors)
    });
    sectors.saturating_mul(SECTOR)
}

/// Request of a fast wipe of one disk, with all checks.
pub(super) fn fast(disk: &str) -> api::BlockDeviceWipeRequest {
    let device = api::BlockDeviceWipeDescriptor {
        device: disk.to_owned(),
        method: Method::Fast.into(),
        ..Default::default()
    };
    api::BlockDeviceWipeRequest {
        devices: vec![device],
    }
}

fn request(args: &WipeDisk) -> api::BlockDeviceWipeRequest {
    let method = match args.method {
        WipeMethod::Fast => Method::Fast,
        WipeMethod::Zeroes => Method::Zeroes,
    };
    let devices = args.devices.iter();
    api::BlockDeviceWipeRequest {
        devices: devices
            .map(|device| api::BlockDeviceWipeDescriptor {
                device: device.clone(),
                method: method.into(),
                skip_volume_check: args.skip_volume_check,
                skip_secondary_check: args.skip_secondary_check,
                drop_partition: args.drop_partition,
            })
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use corten_api::machine::DiskStat;

    use super::*;

    #[derive(clap::Parser)]
    struct Line {
        #[command(subcommand)]
        args: Wipe,
    }

    fn asked(line: &str) -> Vec<api::BlockDeviceWipeDescriptor> {
        let words = line.split_whitespace().skip(1);
        match Line::try_parse_from(words).unwrap().args {
            Wipe::Disk(args) => request(&args).devices,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn wipe_skips_no_check_without_its_flag() {
        let device = |name: &str| api::BlockDeviceWipeDescriptor {
            device: name.to_owned(),
            ..Default::default()
        };
        let two = asked("cortenctl wipe disk vdb vdc1");
        assert_eq!(two, [device("vdb"), device("vdc1")]);
        let all = asked(
            "cortenctl wipe disk vdb --method zeroes --drop-partition --skip-volume-check --skip-secondary-check",
        );
        let expected = api::BlockDeviceWipeDescriptor {
            method: Method::Zeroes.into(),
            skip_volume_check: true,
            skip_secondary_check: true,
            drop_partition: true,
            ..device("vdb")
        };
        assert_eq!(all, [expected]);
    }

    #[test]
    fn a_logical_volume_is_named_with_its_group() {
        assert_eq!(logical_volume("vg0/lv0").unwrap(), ("vg0", "lv0"));
        for wrong in ["vg0", "/lv0", "vg0/", "/dev/vg0/lv0", ""] {
            assert!(
                matches!(logical_volume(wrong), Err(Failure::Usage(_))),
                "{wrong}"
            );
        }
    }

    #[test]
    fn progress_counts_only_the_devices_that_are_wiped() {
        let device = |name: &str, write_sectors| DiskStat {
            name: name.to_owned(),
            write_sectors,
            ..Default::default()
        };
        let stats = |devices| DiskStats {
            devices,
            ..Default::default()
        };
        let first = stats(vec![device("vda", 9), device("vdb", 4), device("vdb1", 1)]);
        let second = stats(vec![device("vdb", 6)]);
        let good = vec![("n1".to_owned(), first), ("n2".to_owned(), second)];
        let mut answers = Answers {
            good,
            ..Answers::default()
        };
        for name in ["vdb", "/dev/vdb"] {
            assert_eq!(written(&answers, &[name.to_owned()]), 10 * SECTOR, "{name}");
        }
        // A device given twice counts once.
        let twice = ["vdb".to_owned(), "/dev/vdb".to_owned()];
        assert_eq!(written(&answers, &twice), 10 * SECTOR);
        assert_eq!(written(&answers, &["vdc".to_owned()]), 0);
        let hostile = stats(vec![device("vdb", u64::MAX)]);
        answers.good.push(("n3".to_owned(), hostile));
        assert_eq!(written(&answers, &["vdb".to_owned()]), u64::MAX);
    }
}
