//! The initramfs: two newc archives, one after the other (the kernel's
//! driver-api/early-userspace/buffer-format). The first has `/init` and is compressed with zstd;
//! the second has files that are already compressed, and is stored.

use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use corten_steps::error::{Failure, Result};
use cpio::newc::{self, Builder};

use super::{Release, bytes, output};

/// The content of an initramfs.
#[derive(Debug)]
pub struct Initramfs<'a> {
    /// The static first program, `/init`.
    pub init: &'a Path,
    /// The root file system, `/rootfs.squashfs`.
    pub rootfs: &'a Path,
    /// Layers for `/extensions/`, by file name; later names lie on top.
    pub extensions: &'a [PathBuf],
    /// The keys whose images the node accepts, separated by commas ([`crate::secure_boot::Signer::digest`]).
    pub signers: &'a str,
}

/// The names of the layers, one a line. Every initramfs has the file. A boot loader may put a
/// foreign archive with layers of its own in front of this one; this file then replaces the foreign
/// list.
const LIST: &str = "extensions.list";

/// The date of the image: `init` never sets the clock below it.
const DATE: &str = "source-date-epoch";

/// File with the digests of the accepted keys. The node takes images only from these signers.
const SIGNERS: &str = "signers";

const DIRECTORY: u32 = 0o040_755;
const CONSOLE: u32 = 0o020_600;
const PROGRAM: u32 = 0o100_755;
const DATA: u32 = 0o100_644;
/// The zstd compression level.
const LEVEL: i32 = 19;
/// Alignment of a stored archive within the initramfs, in bytes.
const ALIGNMENT: usize = 4;
/// The magic number of a zstd frame (RFC 8878, section 3.1.1).
pub const ZSTD: [u8; 4] = 0xfd2f_b528_u32.to_le_bytes();
/// Largest decompressed archive in bytes, far above any real one.
const LARGEST: u64 = 1 << 30;

/// An entry read from an initramfs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Path without a leading slash.
    pub name: String,
    /// Type and permission bits.
    pub mode: u32,
    /// Major and minor number of a device node.
    pub device: (u32, u32),
    /// The content of a file.
    pub data: Vec<u8>,
}

/// The content of an entry to write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Content<'a> {
    Nothing,
    Of(&'a Path),
    Text(&'a str),
}

type Source<'a> = (String, u32, Content<'a>);

/// Writes the archive to `out`: sorted, owned by root, dated `release.epoch`.
pub fn build(out: &Path, release: &Release, parts: &Initramfs<'_>) -> Result<()> {
    let date = format!("{}\n", release.epoch);
    let signers = format!("{}\n", parts.signers);
    let mut second: Vec<Source<'_>> = vec![
        (
            "rootfs.squashfs".to_owned(),
            DATA,
            Content::Of(parts.rootfs),
        ),
        (DATE.to_owned(), DATA, Content::Text(&date)),
        (SIGNERS.to_owned(), DATA, Content::Text(&signers)),
    ];
    if !parts.extensions.is_empty() {
        second.push(("extensions".to_owned(), DIRECTORY, Content::Nothing));
    }
    let mut list = String::new();
    for path in parts.extensions {
        let name = path
            .file_name()
            .and_then(|name| name.to_str())
            .unwrap_or_default();
        if !name.ends_with(".squashfs") {
            return Err(Failure::new(
                format!("the extension {} is not a .squashfs file", path.display()),
                "give extension layers as files named <order>-<name>.squashfs",
            ));
        }
        second.push((format!("extensions/{name}"), DATA, Content::Of(path)));
        list += &format!("{name}\n");
    }
    let first = [
        ("dev".to_owned(), DIRECTORY, Content::Nothing),
        ("dev/console".to_owned(), CONSOLE, Content::Nothing),
        (LIST.to_owned(), DATA, Content::Text(&list)),
        ("init".to_owned(), PROGRAM, Content::Of(parts.init)),
    ];
    second.sort();
    if let Some([one, _]) = second.array_windows().find(|[a, b]| a.0 == b.0) {
        return Err(Failure::new(
            format!("two extensions have the name {}", one.0),
            "give each extension layer its own file name",
        ));
    }
    output::create(out, |file| {
        let mut out = BufWriter::new(file);
        let mut plain = Vec::new();
        archive(&mut plain, release, &first)?;
        let mut packed = zstd::bulk::compress(&plain, LEVEL)?;
        bytes::pad(&mut packed, ALIGNMENT);
        out.write_all(&packed)?;
        archive(&mut out, release, &second)?;
        out.flush()?;
        Ok(())
    })
}

fn archive(out: &mut impl Write, release: &Release, entries: &[Source<'_>]) -> Result<()> {
    for (number, (name, mode, source)) in (1..).zip(entries) {
        let entry = Builder::new(name)
            .ino(number)
            .mode(*mode)
            .nlink(if *mode == DIRECTORY { 2 } else { 1 })
            .mtime(bytes::fit32(release.epoch, "the date")?);
        let entry = if *mode == CONSOLE {
            entry.rdev_major(5).rdev_minor(1)
        } else {
            entry
        };
        append(out, entry, *source)?;
    }
    newc::trailer(out)?;
    Ok(())
}

/// Reads an initramfs: newc archives, stored or compressed with zstd, and zeros between them.
///
/// # Errors
/// Other data follows an archive, or an archive is damaged.
pub fn read(mut rest: &[u8]) -> Result<Vec<Entry>> {
    let mut entries = Vec::new();
    loop {
        let zeros = rest.iter().take_while(|byte| **byte == 0).count();
        rest = rest.split_at(zeros).1;
        if rest.is_empty() {
            return Ok(entries);
        }
        rest = if rest.starts_with(&ZSTD) {
            let mut decoder = zstd::Decoder::with_buffer(rest)?.single_frame();
            let mut plain = Vec::new();
            let read = (&mut decoder).take(LARGEST).read_to_end(&mut plain);
            read.context("its initramfs is truncated or damaged")?;
            read_archive(&plain, &mut entries)?;
            decoder.finish()
        } else {
            read_archive(rest, &mut entries)?
        };
    }
}

/// Reads one archive into `entries`; returns the rest.
fn read_archive<'a>(mut rest: &'a [u8], entries: &mut Vec<Entry>) -> Result<&'a [u8]> {
    loop {
        let mut reader = newc::Reader::new(rest).context("its initramfs is not a cpio archive")?;
        if reader.entry().is_trailer() {
            return Ok(reader.finish()?);
        }
        let mut data = Vec::new();
        reader.read_to_end(&mut data)?;
        let entry = reader.entry();
        entries.push(Entry {
            name: entry.name().trim_start_matches(['.', '/']).to_owned(),
            mode: entry.mode(),
            device: (entry.rdev_major(), entry.rdev_minor()),
            data,
        });
        rest = reader.finish()?;
    }
}

fn append(archive: &mut impl Write, entry: Builder, content: Content<'_>) -> Result<()> {
    let path = match content {
        Content::Nothing => {
            entry.write(archive, 0).finish()?;
            return Ok(());
        }
        Content::Text(text) => {
            let size = bytes::fit32(text.len(), "a file of the initramfs")?;
            let mut writer = entry.write(archive, size);
            writer.write_all(text.as_bytes())?;
            writer.finish()?;
            return Ok(());
        }
        Content::Of(path) => path,
    };
    let size = bytes::fit32(output::size_of(path)?, "a file of the initramfs")?;
    let mut file: File = output::open(path)?;
    let mut writer = entry.write(archive, size);
    io::copy(&mut file, &mut writer)?;
    writer.finish()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Scratch, release};

    #[test]
    fn archive_is_reproducible_and_cpio_reads_it() {
        let scratch = Scratch::new();
        let init = scratch.file("some-init", b"#!program");
        let rootfs = scratch.file("root.img", &[7; 5000]);
        let late = scratch.file("20-b.squashfs", b"late");
        let early = scratch.file("10-a.squashfs", b"early");
        let extensions = [late, early];
        let parts = Initramfs {
            init: &init,
            rootfs: &rootfs,
            extensions: &extensions,
            signers: "ab",
        };
        let (one, two) = (scratch.path("one"), scratch.path("two"));
        build(&one, &release(), &parts).unwrap();
        build(&two, &release(), &parts).unwrap();
        let archive = std::fs::read(&one).unwrap();
        assert_eq!(archive, std::fs::read(&two).unwrap());

        // The kernel requires a stored archive to begin at a multiple of four.
        let stored = archive
            .windows(6)
            .position(|bytes| bytes == b"070701")
            .unwrap();
        assert!(archive.starts_with(&ZSTD) && stored % 4 == 0);
        let seen: Vec<String> = read(&archive)
            .unwrap()
            .iter()
            .map(|entry| format!("{} {:o} {}", entry.name, entry.mode, entry.data.len()))
            .collect();
        assert_eq!(
            seen,
            [
                "dev 40755 0",
                "dev/console 20600 0",
                "extensions.list 100644 28",
                "init 100755 9",
                "extensions 40755 0",
                "extensions/10-a.squashfs 100644 5",
                "extensions/20-b.squashfs 100644 4",
                "rootfs.squashfs 100644 5000",
                "signers 100644 3",
                "source-date-epoch 100644 11",
            ]
        );
        let entries = read(&archive).unwrap();
        assert_eq!(entries[8].data, b"ab\n");
        assert_eq!(entries[9].data, b"1700000000\n");
        assert_eq!(entries[2].data, b"20-b.squashfs\n10-a.squashfs\n");
        assert_eq!(
            (entries[1].device, &*entries[3].data),
            ((5, 1), &b"#!program"[..])
        );
    }

    #[test]
    fn every_entry_belongs_to_root_and_has_the_release_date() {
        let mut archive = Vec::new();
        super::archive(
            &mut archive,
            &release(),
            &[("dev".to_owned(), DIRECTORY, Content::Nothing)],
        )
        .unwrap();
        let reader = newc::Reader::new(archive.as_slice()).unwrap();
        let entry = reader.entry();
        assert_eq!(
            (entry.uid(), entry.gid(), entry.mtime()),
            (0, 0, 1_700_000_000)
        );
    }

    #[test]
    fn truncated_or_foreign_archive_is_an_error() {
        let scratch = Scratch::new();
        let init = scratch.file("init", b"program");
        let parts = Initramfs {
            init: &init,
            rootfs: &init,
            extensions: &[],
            signers: "ab",
        };
        let out = scratch.path("out");
        build(&out, &release(), &parts).unwrap();
        let archive = std::fs::read(&out).unwrap();
        for length in 1..archive.len() {
            // Cut at the end of the first archive, it is valid with fewer entries.
            let names = read(&archive[..length]).map(|entries| entries.len());
            assert!(
                names.is_err() || names.is_ok_and(|count| count == 4),
                "{length}"
            );
        }
        read(b"\0\0\0junk").unwrap_err();
        assert!(read(b"").unwrap().is_empty());
    }

    #[test]
    fn extension_needs_the_suffix_squashfs_and_a_unique_name() {
        let scratch = Scratch::new();
        let file = scratch.file("x.tar", b"");
        let bad = [file.clone()];
        let parts = Initramfs {
            init: &file,
            rootfs: &file,
            extensions: &bad,
            signers: "ab",
        };
        let error = build(&scratch.path("out"), &release(), &parts).unwrap_err();
        assert!(error.to_string().contains("is not a .squashfs file"));
        let same = scratch.file("x.squashfs", b"");
        let twice = [same.clone(), same];
        let parts = Initramfs {
            init: &file,
            rootfs: &file,
            extensions: &twice,
            signers: "ab",
        };
        let error = build(&scratch.path("out"), &release(), &parts).unwrap_err();
        assert_eq!(
            error.to_string(),
            "two extensions have the name extensions/x.squashfs"
        );
    }
}
