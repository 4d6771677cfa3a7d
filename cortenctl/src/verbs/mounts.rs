//! `mounts`: filesystems and their usage.

use corten_api::machine::Mounts;
use corten_client::answers::ask;
use corten_client::clients::Machine;
use corten_client::connect::Route;
use corten_client::failure::Failure;
use corten_client::format::Format;
use corten_client::output::show;
use corten_client::table::Table;
use serde_json::{Value, json};

const HEADER: &[&str] = &[
    "NODE",
    "FILESYSTEM",
    "SIZE(GB)",
    "USED(GB)",
    "AVAILABLE(GB)",
    "PERCENT USED",
    "MOUNTED ON",
];

pub(crate) async fn run(routes: Vec<Route>, format: &Format) -> Result<(), Failure> {
    let answers = ask(routes, (), |mut client: Machine, request| async move {
        client.mounts(request).await
    })
    .await?;
    show(answers, format, |all| table(all).render(), fields)
}

/// Omits filesystems without a size, such as proc, like the reference client; the other formats
/// have them.
pub(super) fn table(messages: &[(String, Mounts)]) -> Table {
    let mut table = Table::new(HEADER);
    for (node, message) in messages {
        for stat in message.stats.iter().filter(|stat| stat.size > 0) {
            let gigabytes = |bytes: u64| format!("{:.2}", bytes as f64 * 1e-9);
            let used = stat.size.saturating_sub(stat.available);
            let percent = 100.0 * (used as f64 / stat.size as f64);
            table.row([
                node.clone(),
                stat.filesystem.clone(),
                gigabytes(stat.size),
                gigabytes(used),
                gigabytes(stat.available),
                format!("{percent:.2}%"),
                stat.mounted_on.clone(),
            ]);
        }
    }
    table
}

fn fields(message: &Mounts) -> Value {
    let stats = message.stats.iter().map(|stat| {
        json!({
            "filesystem": stat.filesystem,
            "size": stat.size,
            "available": stat.available,
            "mountedOn": stat.mounted_on,
        })
    });
    json!({ "mounts": stats.collect::<Vec<_>>() })
}

#[cfg(test)]
mod tests {
    use corten_api::machine::MountStat;

    use super::*;

    #[test]
    fn sizes_are_in_gigabytes_and_empty_filesystems_are_left_out() {
        let stat = |filesystem: &str, size, available, mounted_on: &str| MountStat {
            filesystem: filesystem.into(),
            size,
            available,
            mounted_on: mounted_on.into(),
        };
        let stats = vec![
            stat("/dev/vda6", 10_000_000_000, 2_500_000_000, "/var"),
            stat("proc", 0, 0, "/proc"),
            stat("tmpfs", 1_000_000, 1_000_000, "/run"),
        ];
        let messages = [(
            "n".to_owned(),
            Mounts {
                metadata: None,
                stats,
            },
        )];
        let expected = "\
NODE   FILESYSTEM   SIZE(GB)   USED(GB)   AVAILABLE(GB)   PERCENT USED   MOUNTED ON
n      /dev/vda6    10.00      7.50       2.50            75.00%         /var
n      tmpfs        0.00       0.00       0.00            0.00%          /run
";
        assert_eq!(table(&messages).render(), expected);
        assert_eq!(
            fields(&messages[0].1)["mounts"].as_array().unwrap().len(),
            3
        );
    }
}
