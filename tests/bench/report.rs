//! The sections that compare the systems.

use std::fmt::Write as _;

use qemu::Accel;

use crate::debian::Image;
use crate::document::Section;
use crate::measure::{Memory, OURS, Size};

/// The introduction of the document.
pub const INTRODUCTION: &str = "\
Written by `make bench`, which fails when a limit is not kept. `make bench PARTS=PART` measures one part again and
leaves the others as they are.";

const MIB: f64 = 1024.0 * 1024.0;
/// Limits of docs/promises.md.
const PSS_LIMIT_MIB: f64 = 22.0;
const SIZE_LIMIT_MB: f64 = 44.0;
const BOOT_LIMIT: f64 = 0.33;

/// Seconds of every boot.
#[derive(Debug, Default)]
pub struct Boots {
    /// Boots of Corten.
    pub corten: Vec<f64>,
    /// Boots of Debian; empty if it was not measured.
    pub debian: Vec<f64>,
}

/// The median; of an even number of values the upper one.
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied()
}

/// The mark of an exceeded limit, also in the output of `cargo bench`.
const NOT_KEPT: &str = "NOT KEPT";

/// The mark beside a limit.
pub fn verdict(value: f64, limit: f64) -> &'static str {
    if value <= limit { "kept" } else { NOT_KEPT }
}

/// The lines of a section with an exceeded limit.
pub fn not_kept(section: &Section) -> Vec<&str> {
    let lines = section.text.lines();
    lines.filter(|line| line.contains(NOT_KEPT)).collect()
}

/// Bytes in MiB.
#[expect(clippy::cast_precision_loss, reason = "shown with one decimal")]
pub fn mib(bytes: u64) -> f64 {
    bytes as f64 / MIB
}

/// Boot time, memory and sizes.
pub fn system(
    boots: &Boots,
    memory: &[Memory],
    sizes: &[Size],
    debian: Option<&Image>,
) -> Vec<Section> {
    let processes = Section {
        title: "Memory of each process, configured and idle".to_owned(),
        text: processes(memory),
    };
    let beside = Section {
        title: "Beside a minimal Debian".to_owned(),
        text: beside(boots, memory, sizes, debian),
    };
    vec![beside, processes]
}

fn beside(boots: &Boots, memory: &[Memory], sizes: &[Size], debian: Option<&Image>) -> String {
    let probe = Accel::probe();
    let mut text = format!(
        "Both systems boot the same kernel with the same parameters in the same QEMU, in turns. Times are \
         medians from\nQEMU's start. A new connection is begun every 100 ms, and the first that is answered \
         counts. QEMU's network\nrepeats what a guest has missed only after seconds. Accelerator: {} ({}).\n\n",
        probe.accel.option(),
        probe.reason
    );
    text.push_str(
        "| measure | Corten | Debian 13, systemd, sshd | limit | |\n|---|---|---|---|---|\n",
    );
    boot_row(&mut text, boots);
    let ours: u64 = memory
        .iter()
        .filter(|m| OURS.contains(&m.name.as_str()))
        .map(|m| m.pss_kib)
        .sum();
    let ours = mib(ours * 1024);
    let _infallible = writeln!(
        text,
        "| PSS of {} | {ours:.1} MiB | | {PSS_LIMIT_MIB} MiB | {} |",
        OURS.join(", "),
        verdict(ours, PSS_LIMIT_MIB)
    );
    for size in sizes {
        #[expect(clippy::cast_precision_loss, reason = "shown with one decimal")]
        let megabytes = size.bytes as f64 / 1e6;
        let (limit, kept) = if size.name == "kernel + initramfs" {
            (
                format!("{SIZE_LIMIT_MB} MB"),
                verdict(megabytes, SIZE_LIMIT_MB),
            )
        } else {
            (String::new(), "")
        };
        let _infallible = writeln!(
            text,
            "| size of {} | {megabytes:.1} MB | | {limit} | {kept} |",
            size.name
        );
    }
    if let Some(debian) = debian {
        let _infallible = writeln!(
            text,
            "| files of the root file system, unpacked | | {:.1} MiB, without a kernel | | |",
            mib(debian.content)
        );
    }
    text
}

fn processes(memory: &[Memory]) -> String {
    let mut text = String::from("| process | PSS |\n|---|---|\n");
    for Memory { name, pss_kib } in memory {
        let _infallible = writeln!(text, "| {name} | {:.1} MiB |", mib(pss_kib * 1024));
    }
    text
}

fn boot_row(text: &mut String, boots: &Boots) {
    let Some(ours) = median(&boots.corten) else {
        return;
    };
    let row = match median(&boots.debian) {
        Some(theirs) => format!(
            "| QEMU start to API answer, or SSH banner | {ours:.1} s | {theirs:.1} s | \
             {BOOT_LIMIT} × Debian | {:.2} ×, {} |",
            ours / theirs,
            verdict(ours / theirs, BOOT_LIMIT)
        ),
        None => format!("| QEMU start to API answer | {ours:.1} s | | | |"),
    };
    text.push_str(&row);
    text.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exceeded_limits_are_reported() {
        let boots = Boots {
            corten: vec![9.0, 8.0, 30.0],
            debian: vec![20.0, 24.0, 22.0],
        };
        let memory = vec![
            Memory {
                name: "init".into(),
                pss_kib: 40 * 1024,
            },
            Memory {
                name: "containerd".into(),
                pss_kib: 1,
            },
        ];
        let sizes = [Size {
            name: "kernel + initramfs",
            bytes: 40_000_000,
        }];
        let text = beside(&boots, &memory, &sizes, None);
        assert!(
            text.contains("| 9.0 s | 22.0 s | 0.33 × Debian | 0.41 ×, NOT KEPT |"),
            "{text}"
        );
        assert!(
            text.contains("| 40.0 MiB | | 22 MiB | NOT KEPT |"),
            "{text}"
        );
        assert!(text.contains("| 40.0 MB | | 44 MB | kept |"), "{text}");
        let title = "Beside".to_owned();
        let section = Section { title, text };
        let broken = not_kept(&section);
        assert!(
            matches!(broken[..], [boot, memory]
                if boot.starts_with("| QEMU start") && memory.starts_with("| PSS of init, udevd,")),
            "{broken:?}"
        );
    }
}
