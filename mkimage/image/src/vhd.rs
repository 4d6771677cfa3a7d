//! VHD, fixed: the raw disk and a footer of 512 bytes (Microsoft's Virtual Hard Disk Image Format
//! Specification). Azure requires whole MiB.

use std::io::{Seek as _, SeekFrom, Write as _};
use std::path::Path;

use anyhow::ensure;
use corten_steps::error::Result;

use super::{Release, bytes, output};

/// Seconds from 1970 to 2000, the epoch of the format.
const YEAR_2000: u64 = 946_684_800;
/// Readers use the size field only of creators they know, and otherwise compute a smaller size from
/// the geometry. A fixed disk therefore names Windows as its creator.
const CREATOR: &[u8; 4] = b"win ";
const CREATOR_OS: &[u8; 4] = b"Wi2k";
const CHECKSUM: usize = 64;

/// Writes the disk image `raw` to `out` as a fixed VHD.
pub fn build(out: &Path, release: &Release, raw: &Path) -> Result<()> {
    let mut disk = output::open(raw)?;
    let size = disk.metadata()?.len();
    ensure!(
        size.is_multiple_of(1 << 20),
        "the disk is not a whole number of MiB"
    );
    let footer = footer(release, size)?;
    output::create(out, |file| {
        output::copy_sparse(&mut disk, file)?;
        file.seek(SeekFrom::Start(size))?;
        Ok(file.write_all(&footer)?)
    })
}

fn footer(release: &Release, size: u64) -> Result<Vec<u8>> {
    let mut footer = Vec::new();
    footer.extend(b"conectix");
    footer.extend(2_u32.to_be_bytes()); // features: the reserved bit that is always set
    footer.extend(0x0001_0000_u32.to_be_bytes());
    footer.extend(u64::MAX.to_be_bytes()); // no dynamic header
    let date = release.epoch.saturating_sub(YEAR_2000);
    footer.extend(bytes::fit32(date, "the date")?.to_be_bytes());
    footer.extend(CREATOR);
    footer.extend(0x000a_0000_u32.to_be_bytes());
    footer.extend(CREATOR_OS);
    footer.extend(size.to_be_bytes());
    footer.extend(size.to_be_bytes());
    footer.extend(geometry(size / 512)?);
    footer.extend(2_u32.to_be_bytes()); // fixed
    footer.extend([0; 4]);
    footer.extend(release.uuid("vhd").as_bytes());
    footer.resize(512, 0);
    let sum = !footer.iter().map(|byte| u32::from(*byte)).sum::<u32>();
    bytes::put(&mut footer, CHECKSUM, &sum.to_be_bytes())?;
    Ok(footer)
}

/// Cylinders, heads and sectors per track, as the specification's appendix derives them.
fn geometry(sectors: u64) -> Result<[u8; 4]> {
    let sectors = sectors.min(65535 * 16 * 255);
    let (per_track, heads, tracks) = if sectors >= 65535 * 16 * 63 {
        (255, 16, sectors / 255)
    } else {
        let heads = (sectors / 17).div_ceil(1024).max(4);
        if heads <= 16 && sectors / 17 < heads * 1024 {
            (17, heads, sectors / 17)
        } else if sectors / 31 < 16 * 1024 {
            (31, 16, sectors / 31)
        } else {
            (63, 16, sectors / 63)
        }
    };
    let [high, low] = u16::try_from(tracks / heads)?.to_be_bytes();
    Ok([high, low, u8::try_from(heads)?, per_track])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Scratch, disk, host, release, text};

    #[test]
    fn qemu_reads_the_same_disk_from_the_vhd_image() {
        let scratch = Scratch::new();
        let raw = disk(&scratch);
        let (one, two) = (scratch.path("one.vhd"), scratch.path("two.vhd"));
        build(&one, &release(), &raw).unwrap();
        build(&two, &release(), &raw).unwrap();
        assert!(std::fs::read(&one).unwrap() == std::fs::read(&two).unwrap());
        let said = host("qemu-img", &["info", "-f", "vpc", text(&one)]);
        assert!(said.contains("(67108864 bytes)"), "{said}");
        host(
            "qemu-img",
            &["compare", "-f", "raw", "-F", "vpc", text(&raw), text(&one)],
        );
    }

    #[test]
    fn geometry_follows_the_vhd_specification() {
        // A 20 GiB disk: 63 sectors and 16 heads; a 64 MiB one: 17 sectors.
        assert_eq!(geometry(20 << 21).unwrap(), [0xa2, 0x8a, 16, 63]);
        assert_eq!(geometry(64 << 11).unwrap(), [3, 0xc3, 8, 17]);
    }
}
