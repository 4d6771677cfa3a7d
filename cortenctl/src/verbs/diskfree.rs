//! `diskfree`: usage of the file systems of a node's volumes.

use corten_api::machine::{StorageServiceStatfsRequest, StorageServiceStatfsResponse as Statfs};
use corten_client::answers::Answers;
use corten_client::clients::FileSystems;
use corten_client::connect::Route;
use corten_client::failure::Failure;
use corten_client::output::show;
use corten_client::resources;
use corten_client::stream::{Trouble, each};
use corten_client::table::Table;
use corten_client::units;
use serde_json::{Value, json};

use crate::cli::DiskFree;

/// Resources of the mounted volumes.
const MOUNTED: (&str, &str) = ("runtime", "MountStatuses.block.talos.dev");
const BYTES: &[&str] = &[
    "NODE",
    "VOLUME",
    "FILESYSTEM",
    "SIZE",
    "USED",
    "AVAILABLE",
    "USAGE",
    "MOUNT POINT",
];
const INODES: &[&str] = &[
    "NODE",
    "VOLUME",
    "FILESYSTEM",
    "INODES",
    "IUSED",
    "IFREE",
    "%IUSED",
    "MOUNT POINT",
];

/// A mounted volume with a file system of its own.
#[derive(Debug, PartialEq)]
struct Volume {
    id: String,
    source: String,
    target: String,
    usage: Statfs,
}

pub(crate) async fn run(routes: Vec<Route>, args: &DiskFree) -> Result<(), Failure> {
    let mut good = Vec::new();
    let failed = each(routes, async |node| {
        let (namespace, kind) = MOUNTED;
        let mut volumes = Vec::new();
        for resource in resources::list(node, namespace, kind).await? {
            volumes.extend(mounted(&resources::spec(&resource)?));
        }
        if let Some(wanted) = &args.volume {
            volumes.retain(|volume| volume.id == *wanted);
            if volumes.is_empty() {
                return Err(Trouble::Said(format!(
                    "no file system of the volume {wanted:?} is mounted; `get volumestatus` lists the volumes"
                )));
            }
        }
        for volume in &mut volumes {
            let path = volume.target.clone();
            let request = node.brief(StorageServiceStatfsRequest { path });
            let mut client = node.client::<FileSystems>();
            volume.usage = client.statfs(request).await?.into_inner();
        }
        good.push((node.name.clone(), volumes));
        Ok(())
    })
    .await?;
    let answers = Answers { good, failed };
    show(
        answers,
        &args.output.output,
        |nodes| table(nodes, args).render(),
        |volumes| fields(volumes),
    )
}

/// The volume of a mount; `None` for a mount without a file system or a visible place of its own.
fn mounted(spec: &Value) -> Option<Volume> {
    let text = |path| spec.pointer(path).and_then(Value::as_str);
    let source = text("/source").filter(|source| !source.is_empty())?;
    if spec.pointer("/detached") == Some(&Value::Bool(true)) {
        return None;
    }
    Some(Volume {
        id: text("/spec/volumeID").unwrap_or_default().to_owned(),
        source: source.to_owned(),
        target: text("/target")?.to_owned(),
        usage: Statfs::default(),
    })
}

fn table(nodes: &[(String, Vec<Volume>)], args: &DiskFree) -> Table {
    let mut table = Table::new(if args.inodes { INODES } else { BYTES });
    let bytes = |bytes: u64| match args.bytes {
        true => bytes.to_string(),
        false => units::binary_size(bytes),
    };
    let count = |count: u64| match args.bytes {
        true => count.to_string(),
        false => units::count(count),
    };
    for (node, volumes) in nodes {
        for volume in volumes {
            let usage = &volume.usage;
            let numbers = if args.inodes {
                [
                    count(usage.inodes),
                    count(usage.inodes_used),
                    count(usage.inodes_free),
                    percent(usage.inodes_used, usage.inodes),
                ]
            } else {
                // The file system's reserve is neither used nor available.
                let both = usage.used.saturating_add(usage.available);
                [
                    bytes(usage.size),
                    bytes(usage.used),
                    bytes(usage.available),
                    percent(usage.used, both),
                ]
            };
            let front = [node, &volume.id, &volume.source].map(String::clone);
            let back = [volume.target.clone()];
            table.row(front.into_iter().chain(numbers).chain(back));
        }
    }
    table
}

/// Whole percent, rounded up; `-` if the total is zero.
fn percent(used: u64, all: u64) -> String {
    match all {
        0 => "-".to_owned(),
        _ => {
            let percent = (u128::from(used) * 100).div_ceil(u128::from(all));
            format!("{percent}%")
        }
    }
}

fn fields(volumes: &[Volume]) -> Value {
    let volumes = volumes.iter().map(|volume| {
        let usage = &volume.usage;
        json!({
            "volume": volume.id,
            "filesystem": volume.source,
            "mountPoint": volume.target,
            "size": usage.size,
            "used": usage.used,
            "available": usage.available,
            "inodes": usage.inodes,
            "inodesUsed": usage.inodes_used,
            "inodesFree": usage.inodes_free,
        })
    });
    json!({ "volumes": volumes.collect::<Vec<_>>() })
}

#[cfg(test)]
mod tests {
    use corten_client::flags::Output;

    use super::*;

    fn args(inodes: bool, bytes: bool) -> DiskFree {
        DiskFree {
            volume: None,
            bytes,
            inodes,
            output: Output::default(),
        }
    }

    #[test]
    fn mounts_without_a_file_system_of_their_own_are_left_out() {
        let mount = |source: &str, detached: bool| {
            mounted(&json!({
                "spec": {"volumeID": "EPHEMERAL"}, "source": source, "target": "/var", "detached": detached,
            }))
        };
        let volume = mount("/dev/vda6", false).unwrap();
        assert_eq!((&*volume.id, &*volume.target), ("EPHEMERAL", "/var"));
        assert_eq!((mount("", false), mount("/dev/vda6", true)), (None, None));
        assert_eq!(mounted(&Value::Null), None);
    }

    #[test]
    fn sizes_and_inodes_are_shown_as_df_does() {
        let volume = Volume {
            id: "STATE".into(),
            source: "/dev/vda5".into(),
            target: "/system/state".into(),
            usage: Statfs {
                size: 100 << 20,
                used: 7 << 20,
                available: 93 << 20,
                inodes: 52_400,
                inodes_used: 9,
                inodes_free: 52_391,
            },
        };
        let nodes = [("n".to_owned(), vec![volume])];
        let expected = "\
NODE   VOLUME   FILESYSTEM   SIZE     USED     AVAILABLE   USAGE   MOUNT POINT
n      STATE    /dev/vda5    100MiB   7.0MiB   93MiB       7%      /system/state
";
        assert_eq!(table(&nodes, &args(false, false)).render(), expected);
        let inodes = table(&nodes, &args(true, false)).render();
        assert!(inodes.contains("52.4K    9       52.4K   1% "), "{inodes}");
        let exact = table(&nodes, &args(false, true)).render();
        assert!(exact.contains("104857600   7340032   97517568"), "{exact}");
        assert_eq!(fields(&nodes[0].1)["volumes"][0]["inodesUsed"], 9);
    }

    #[test]
    fn percents_are_rounded_up() {
        assert_eq!(percent(0, 0), "-");
        assert_eq!(percent(0, 5), "0%");
        assert_eq!(percent(1, 1000), "1%");
        assert_eq!(percent(u64::MAX, u64::MAX), "100%");
    }
}
