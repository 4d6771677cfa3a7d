//! The time that udevd and systemd-udevd take for the present devices. Both run in one machine, the
//! Debian one, in turns, each from its start with an empty database. Our udevd runs as in the
//! image: the image's root file system is a second disk. The script `coldplug.sh` is a third disk.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::time::Duration;

use ::tests::{images, initramfs, workspace};
use anyhow::{Context as _, bail};
use qemu::{DirectBoot, Disk};

use crate::debian::Image;
use crate::document::Section;
use crate::measure;
use crate::report::median;

const SCRIPT: &str = include_str!("coldplug.sh");
const SECTOR: usize = 512;
/// Timeout of all rounds on an emulated machine and a busy host.
const DEADLINE: Duration = Duration::from_secs(1_800);
/// The prefix of a result on the console.
const MARK: &str = "coldplug: ";
/// The measured systems: name in the script, and a description.
const WHO: [(&str, &str); 3] = [
    ("systemd-udevd", "systemd-udevd, with Debian's rule files"),
    ("udevd", "udevd, as in the image"),
    (
        "udevd-with-rules",
        "udevd, with Debian's rule files besides",
    ),
];

/// One coldplug.
#[derive(Debug, Clone, PartialEq)]
struct Run {
    who: String,
    seconds: f64,
    records: u64,
}

/// Measures each system `rounds` times, after one warm-up.
pub fn measure(debian: &Image, rounds: usize) -> anyhow::Result<Section> {
    let directory = workspace::target().join("bench");
    let (node, script) = (directory.join("node.raw"), directory.join("coldplug.raw"));
    let ours = images::direct();
    let initrd = ours.initrd.as_deref().context("the bundle's initramfs")?;
    fs::write(&node, padded(root_file_system(initrd)?))?;
    fs::write(&script, padded(SCRIPT.as_bytes().to_vec()))?;
    let append = format!(
        "{} root=/dev/vda rootfstype=xfs rw systemd.run=\"/bin/bash /dev/vdc {rounds}\"",
        measure::shared_parameters(&ours.append)
    );
    let machine = measure::machine("bench-coldplug")
        .direct(DirectBoot {
            kernel: ours.kernel,
            initrd: None,
            append,
        })
        .disk(Disk::raw(&debian.disk))
        .disk(Disk::raw(&node))
        .disk(Disk::raw(&script))
        .start()?;
    machine.wait_console("coldplug: done", DEADLINE)?;
    let runs = runs(&machine.console().text());
    let text = render(&runs, rounds);
    text.with_context(|| machine.report()).map(|text| Section {
        title: "Coldplug".to_owned(),
        text,
    })
}

/// The root file system of the image, from its initramfs.
pub fn root_file_system(initrd: &Path) -> anyhow::Result<Vec<u8>> {
    let entries = initramfs::read(initrd);
    let found = entries
        .into_iter()
        .find(|entry| entry.name == "rootfs.squashfs");
    Ok(found.context("rootfs.squashfs in the initramfs")?.data)
}

/// Pads to whole sectors: empty lines after the script, unused bytes after a file system.
pub fn padded(mut bytes: Vec<u8>) -> Vec<u8> {
    bytes.resize(bytes.len().next_multiple_of(SECTOR), b'\n');
    bytes
}

/// The results on a console.
fn runs(console: &str) -> Vec<Run> {
    let run = |line: &str| {
        let mut words = line.trim().strip_prefix(MARK)?.split(' ');
        let who = words.next()?.to_owned();
        let micros = Duration::from_micros(words.next()?.parse().ok()?);
        Some(Run {
            who,
            seconds: micros.as_secs_f64(),
            records: words.next()?.parse().ok()?,
        })
    };
    console.lines().filter_map(run).collect()
}

fn render(runs: &[Run], rounds: usize) -> anyhow::Result<String> {
    let mut text = format!(
        "The time from the daemon's start, with an empty database, until every device of the machine is \
         settled. There are\n{rounds} rounds, in turns, in one Debian 13 in QEMU with the kernel and the \
         modules of the image. `udevd` is the image's.\nIt runs in the image's root file system and starts no \
         programs. `udevadm trigger` and `udevadm settle` ask\nsystemd-udevd. A record is what the database \
         has of a device.\n\n\
         | coldplug | median | fastest | slowest | records | |\n|---|---|---|---|---|---|\n"
    );
    let mut first = None;
    for (who, name) in WHO {
        let own: Vec<&Run> = runs.iter().filter(|run| run.who == who).skip(1).collect();
        if own.len() != rounds {
            bail!("{who}: {} results instead of {rounds}", own.len());
        }
        let seconds: Vec<f64> = own.iter().map(|run| run.seconds).collect();
        let middle = median(&seconds).context("a result")?;
        let fastest = seconds.iter().copied().fold(f64::INFINITY, f64::min);
        let slowest = seconds.iter().copied().fold(0.0, f64::max);
        let records = own.last().map_or(0, |run| run.records);
        let theirs = *first.get_or_insert(middle);
        let _infallible = writeln!(
            text,
            "| {name} | {middle:.2} s | {fastest:.2} s | {slowest:.2} s | {records} | {:.2} × |",
            middle / theirs
        );
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_found_among_other_lines() {
        let console = "[ 1.0] booting\r\ncoldplug: udevd 1500000 93\r\ncoldplug: done\r\n";
        let run = Run {
            who: "udevd".into(),
            seconds: 1.5,
            records: 93,
        };
        assert_eq!(runs(console), [run]);
    }

    #[test]
    fn first_round_is_discarded_and_missing_rounds_are_errors() {
        let run = |who: &str, seconds| Run {
            who: who.into(),
            seconds,
            records: 90,
        };
        let mut all = Vec::new();
        for seconds in [60.0, 4.0, 2.0, 3.0] {
            all.push(run("systemd-udevd", seconds));
            all.push(run("udevd", seconds / 4.0));
            all.push(run("udevd-with-rules", seconds / 2.0));
        }
        let text = render(&all, 3).unwrap();
        let row = "| udevd, as in the image | 0.75 s | 0.50 s | 1.00 s | 90 | 0.25 × |";
        assert!(text.contains(row), "{text}");
        all.pop();
        let error = render(&all, 3).unwrap_err().to_string();
        assert_eq!(error, "udevd-with-rules: 2 results instead of 3");
    }

    #[test]
    fn the_script_ends_before_the_lines_that_fill_its_disk() {
        let disk = padded(SCRIPT.as_bytes().to_vec());
        assert_eq!(disk.len() % SECTOR, 0);
        assert!(disk.ends_with(b"\n") && SCRIPT.trim_end().ends_with("exit 0"));
    }
}
