//! The format that Google Cloud imports: `disk.raw`, whole GiB, in a tar of GNU's old format,
//! gzipped.

use std::fs::File;
use std::io::{self, BufWriter, Read as _, Write as _};
use std::path::Path;

use corten_steps::error::Result;
use flate2::{Compression, GzBuilder};

use super::tarball::Tarball;
use super::{Release, bytes, output};

const GIB: u64 = 1 << 30;

/// Writes the disk image `raw` to `out`, its size rounded up to whole GiB. The backup GPT is then
/// not at the end of the disk; the node moves it, as on any disk larger than its image.
pub fn build(out: &Path, release: &Release, raw: &Path) -> Result<()> {
    let disk = output::open(raw)?;
    output::create(out, |file| write(file, release, disk, GIB))
}

fn write(out: &mut File, release: &Release, disk: File, unit: u64) -> Result<()> {
    let size = bytes::align(disk.metadata()?.len(), unit);
    // No name and no date in the gzip header.
    let gzip = GzBuilder::new().write(BufWriter::new(out), Compression::default());
    let mut tar = Tarball::new(gzip, release.epoch);
    tar.file("disk.raw", size, disk.chain(io::repeat(0)))?;
    Ok(tar.finish()?.finish()?.flush()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Scratch, disk, host, release, text};

    #[test]
    fn archive_holds_the_disk_padded_with_zeros() {
        let scratch = Scratch::new();
        let raw = disk(&scratch);
        let (one, two) = (scratch.path("one"), scratch.path("two"));
        for out in [&one, &two] {
            let disk = File::open(&raw).unwrap();
            output::create(out, |file| write(file, &release(), disk, 100 << 20)).unwrap();
        }
        assert!(std::fs::read(&one).unwrap() == std::fs::read(&two).unwrap());
        let dir = scratch.path("unpacked");
        std::fs::create_dir(&dir).unwrap();
        let said = host(
            "tar",
            &["-C", text(&dir), "--numeric-owner", "-xvvzf", text(&one)],
        );
        assert!(
            said.starts_with("-rw-r--r-- 0/0       104857600 2023-11-14"),
            "{said}"
        );
        let unpacked = std::fs::read(dir.join("disk.raw")).unwrap();
        assert!(unpacked[..64 << 20] == std::fs::read(&raw).unwrap());
        assert!(unpacked[64 << 20..].iter().all(|byte| *byte == 0));
    }
}
