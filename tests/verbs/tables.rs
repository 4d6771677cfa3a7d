//! Verbs that print a table, with the expected content on a node booted from a kernel and an
//! initramfs.

use super::shown::Cell::{
    Any, Decimal, Digest, Limit, Mode, Moment, Node, Of, Percent, Size, Text, Whole, Word,
};
use super::shown::{Cell, Shown};

const STATES: &[&str] = &["R", "S", "D", "Z", "T", "t", "X", "I"];
const TCP: &[&str] = &["tcp", "tcp6"];
/// States of a service (`machine.proto`, `ServiceInfo`).
const SERVICE: &[&str] = &[
    "Initialized",
    "Preparing",
    "Waiting",
    "Starting",
    "Running",
    "Stopping",
    "Finished",
    "Failed",
    "Skipped",
];

pub const TABLES: &[Shown] = &[
    Shown {
        verb: &["list", "/"],
        columns: &[("NODE", Node), ("NAME", Text)],
        row: &[("NAME", "etc")],
    },
    Shown {
        verb: &["list", "-l", "/etc"],
        columns: &[
            ("NODE", Node),
            ("MODE", Mode),
            ("UID", Whole),
            ("GID", Whole),
            ("SIZE(B)", Whole),
            ("LASTMOD", Text),
            ("LABEL", Any),
            ("NAME", Text),
        ],
        row: &[
            ("UID", "0"),
            ("GID", "0"),
            ("NAME", "os-release -> ../usr/lib/os-release"),
        ],
    },
    Shown {
        verb: &["usage", "/etc"],
        columns: &[("SIZE", Whole), ("NAME", Text)],
        row: &[("NAME", ".")],
    },
    Shown {
        verb: &["netstat", "-l", "-t"],
        columns: &[
            ("NODE", Node),
            ("Proto", Of(TCP)),
            ("Recv-Q", Whole),
            ("Send-Q", Whole),
            ("Local Address", Word),
            ("Foreign Address", Word),
            ("State", Of(&["LISTEN"])),
        ],
        // apid's socket.
        row: &[("Local Address", ":::50000"), ("Foreign Address", ":::*")],
    },
    Shown {
        verb: &["containers"],
        columns: CONTAINERS,
        row: &[],
    },
    Shown {
        verb: &["containers", "-k"],
        columns: CONTAINERS,
        row: &[],
    },
    Shown {
        verb: &["stats"],
        columns: STATS,
        row: &[],
    },
    Shown {
        verb: &["image", "list"],
        columns: &[
            ("NODE", Node),
            ("IMAGE", Word),
            ("DIGEST", Digest),
            ("SIZE", Size),
            ("LABELS", Any),
            ("CREATED", Moment),
        ],
        row: &[],
    },
    Shown {
        verb: &["processes"],
        columns: &[
            ("NODE", Node),
            ("PID", Whole),
            ("STATE", Of(STATES)),
            ("THREADS", Whole),
            ("CPU-TIME", Decimal),
            ("VIRTMEM", Size),
            ("RESMEM", Size),
            ("LABEL", Any),
            ("COMMAND", Text),
        ],
        // The first kernel thread.
        row: &[
            ("PID", "2"),
            ("THREADS", "1"),
            ("VIRTMEM", "0 B"),
            ("RESMEM", "0 B"),
            ("COMMAND", "kthreadd"),
        ],
    },
    Shown {
        verb: &["mounts"],
        columns: &[
            ("NODE", Node),
            ("FILESYSTEM", Text),
            ("SIZE(GB)", Decimal),
            ("USED(GB)", Decimal),
            ("AVAILABLE(GB)", Decimal),
            ("PERCENT USED", Percent),
            ("MOUNTED ON", Text),
        ],
        row: &[("MOUNTED ON", "/")],
    },
    Shown {
        verb: &["diskfree"],
        columns: &[
            ("NODE", Node),
            ("VOLUME", Text),
            ("FILESYSTEM", Text),
            ("SIZE", Size),
            ("USED", Size),
            ("AVAILABLE", Size),
            ("USAGE", Percent),
            ("MOUNT POINT", Text),
        ],
        row: &[],
    },
    Shown {
        verb: &["memory"],
        columns: &[
            ("NODE", Node),
            ("TOTAL", Whole),
            ("USED", Whole),
            ("FREE", Whole),
            ("SHARED", Whole),
            ("BUFFERS", Whole),
            ("CACHE", Whole),
            ("AVAILABLE", Whole),
        ],
        row: &[("NODE", "127.0.0.1")],
    },
    Shown {
        verb: &["cgroups"],
        columns: &[
            ("NODE", Node),
            ("NAME", Text),
            ("MemCurrent", Limit),
            ("MemPeak", Limit),
            ("MemLow", Limit),
            ("Peak/Low", Limit),
            ("MemHigh", Limit),
            ("MemMin", Limit),
            ("Current/Min", Limit),
            ("MemMax", Limit),
        ],
        // The root cgroup has no limits (cgroup-v2.rst).
        row: &[("NAME", "."), ("MemMax", "unset"), ("Peak/Low", "-")],
    },
    Shown {
        verb: &["service"],
        columns: &[
            ("NODE", Node),
            ("SERVICE", Word),
            ("STATE", Of(SERVICE)),
            ("HEALTH", Of(&["OK", "Fail", "?"])),
            ("LAST CHANGE", Any),
            ("LAST EVENT", Text),
        ],
        row: &[("SERVICE", "apid"), ("STATE", "Running")],
    },
    Shown {
        verb: &["get", "links"],
        columns: &[
            ("NODE", Node),
            ("NAMESPACE", Of(&["network"])),
            ("TYPE", Of(&["LinkStatus"])),
            ("ID", Word),
            ("VERSION", Whole),
            ("ALIAS", Any),
            ("TYPE", Word),
            ("KIND", Any),
            ("HW ADDR", Any),
            ("OPER STATE", Word),
            ("LINK STATE", Of(&["true", "false"])),
        ],
        row: &[("ID", "lo"), ("TYPE", "loopback")],
    },
    Shown {
        verb: &["get", "sbom"],
        columns: &[
            ("NODE", Node),
            ("NAMESPACE", Word),
            ("TYPE", Word),
            ("ID", Text),
            ("VERSION", Whole),
            ("VERSION", Any),
            ("LICENSE", Any),
            ("EXTENSION", Any),
        ],
        row: &[],
    },
    Shown {
        verb: &["get", "extensions"],
        columns: &[
            ("NODE", Node),
            ("NAMESPACE", Word),
            ("TYPE", Word),
            ("ID", Word),
            ("VERSION", Whole),
            ("NAME", Word),
            ("VERSION", Word),
        ],
        row: &[],
    },
];

const CONTAINERS: &[(&str, Cell)] = &[
    ("NODE", Node),
    ("NAMESPACE", Of(&["system", "k8s.io"])),
    ("ID", Text),
    ("IMAGE", Any),
    ("PID", Whole),
    ("STATUS", Word),
];

const STATS: &[(&str, Cell)] = &[
    ("NODE", Node),
    ("NAMESPACE", Of(&["system", "k8s.io"])),
    ("ID", Text),
    ("MEMORY(MB)", Decimal),
    ("CPU", Whole),
];

/// The comparison of a node's clock with its server's.
pub const TIME: Shown = Shown {
    verb: &["time", "--check"],
    columns: &[
        ("NODE", Node),
        ("NTP-SERVER", Word),
        ("NODE-TIME", Moment),
        ("NTP-SERVER-TIME", Moment),
    ],
    row: &[("NODE", "127.0.0.1")],
};
