//! The time and the writes of an upgrade, from the call to the verdict.

use std::fmt::Write as _;
use std::fs;
use std::time::Instant;

use ::tests::node::Node;
use ::tests::write_log::WriteLog;
use ::tests::{images, upgrades};
use anyhow::Context as _;
use qemu::{Disk, DiskMode, Firmware};

use crate::document::Section;
use crate::measure::MEMORY_MIB;
use crate::report::{median, verdict};

/// The title of the section.
const TITLE: &str = "An upgrade";
/// Limit of docs/promises.md of the written bytes, in sizes of the installer: the node receives, stores and unpacks it,
/// and writes the image.
const LIMIT: f64 = 4.5;

/// One upgrade. Times are in seconds since the call.
#[derive(Debug, Clone, PartialEq)]
struct Upgrade {
    /// The node has the new version on its disk, and reboots.
    written: f64,
    /// The API of the new version answers.
    answer: f64,
    /// The new version is marked as good.
    good: f64,
    /// Bytes written to the disk between the call and the answer.
    bytes: u64,
    /// Size of the installer, in bytes.
    installer: u64,
}

/// Upgrades `rounds` new nodes, each to another image of its own version.
pub fn measure(rounds: usize) -> anyhow::Result<Section> {
    let mut upgrades = Vec::new();
    for round in 1..=rounds {
        let upgrade = upgrade()?;
        eprintln!("round {round}: {upgrade:?}");
        upgrades.push(upgrade);
    }
    let text = text(&upgrades);
    let title = TITLE.to_owned();
    Ok(Section { title, text })
}

fn upgrade() -> anyhow::Result<Upgrade> {
    let disk = upgrades::disk("bench-upgrade.raw");
    let node = Node::start("bench-upgrade", |machine| {
        let disk = Disk::raw(&disk).mode(DiskMode::Logged);
        machine
            .firmware(Firmware::Uefi)
            .disk(disk)
            .memory_mib(MEMORY_MIB)
    });
    upgrades::prepare(&node);
    let admin = node.admin();
    let boot = || admin.call(&["read", "/proc/sys/kernel/random/boot_id"]);
    let before = boot().map_err(anyhow::Error::msg)?;
    let log = qemu::log_of(&disk);
    let start = WriteLog::open(&log)?.entries.len();
    let file = images::image("-installer.tar");
    let began = Instant::now();
    let arguments = ["upgrade", "--wait=false", "--file"];
    let arguments = [&arguments[..], &[file.to_str().context("a path")?]].concat();
    let called = admin.call_within(upgrades::UPGRADE, &arguments);
    called.map_err(anyhow::Error::msg)?;
    let written = began.elapsed().as_secs_f64();
    node.until("the API of the new version", upgrades::UPGRADE, || {
        let now = boot()?;
        (now != before).then_some(()).ok_or(now)
    });
    let answer = began.elapsed().as_secs_f64();
    let entries = WriteLog::open(&log)?.entries;
    let bytes = entries.iter().skip(start).map(|entry| entry.length).sum();
    let verdict = ["get", "upgrades", "-o", "jsonpath={.spec.verdict}"];
    node.until("the verdict", upgrades::UPGRADE, || {
        let verdict = admin.call(&verdict)?;
        (verdict.trim() == "good").then_some(()).ok_or(verdict)
    });
    let good = began.elapsed().as_secs_f64();
    node.vm.kill();
    let installer = fs::metadata(file)?.len();
    fs::remove_file(disk)?;
    fs::remove_file(log)?;
    Ok(Upgrade {
        written,
        answer,
        good,
        bytes,
        installer,
    })
}

#[expect(clippy::cast_precision_loss, reason = "shown with one decimal")]
fn text(upgrades: &[Upgrade]) -> String {
    let of = |value: fn(&Upgrade) -> f64| {
        let values: Vec<f64> = upgrades.iter().map(value).collect();
        median(&values).unwrap_or_default()
    };
    let mut text = "\
A node with UEFI takes an installer from the client, writes it, and starts it through its firmware (OVMF). Medians.\n\n\
| moment | after the call |\n|---|---|\n"
        .to_owned();
    for (moment, seconds) in [
        ("the new version is on the disk", of(|one| one.written)),
        ("the API of the new version answers", of(|one| one.answer)),
        ("the new version is marked as good", of(|one| one.good)),
    ] {
        let _infallible = writeln!(text, "| {moment} | {seconds:.1} s |");
    }
    let bytes = of(|one| one.bytes as f64);
    let ratio = of(|one| one.bytes as f64 / one.installer as f64);
    let _infallible = write!(
        text,
        "\nWritten between the call and the answer: {:.1} MB, {ratio:.2} × the installer of {:.1} MB; limit {LIMIT} ×, \
         {}.\n\nThe reference unpacks its installer as a container image, runs it as a privileged container, and \
         writes the image.\nIts documentation states no time and no bytes.",
        bytes / 1e6,
        of(|one| one.installer as f64) / 1e6,
        verdict(ratio, LIMIT),
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::not_kept;

    #[test]
    fn upgrade_that_writes_too_much_is_reported() {
        let upgrade = |bytes| Upgrade {
            written: 10.0,
            answer: 30.0,
            good: 40.0,
            bytes,
            installer: 50_000_000,
        };
        let title = TITLE.to_owned();
        let text = text(&[
            upgrade(100_000_000),
            upgrade(230_000_000),
            upgrade(240_000_000),
        ]);
        assert!(
            text.contains("230.0 MB, 4.60 × the installer of 50.0 MB; limit 4.5 ×, NOT KEPT"),
            "{text}"
        );
        assert_eq!(not_kept(&Section { title, text }).len(), 1);
    }
}
