//! `memory`: who uses how much.

use corten_api::machine::{MemInfo, Memory};
use serde_json::{Value, json};

use crate::answers::ask;
use crate::clients::Machine;
use crate::connect::Route;
use crate::failure::Failure;
use crate::table::{Format, Table};

const HEADER: &[&str] = &[
    "NODE",
    "TOTAL",
    "USED",
    "FREE",
    "SHARED",
    "BUFFERS",
    "CACHE",
    "AVAILABLE",
];

pub(crate) async fn run(routes: Vec<Route>, format: Format) -> Result<(), Failure> {
    let answers = ask(routes, (), |mut client: Machine, request| async move {
        client.memory(request).await
    })
    .await?;
    super::show(answers, format, table, |message| {
        fields(&message.meminfo.unwrap_or_default())
    })
}

/// The columns in kB, as the kernel counts: total, used, free, shared, buffers,
/// cache, available.
fn columns(info: &MemInfo) -> [(&'static str, u64); 7] {
    // A busy kernel's numbers need not add up.
    let used = info
        .memtotal
        .saturating_sub(info.memfree)
        .saturating_sub(info.cached)
        .saturating_sub(info.buffers);
    [
        ("total", info.memtotal),
        ("used", used),
        ("free", info.memfree),
        ("shared", info.shmem),
        ("buffers", info.buffers),
        ("cache", info.cached),
        ("available", info.memavailable),
    ]
}

fn table(messages: &[(String, Memory)]) -> Table {
    let mut table = Table::new(HEADER);
    for (node, message) in messages {
        let columns = columns(&message.meminfo.unwrap_or_default());
        let cells = columns
            .iter()
            .map(|(_, kilobytes)| (kilobytes / 1024).to_string());
        table.row(std::iter::once(node.clone()).chain(cells));
    }
    table
}

/// The same in bytes.
fn fields(info: &MemInfo) -> Value {
    let columns = columns(info);
    let bytes =
        columns.map(|(name, kilobytes)| (name.to_owned(), json!(kilobytes.saturating_mul(1024))));
    Value::Object(bytes.into_iter().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A message whose columns are these numbers of MB.
    fn node(name: &str, mb: [u64; 7]) -> (String, Memory) {
        let [total, used, free, shared, buffers, cache, available] = mb;
        // The columns are rounded down, so they miss up to 3 MB of the total:
        // a third of that in each of the three parts gives exactly them.
        let slack = total - used - free - buffers - cache;
        assert!(slack < 4, "{slack}");
        let kb = |mb: u64| mb * 1024;
        let part = |mb: u64| kb(mb) + slack * 341;
        let info = MemInfo {
            memtotal: kb(total),
            memfree: part(free),
            shmem: kb(shared),
            buffers: part(buffers),
            cached: part(cache),
            memavailable: kb(available),
            ..Default::default()
        };
        (
            name.to_owned(),
            Memory {
                metadata: None,
                meminfo: Some(info),
            },
        )
    }

    // The numbers and the layout are those of the seed documents.

    #[test]
    fn one_node() {
        let messages = [node(
            "cluster.talos.dev",
            [7938, 1768, 2390, 145, 53, 3724, 6571],
        )];
        let expected = "\
NODE                TOTAL   USED   FREE   SHARED   BUFFERS   CACHE   AVAILABLE
cluster.talos.dev   7938    1768   2390   145      53        3724    6571
";
        assert_eq!(table(&messages).render(), expected);
    }

    #[test]
    fn several_nodes() {
        let messages = [
            node("node01", [7938, 871, 4071, 137, 49, 2945, 7042]),
            node(
                "node02",
                [257_844, 14408, 190_796, 18138, 49, 52589, 227_492],
            ),
            node("node03", [257_844, 1830, 255_186, 125, 49, 777, 254_556]),
        ];
        let expected = "\
NODE     TOTAL    USED    FREE     SHARED   BUFFERS   CACHE   AVAILABLE
node01   7938     871     4071     137      49        2945    7042
node02   257844   14408   190796   18138    49        52589   227492
node03   257844   1830    255186   125      49        777     254556
";
        assert_eq!(table(&messages).render(), expected);
    }

    #[test]
    fn documents_count_in_bytes_and_nothing_underflows() {
        let info = MemInfo {
            memtotal: 10,
            memfree: 20,
            ..Default::default()
        };
        let fields = fields(&info);
        assert_eq!(fields["total"], 10_240);
        assert_eq!(fields["used"], 0);
    }
}
