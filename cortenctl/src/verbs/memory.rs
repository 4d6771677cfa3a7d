//! `memory`: memory usage of nodes.

use corten_api::machine::{MemInfo, Memory};
use corten_client::answers::ask;
use corten_client::clients::Machine;
use corten_client::connect::Route;
use corten_client::failure::Failure;
use corten_client::output::show;
use corten_client::table::{Table, printable};
use serde_json::{Value, json};

use crate::cli::Memory as Args;

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

/// The name of a number in the verbose form, and the number, which the kernel reports in kB.
type Number = (&'static str, fn(&MemInfo) -> u64);

/// In the order and with the names that readers of the verbose form expect.
const KILOBYTES: &[Number] = &[
    ("MemTotal", |m| m.memtotal),
    ("MemFree", |m| m.memfree),
    ("MemAvailable", |m| m.memavailable),
    ("Buffers", |m| m.buffers),
    ("Cached", |m| m.cached),
    ("SwapCached", |m| m.swapcached),
    ("Active", |m| m.active),
    ("Inactive", |m| m.inactive),
    ("ActiveAnon", |m| m.activeanon),
    ("InactiveAnon", |m| m.inactiveanon),
    ("ActiveFile", |m| m.activefile),
    ("InactiveFile", |m| m.inactivefile),
    ("Unevictable", |m| m.unevictable),
    ("Mlocked", |m| m.mlocked),
    ("SwapTotal", |m| m.swaptotal),
    ("SwapFree", |m| m.swapfree),
    ("Dirty", |m| m.dirty),
    ("Writeback", |m| m.writeback),
    ("AnonPages", |m| m.anonpages),
    ("Mapped", |m| m.mapped),
    ("Shmem", |m| m.shmem),
    ("Slab", |m| m.slab),
    ("SReclaimable", |m| m.sreclaimable),
    ("SUnreclaim", |m| m.sunreclaim),
    ("KernelStack", |m| m.kernelstack),
    ("PageTables", |m| m.pagetables),
    ("NFSUnstable", |m| m.nfsunstable),
    ("Bounce", |m| m.bounce),
    ("WritebackTmp", |m| m.writebacktmp),
    ("CommitLimit", |m| m.commitlimit),
    ("CommittedAS", |m| m.committedas),
    ("VmallocTotal", |m| m.vmalloctotal),
    ("VmallocUsed", |m| m.vmallocused),
    ("VmallocChunk", |m| m.vmallocchunk),
    ("HardwareCorrupted", |m| m.hardwarecorrupted),
    ("AnonHugePages", |m| m.anonhugepages),
    ("ShmemHugePages", |m| m.shmemhugepages),
    ("ShmemPmdMapped", |m| m.shmempmdmapped),
    ("CmaTotal", |m| m.cmatotal),
    ("CmaFree", |m| m.cmafree),
    ("Hugepagesize", |m| m.hugepagesize),
    ("DirectMap4k", |m| m.directmap4k),
    ("DirectMap2M", |m| m.directmap2m),
    ("DirectMap1G", |m| m.directmap1g),
];

/// Numbers of pages, in the same layout.
const COUNTS: &[Number] = &[
    ("HugePagesTotal", |m| m.hugepagestotal),
    ("HugePagesFree", |m| m.hugepagesfree),
    ("HugePagesRsvd", |m| m.hugepagesrsvd),
    ("HugePagesSurp", |m| m.hugepagessurp),
];

pub(crate) async fn run(routes: Vec<Route>, args: &Args) -> Result<(), Failure> {
    let answers = ask(routes, (), |mut client: Machine, request| async move {
        client.memory(request).await
    })
    .await?;
    let format = &args.output.output;
    if args.verbose {
        return show(answers, format, everything, |message| {
            all_fields(&message.meminfo.unwrap_or_default())
        });
    }
    let table = |all: &[(String, Memory)]| table(all).render();
    show(answers, format, table, |message| {
        fields(&message.meminfo.unwrap_or_default())
    })
}

/// A line for each number of each node.
fn everything(messages: &[(String, Memory)]) -> String {
    let mut text = String::new();
    for (node, message) in messages {
        let info = message.meminfo.unwrap_or_default();
        text.push_str(&format!("NODE: {}\n", printable(node)));
        for (name, number) in KILOBYTES {
            text.push_str(&format!("{name}: {} kB\n", number(&info)));
        }
        for (name, number) in COUNTS {
            text.push_str(&format!("{name}: {}\n", number(&info)));
        }
    }
    text
}

/// All numbers with the same names, in bytes; numbers of pages as they are.
fn all_fields(info: &MemInfo) -> Value {
    let bytes = KILOBYTES
        .iter()
        .map(|(name, number)| (*name, number(info).saturating_mul(1024)));
    let counts = COUNTS.iter().map(|(name, number)| (*name, number(info)));
    let all = bytes.chain(counts);
    Value::Object(all.map(|(name, n)| (name.to_owned(), json!(n))).collect())
}

/// The columns in kB, as the kernel counts: total, used, free, shared, buffers,
/// cache, available.
fn columns(info: &MemInfo) -> [(&'static str, u64); 7] {
    // The numbers of a busy kernel may be inconsistent, hence the saturating subtraction.
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

/// The columns in bytes.
fn fields(info: &MemInfo) -> Value {
    let columns = columns(info);
    let bytes =
        columns.map(|(name, kilobytes)| (name.to_owned(), json!(kilobytes.saturating_mul(1024))));
    Value::Object(bytes.into_iter().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A message with these columns in MB.
    fn node(name: &str, mb: [u64; 7]) -> (String, Memory) {
        let [total, used, free, shared, buffers, cache, available] = mb;
        // The columns are rounded down, so that they miss up to 3 MB of the total. A third of that
        // in each of the three parts gives exactly these columns.
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

    // Numbers and layout are those of the reference's documents.

    #[test]
    fn table_of_one_node() {
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
    fn table_of_several_nodes() {
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
    fn documents_count_bytes_and_used_memory_never_underflows() {
        let info = MemInfo {
            memtotal: 10,
            memfree: 20,
            ..Default::default()
        };
        let fields = fields(&info);
        assert_eq!(fields["total"], 10_240);
        assert_eq!(fields["used"], 0);
        let all = all_fields(&MemInfo {
            hugepagestotal: 3,
            ..info
        });
        assert_eq!(all["MemTotal"], 10_240);
        assert_eq!(all["HugePagesTotal"], 3);
    }

    #[test]
    fn the_verbose_form_has_every_number_once() {
        let text = everything(&[node("n", [30, 9, 9, 1, 4, 8, 9])]);
        assert!(text.starts_with("NODE: n\nMemTotal: 30720 kB\n"), "{text}");
        assert!(text.ends_with("HugePagesSurp: 0\n"), "{text}");
        let names = text.lines().filter_map(|line| line.split(':').next());
        let names: std::collections::BTreeSet<&str> = names.collect();
        assert_eq!(names.len(), 1 + KILOBYTES.len() + COUNTS.len());
        assert_eq!(text.lines().count(), names.len());
    }
}
