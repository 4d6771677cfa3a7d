//! A reader of fixed VHDs, independent of the builder's writer (Microsoft's Virtual Hard Disk Image
//! Format Specification; Azure: "Prepare a VHD").

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

const FOOTER: usize = 512;
const SECTOR: u64 = 512;
const MIB: u64 = 1 << 20;

/// Checks a fixed VHD that Azure imports; returns the size of its disk in bytes.
///
/// # Errors
/// The first wrong field.
///
/// # Panics
/// The file cannot be read.
pub fn check(path: &Path) -> Result<u64, String> {
    let file = File::open(path).expect("the VHD");
    let length = file.metadata().expect("its length").len();
    let mut footer = [0; FOOTER];
    let size = length
        .checked_sub(FOOTER as u64)
        .ok_or("it has no footer")?;
    file.read_exact_at(&mut footer, size).expect("the footer");
    check_footer(&footer, size)?;
    Ok(size)
}

fn check_footer(footer: &[u8; FOOTER], size: u64) -> Result<(), String> {
    let number = |at: usize, length: usize| {
        let bytes = footer[at..at + length].iter();
        bytes.fold(0_u64, |number, byte| number << 8 | u64::from(*byte))
    };
    if &footer[..8] != b"conectix" {
        return Err("the cookie is not conectix".to_owned());
    }
    let sum: u64 = footer.iter().map(|byte| u64::from(*byte)).sum();
    let own: u64 = footer[64..68].iter().map(|byte| u64::from(*byte)).sum();
    for (what, is_right) in [
        ("checksum", number(64, 4) == (sum - own) ^ 0xffff_ffff),
        // The reserved bit alone: a temporary disk is never imported.
        ("features", number(8, 4) == 2),
        ("version of the format", number(12, 4) == 0x1_0000),
        ("offset of a dynamic header", number(16, 8) == u64::MAX),
        ("original size", number(40, 8) == size),
        ("current size", number(48, 8) == size),
        ("geometry", is_geometry(footer, size / SECTOR)),
        ("type, which is not fixed", number(60, 4) == 2),
        ("unique id", footer[68..84].iter().any(|byte| *byte != 0)),
        ("saved state", footer[84] == 0),
        ("reserved part", footer[85..].iter().all(|byte| *byte == 0)),
        ("size, which is not whole MiB", size.is_multiple_of(MIB)),
    ] {
        if !is_right {
            return Err(format!("wrong {what}"));
        }
    }
    Ok(())
}

/// Whether cylinders, heads and sectors hold the disk but for less than a cylinder.
fn is_geometry(footer: &[u8; FOOTER], sectors: u64) -> bool {
    let cylinders = u64::from(footer[56]) << 8 | u64::from(footer[57]);
    let (heads, per_track) = (u64::from(footer[58]), u64::from(footer[59]));
    let track = heads * per_track;
    let largest = 65_535 * 16 * 255;
    let held = cylinders * track;
    (4..=16).contains(&heads)
        && [17, 31, 63, 255].contains(&per_track)
        && held <= sectors.min(largest)
        && sectors.min(largest) - held < track
}

#[cfg(test)]
mod tests {
    use corten_image::{Release, vhd};
    use corten_steps::arch::Arch;

    use super::*;

    #[test]
    fn footer_of_the_builder_is_right_and_every_change_of_it_is_seen() {
        let directory = tempfile::tempdir().expect("a directory");
        let release = Release {
            version: "1.2.3".to_owned(),
            arch: Arch::X86_64,
            epoch: 1_700_000_000,
        };
        for mib in [3, 64, 500, 1300, 20 << 10, 200 << 10] {
            let raw = directory.path().join("disk.raw");
            let out = directory.path().join("disk.vhd");
            let file = File::create(&raw).expect("a disk");
            file.set_len(mib * MIB).expect("its size");
            vhd::build(&out, &release, &raw).expect("a VHD");
            assert_eq!(check(&out), Ok(mib * MIB));
            let file = File::open(&out).expect("the VHD");
            let mut footer = [0; FOOTER];
            file.read_exact_at(&mut footer, mib * MIB)
                .expect("the footer");
            for at in 0..FOOTER {
                let mut changed = footer;
                changed[at] ^= 0x10;
                check_footer(&changed, mib * MIB).expect_err("a changed byte");
            }
            check_footer(&footer, mib * MIB + SECTOR).expect_err("another size");
            std::fs::remove_file(out).expect("the VHD to go");
        }
    }
}
