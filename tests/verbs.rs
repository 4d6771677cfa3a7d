//! Promise: a node answers the verbs that look at it with the headers existing
//! scripts read, and names what is wrong with what it refuses.

use std::fs;
use std::path::Path;

use tests::client::Table;
use tests::images;
use tests::node::{Node, SOON};

/// Verbs with a table, and its headers.
const TABLES: [(&[&str], &[&str]); 17] = [
    (&["list", "/"], &["NODE", "NAME"]),
    (
        &["list", "-l", "/etc"],
        &[
            "NODE", "MODE", "UID", "GID", "SIZE(B)", "LASTMOD", "LABEL", "NAME",
        ],
    ),
    (&["usage", "/etc"], &["SIZE", "NAME"]),
    (
        &["netstat", "-l", "-t"],
        &[
            "NODE",
            "Proto",
            "Recv-Q",
            "Send-Q",
            "Local Address",
            "Foreign Address",
            "State",
        ],
    ),
    (
        &["containers"],
        &["NODE", "NAMESPACE", "ID", "IMAGE", "PID", "STATUS"],
    ),
    (
        &["containers", "-k"],
        &["NODE", "NAMESPACE", "ID", "IMAGE", "PID", "STATUS"],
    ),
    (
        &["stats"],
        &["NODE", "NAMESPACE", "ID", "MEMORY(MB)", "CPU"],
    ),
    (
        &["image", "list"],
        &["NODE", "IMAGE", "DIGEST", "SIZE", "LABELS", "CREATED"],
    ),
    (
        &["processes"],
        &[
            "NODE", "PID", "STATE", "THREADS", "CPU-TIME", "VIRTMEM", "RESMEM", "LABEL", "COMMAND",
        ],
    ),
    (
        &["mounts"],
        &[
            "NODE",
            "FILESYSTEM",
            "SIZE(GB)",
            "USED(GB)",
            "AVAILABLE(GB)",
            "PERCENT USED",
            "MOUNTED ON",
        ],
    ),
    (
        &["diskfree"],
        &[
            "NODE",
            "VOLUME",
            "FILESYSTEM",
            "SIZE",
            "USED",
            "AVAILABLE",
            "USAGE",
            "MOUNT POINT",
        ],
    ),
    (
        &["memory"],
        &[
            "NODE",
            "TOTAL",
            "USED",
            "FREE",
            "SHARED",
            "BUFFERS",
            "CACHE",
            "AVAILABLE",
        ],
    ),
    (
        &["cgroups"],
        &[
            "NODE",
            "NAME",
            "MemCurrent",
            "MemPeak",
            "MemLow",
            "Peak/Low",
            "MemHigh",
            "MemMin",
            "Current/Min",
            "MemMax",
        ],
    ),
    (
        &["service"],
        &[
            "NODE",
            "SERVICE",
            "STATE",
            "HEALTH",
            "LAST CHANGE",
            "LAST EVENT",
        ],
    ),
    (
        &["get", "links"],
        &[
            "NODE",
            "NAMESPACE",
            "TYPE",
            "ID",
            "VERSION",
            "ALIAS",
            "TYPE",
            "KIND",
            "HW ADDR",
            "OPER STATE",
            "LINK STATE",
        ],
    ),
    (
        &["get", "sbom"],
        &[
            "NODE",
            "NAMESPACE",
            "TYPE",
            "ID",
            "VERSION",
            "VERSION",
            "LICENSE",
            "EXTENSION",
        ],
    ),
    (
        &["get", "extensions"],
        &[
            "NODE",
            "NAMESPACE",
            "TYPE",
            "ID",
            "VERSION",
            "NAME",
            "VERSION",
        ],
    ),
];

/// Verbs a node refuses, and what it must say.
const REFUSALS: [(&[&str], &str); 8] = [
    (&["read", "/proc/kmsg"], "/proc/kmsg"),
    (&["read", "/no/such/file"], "/no/such/file"),
    (&["diskfree", "EPHEMERAL"], "\"EPHEMERAL\" is mounted"),
    (&["service", "apid", "stop"], "\"apid\" is not one"),
    (&["service", "udevd", "restart"], "\"udevd\" is not one"),
    (
        &["image", "remove", "example.org/none:1"],
        "\"example.org/none:1\"",
    ),
    (&["etcd", "members"], "waits for etcd"),
    (&["time", "--check", "/dev/rtc0"], "\"/dev/rtc0\""),
];

/// What a command wrote to standard error before it failed.
fn said(error: &str) -> &str {
    let (_, said) = error.split_once("exit status: 1: ").unwrap_or_default();
    said
}

#[test]
#[ignore = "make test-vm"]
fn verbs_that_look_are_answered_by_a_node() {
    let boot = images::direct();
    let node = Node::start("verbs", |m| m.direct(boot));
    node.configure();
    let admin = node.admin();
    node.until("containerd", SOON, || admin.call(&["containers"]));
    let mut wrong = Vec::new();
    for (arguments, headers) in TABLES {
        match admin.call(arguments) {
            Ok(text) if Table::parse(&text).headers == headers => {}
            Ok(text) => wrong.push(format!("{arguments:?} shows:\n{text}")),
            Err(error) => wrong.push(format!("{arguments:?} fails: {error}")),
        }
    }
    for (arguments, word) in REFUSALS {
        match admin.call(arguments) {
            // What comes before is the command, which has the word too.
            Err(error) if said(&error).contains(word) => {}
            other => wrong.push(format!("{arguments:?} ends with {other:?}")),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));

    let graph = node.ask(&admin, &["inspect", "dependencies"], SOON);
    assert!(graph.starts_with("digraph "), "{graph}");
    let release = node.ask(&admin, &["read", "/etc/os-release"], SOON);
    assert!(release.contains("corten"), "{release}");
    let copied = node.vm.dir().join("copied");
    let target = copied.display().to_string();
    node.ask(&admin, &["copy", "/etc", &target], SOON);
    let switch = node.ask(&admin, &["read", "/etc/nsswitch.conf"], SOON);
    let found = fs::read_to_string(copied.join("nsswitch.conf"));
    assert_eq!(found.expect("a copied file"), switch);
    // A link is copied as one, wherever it leads.
    let link = fs::read_link(copied.join("os-release"));
    assert_eq!(link.expect("a link"), Path::new("../usr/lib/os-release"));

    let bundle = node.vm.dir().join("support.zip");
    let bundle_path = bundle.display().to_string();
    node.ask(&admin, &["support", "-O", &bundle_path], SOON);
    let zip = fs::read(&bundle).expect("the bundle");
    assert!(zip.starts_with(b"PK"), "no zip");
}
