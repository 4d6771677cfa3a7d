//! Promise: a node has the time of its servers. It sets the clock at once, steers it later, and
//! accepts a jump when two answers agree on it.
#![expect(
    clippy::indexing_slicing,
    reason = "a field that is missing is a failing test"
)]

use std::time::Duration;

use tests::client::Client;
use tests::disk::NodeDisk;
use tests::node::{Node, ORDERLY, SOON};
use tests::sntp::TimeServer;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

const HOUR: i64 = 3_600_000;
/// Two queries are up to some minutes apart, and a jump takes two.
const NEXT_ANSWERS: Duration = Duration::from_secs(600);

/// The value of a resource's field, as the node reports it.
fn field(client: &Client, of: &str, name: &str) -> Result<String, String> {
    let text = client.call(&["get", of, "-o", "yaml"])?;
    let mut lines = text.lines().map(str::trim);
    let value = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
    value.map(str::to_owned).ok_or(text.clone())
}

/// The clocks of node and server, read together by the node.
fn clocks(client: &Client, server: &TimeServer) -> Result<[OffsetDateTime; 2], String> {
    let server = server.seen_by_node().to_string();
    let said = client.call(&["time", "--check", &server, "-o", "json"])?;
    let said: serde_json::Value = said.parse().map_err(|error| format!("{error}: {said}"))?;
    let read = |name: &str| {
        let text = said[0][name].as_str().unwrap_or_default();
        OffsetDateTime::parse(text, &Rfc3339).map_err(|error| format!("{error}: {said}"))
    };
    Ok([read("nodeTime")?, read("serverTime")?])
}

/// Milliseconds by which the node's clock is behind the server's.
fn behind(client: &Client, server: &TimeServer) -> Result<i64, String> {
    let [node, server] = clocks(client, server)?;
    i64::try_from((server - node).whole_milliseconds()).map_err(|error| error.to_string())
}

fn until(node: &Node, what: &str, patience: Duration, holds: impl Fn() -> Result<bool, String>) {
    node.until(what, patience, || {
        holds()?.then_some(()).ok_or("not yet".to_owned())
    });
}

#[test]
#[ignore = "make test-vm"]
fn clock_is_set_and_steered_and_steps_only_after_confirmation() {
    let busy = TimeServer::busy();
    let server = TimeServer::ahead(HOUR);
    let node = NodeDisk::new("time", 4).start(|machine| machine);
    node.wait_maintenance();
    node.configure();
    let servers = format!("[{}, {}]", busy.seen_by_node(), server.seen_by_node());
    node.apply_patch(&format!("machine: {{time: {{servers: {servers}}}}}\n"));
    let admin = node.admin();
    let status = |name: &str| field(&admin, "timestatuses", name);
    let is = |name: &'static str, value: &'static str| move || Ok(status(name)? == value);
    // One of two answers is enough after a minute.
    until(
        &node,
        "a synchronised clock",
        SOON * 2,
        is("synced", "true"),
    );
    // The last answer may be old, and QEMU's clock is inaccurate.
    let is_close = || Ok(behind(&admin, &server)?.abs() < 150);
    until(&node, "the server's time", SOON, is_close);
    assert_eq!(status("epoch").as_deref(), Ok("0"));

    // An offset below 0.4 s is corrected without a jump.
    server.set_ahead(HOUR + 350);
    until(&node, "a clock that is steered", NEXT_ANSWERS, is_close);
    assert_eq!(status("epoch").as_deref(), Ok("0"));
    let console = node.vm.console().text();
    assert_eq!(console.matches("time: set by").count(), 1, "{console}");

    server.set_ahead(2 * HOUR);
    until(&node, "a jump", NEXT_ANSWERS, is("epoch", "1"));
    until(&node, "the server's time", SOON, is_close);
    // The node polls a busy server less often.
    assert!(busy.asked() < server.asked(), "{busy:?} {server:?}");
}

#[test]
#[ignore = "make test-vm"]
fn late_clock_is_raised_to_the_image_date_and_to_the_known_time() {
    let raised = "the clock was behind the image's date";
    let known = "the clock was behind the last time this node knew";
    let disk = NodeDisk::new("time-behind", 4);
    let node = disk.start(|machine| machine.clock("2001-01-01"));
    node.wait_maintenance();
    let console = node.vm.console().text();
    assert!(
        console.contains(raised) && !console.contains(known),
        "{console}"
    );
    node.configure();
    let server = TimeServer::ahead(HOUR);
    let servers = server.seen_by_node();
    node.apply_patch(&format!("machine: {{time: {{servers: ['{servers}']}}}}\n"));
    let admin = node.admin();
    let is_synced = || Ok(field(&admin, "timestatuses", "synced")? == "true");
    until(&node, "a synchronised clock", SOON, is_synced);
    node.ask(&admin, &["shutdown", "--wait=false"], SOON);
    node.wait_off(ORDERLY);
    drop(node);
    let node = disk.start(|machine| machine.clock("2001-01-01"));
    node.vm.wait_console(known, SOON).unwrap();
}
