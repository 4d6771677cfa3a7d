//! Promise: a node answers the read-only verbs with the headers that existing scripts read, and
//! carries out the changing verbs. A refusal has a precise reason.
#![expect(
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a failing step is a failing test"
)]

#[path = "verbs/shown.rs"]
mod shown;
#[path = "verbs/tables.rs"]
mod tables;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use serde_json::Value;
use tests::client::{CALL, Client, run, until};
use tests::disk::NodeDisk;
use tests::images;
use tests::node::{BOOT, Node, SOON};
use tests::sntp::TimeServer;

/// Calls that a node refuses, and a text of the refusal.
const REFUSALS: [(&[&str], &str); 14] = [
    (&["read", "/proc/kmsg"], "/proc/kmsg"),
    (&["read", "/no/such/file"], "/no/such/file"),
    (&["diskfree", "EPHEMERAL"], "\"EPHEMERAL\" is mounted"),
    (&["service", "apid", "stop"], "\"apid\" cannot be"),
    (&["service", "udevd", "restart"], "\"udevd\" cannot be"),
    (
        &["image", "remove", "example.org/none:1"],
        "\"example.org/none:1\"",
    ),
    (&["etcd", "members"], "this node has no etcd member"),
    (
        &["upgrade", "-i", "registry.example/installer:1"],
        "write the disk image of the new version",
    ),
    (&["rollback"], "write the disk image of the new version"),
    (&["wipe", "lv", "vg0/lv0"], "needs logical volumes"),
    (&["wipe", "md", "/dev/md0"], "needs software RAID"),
    (&["time", "--check", "/dev/rtc0"], "\"/dev/rtc0\""),
    // That address has no time server, and no other address is reachable from here.
    (&["time", "--check", "127.0.0.1"], "127.0.0.1"),
    (&["restart", "nothing"], "nothing"),
];

/// A failed command's standard error.
fn said(error: &str) -> &str {
    let (_, said) = error.split_once("exit status: 1: ").unwrap_or_default();
    said
}

/// The JSON output of a verb: a list, or a sequence of objects.
fn documents(text: &str) -> Result<Vec<Value>, serde_json::Error> {
    let mut found = Vec::new();
    for document in serde_json::Deserializer::from_str(text).into_iter() {
        match document? {
            Value::Array(items) => found.extend(items),
            one => found.push(one),
        }
    }
    Ok(found)
}

#[test]
#[ignore = "make test-vm"]
fn read_verbs_are_answered_by_a_node() {
    let boot = images::direct();
    let node = Node::start("verbs", |m| m.direct(boot));
    node.configure();
    let admin = node.admin();
    node.until("containerd", SOON, || admin.call(&["containers"]));
    let mut wrong = Vec::new();
    for table in tables::TABLES {
        let arguments = table.verb;
        match admin
            .call(arguments)
            .map(|text| (table.problems(&text), text))
        {
            Ok((problems, _)) if problems.is_empty() => {}
            Ok((problems, text)) => {
                let problems = problems.join("; ");
                wrong.push(format!("{arguments:?}: {problems}:\n{text}"));
            }
            Err(error) => wrong.push(format!("{arguments:?} fails: {error}")),
        }
    }
    let clock = TimeServer::ahead(0);
    let place = clock.seen_by_node().to_string();
    let told = node.ask(&admin, &[tables::TIME.verb, &[&place]].concat(), SOON);
    assert_eq!(tables::TIME.problems(&told), Vec::<String>::new(), "{told}");
    assert!(told.contains(&place) && clock.asked() > 0, "{told}");
    for (arguments, word) in REFUSALS {
        match admin.call(arguments) {
            // The text before the message is the command, which contains the word too.
            Err(error) if said(&error).contains(word) => {}
            other => wrong.push(format!("{arguments:?} ends with {other:?}")),
        }
    }
    for table in tables::TABLES {
        let arguments = table.verb;
        let json = [arguments, &["--output", "json"]].concat();
        // The booted image has no extensions; all other tables have rows.
        let may_be_empty = arguments == ["get", "extensions"];
        let all_there = |found: &[Value]| {
            found.iter().all(|one| one["node"].is_string()) && (may_be_empty || !found.is_empty())
        };
        match admin.call(&json).map(|text| documents(&text)) {
            Ok(Ok(found)) if all_there(&found) => {}
            other => wrong.push(format!("{json:?} ends with {other:?}")),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let path = ["version", "-o", "jsonpath={.os}"];
    assert_eq!(node.ask(&admin, &path, SOON), "linux\nlinux\n");
    let total = node.ask(&admin, &["memory", "-v"], SOON);
    assert!(total.contains("\nMemTotal: "), "{total}");

    node.apply_patch("machine: {time: {disabled: true}}");
    let health = admin.call(&["health", "--wait-timeout", "15s"]);
    let health = health.expect_err("no cluster was bootstrapped");
    for line in [
        "waiting for apid to be ready: OK",
        "waiting for etcd to be healthy: this node: it has no working etcd member",
    ] {
        assert!(health.contains(line), "{health}");
    }
    // The node's prerequisites are fulfilled now. The images are in a registry that is not
    // reachable.
    node.ask(&admin, &["bootstrap"], SOON);

    controllers_are_drawn(&node);
    let release = node.ask(&admin, &["read", "/etc/os-release"], SOON);
    assert!(release.contains("corten"), "{release}");
    let copied = node.vm.dir().join("copied");
    let target = copied.display().to_string();
    node.ask(&admin, &["copy", "/etc", &target], SOON);
    let switch = node.ask(&admin, &["read", "/etc/nsswitch.conf"], SOON);
    let found = fs::read_to_string(copied.join("nsswitch.conf"));
    assert_eq!(found.expect("a copied file"), switch);
    // A symbolic link is copied as a link, wherever it leads.
    let link = fs::read_link(copied.join("os-release"));
    assert_eq!(link.expect("a link"), Path::new("../usr/lib/os-release"));

    everything_is_collected(&node);
}

/// Checks the graph of controllers, with and without resources.
fn controllers_are_drawn(node: &Node) {
    let admin = node.admin();
    let graph = node.ask(&admin, &["inspect", "dependencies"], SOON);
    assert!(graph.starts_with("digraph "), "{graph}");
    // A type that controllers write and none reads.
    let drawn = ["inspect", "dependencies", "--with-resources"];
    let drawn = admin.call_within(SOON, &drawn);
    let drawn = drawn.unwrap_or_else(|error| panic!("{error}"));
    let note = r#""MachineTypes.config.talos.dev/machine-type" [shape=note"#;
    assert!(drawn.contains(note), "{drawn}");
}

/// Checks the zip file of `support`.
fn everything_is_collected(node: &Node) {
    let bundle = node.vm.dir().join("support.zip");
    let bundle_path = bundle.display().to_string();
    node.ask(&node.admin(), &["support", "-O", &bundle_path], SOON);
    let zip = fs::read(&bundle).expect("the bundle");
    assert!(zip.starts_with(b"PK"), "no zip");
    // File names are not compressed (APPNOTE.TXT, section 4.3.7).
    let audit = b"127.0.0.1/logs/audit.log";
    assert!(zip.windows(audit.len()).any(|part| part == audit));
}

/// The first line of a verb that runs until it is stopped.
fn first_line(client: &Client, arguments: &[&str]) -> String {
    let text = until(SOON, client.command(arguments), "", |text| {
        text.contains('\n')
    });
    let text = text.unwrap_or_else(|error| panic!("{error}"));
    text.lines().take(1).collect()
}

/// The kernel parameter that the test changes.
fn swappiness(node: &Node) -> String {
    let read = ["read", "/proc/sys/vm/swappiness"];
    node.ask(&node.admin(), &read, SOON).trim().to_owned()
}

#[test]
#[ignore = "make test-vm"]
fn action_verbs_are_carried_out_by_a_node() {
    let disk = NodeDisk::new("verbs-act", 4);
    let node = disk.start(|machine| machine);
    node.configure();
    node.mount("/var");
    // QEMU's network has no time server, and a node is ready only with a synchronised clock.
    node.apply_patch("machine: {time: {disabled: true}}");
    let admin = node.admin();

    admin.must(&["meta", "write", "0x4d", "kept by META"]);
    let shown = ["get", "meta", "-o", "jsonpath={.spec.value}"];
    assert!(admin.must(&shown).contains("kept by META"));
    admin.must(&["meta", "delete", "77"]);
    assert!(!admin.must(&shown).contains("kept by META"));
    let again = admin.call(&["meta", "delete", "77"]);
    let again = again.expect_err("it is deleted already");
    assert!(said(&again).contains("0x4d"), "{again}");

    admin.must(&[
        "patch",
        "mc",
        "-p",
        r#"machine: {sysctls: {vm.swappiness: "11"}}"#,
    ]);
    node.until("the patch", SOON, || match swappiness(&node) {
        found if found == "11" => Ok(()),
        other => Err(other),
    });
    let editor = node.vm.dir().join("editor");
    let script = "#!/bin/sh\nsed -i 's/\\(vm.swappiness: *\\).*/\\1\"12\"/' \"$1\"\n";
    fs::write(&editor, script).expect("an editor");
    fs::set_permissions(&editor, fs::Permissions::from_mode(0o755)).expect("an editor");
    let mut edit = admin.command(&["edit", "mc"]);
    edit.env_remove("VISUAL").env("EDITOR", &editor);
    run(edit, CALL).unwrap_or_else(|error| panic!("{error}"));
    node.until("the edited value", SOON, || match swappiness(&node) {
        found if found == "12" => Ok(()),
        other => Err(other),
    });

    let reader = node.vm.dir().join("reader");
    let path = reader.display().to_string();
    admin.must(&[
        "config",
        "new",
        &path,
        "--roles",
        "os:reader",
        "--crt-ttl",
        "1h",
    ]);
    let mode = fs::metadata(&reader)
        .expect("a client config")
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
    let reader = Client::with_config(node.vm.api(), &reader);
    node.ask(&reader, &["version"], SOON);
    let refused = reader.call(&["reboot", "--wait=false"]);
    let refused = refused.expect_err("a reader may not reboot");
    assert!(refused.contains("permission denied"), "{refused}");

    streams_are_shown_as_they_come(&node);
    the_dashboard_is_drawn(&node);

    // The command ends when the node is back and ready: the next call needs no retry.
    let boot = ["get", "bootid", "-o", "jsonpath={.spec.bootID}"];
    let before = admin.must(&boot);
    let rebooted = admin.call_within(BOOT, &["reboot"]);
    rebooted.unwrap_or_else(|error| panic!("{error}"));
    let after = admin.must(&boot);
    assert!(
        !before.trim().is_empty() && before != after,
        "{before}{after}"
    );
    admin.must(&["version"]);
    // Other clients wait for this event.
    let all = ["events", "--tail", "-1"];
    let ready = |text: &str| {
        let mut told = text
            .lines()
            .filter(|line| line.contains(" machine.MachineStatusEvent "));
        told.any(|line| line.contains(" RUNNING ") && !line.contains("not ready"))
    };
    let told = until(SOON, admin.command(&all), "", ready);
    told.unwrap_or_else(|error| panic!("{error}"));
}

/// Checks streams: events as objects on lines of their own, packets as text and as a file.
fn streams_are_shown_as_they_come(node: &Node) {
    let admin = node.admin();
    let event = first_line(&admin, &["events", "--tail", "-1", "-o", "json"]);
    let event: Value = serde_json::from_str(&event).expect("JSON on one line");
    assert!(
        event["id"].is_string() && event["event"].is_string(),
        "{event}"
    );

    // The answers to this call are packets themselves.
    let links = admin.must(&["get", "addresses", "-o", "jsonpath={.spec.linkName}"]);
    let link = links.lines().find(|name| !matches!(*name, "" | "lo"));
    let link = link.unwrap_or_else(|| panic!("only {links:?} have addresses"));
    let line = first_line(&admin, &["pcap", "-i", link]);
    assert!(line.contains(" > ") && line.ends_with(" bytes"), "{line}");
    let file = node.vm.dir().join("packets.pcap");
    let path = file.display().to_string();
    admin.must(&["pcap", "-i", link, "--duration", "5s", "-o", &path]);
    let packets = fs::read(&file).expect("a pcap file");
    assert!(packets.len() > 24, "{} bytes", packets.len());
    assert_eq!(packets[..4], 0xa1b2_c3d4_u32.to_ne_bytes());
}

/// Checks the dashboard on a terminal made by `script` (util-linux).
fn the_dashboard_is_drawn(node: &Node) {
    let dashboard = node.admin().command(&["dashboard"]);
    let words = std::iter::once(dashboard.get_program()).chain(dashboard.get_args());
    let words: Vec<String> = words
        .map(|word| format!("'{}'", word.to_string_lossy()))
        .collect();
    let line = format!("stty rows 40 cols 120 && exec {}", words.join(" "));
    let mut terminal = Command::new("script");
    terminal
        .args(["--quiet", "--return", "--flush", "--command", &line])
        .arg("/dev/null")
        .env("TERM", "xterm")
        .env("SHELL", "/bin/sh");
    // The node's version appears after its first answer.
    let drawn = until(SOON, terminal, "q", |screen| screen.contains("+corten"));
    drawn.unwrap_or_else(|error| panic!("{error}"));
}
