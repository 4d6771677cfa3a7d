//! The initramfs: an uncompressed newc archive, since what it holds is compressed already.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use cpio::newc::{self, Builder};

use super::{Release, bytes, output};
use crate::error::{Failure, Result};

/// What goes into an initramfs.
#[derive(Debug)]
pub struct Initramfs<'a> {
    /// The static first program, `/init`.
    pub init: &'a Path,
    /// The root file system, `/rootfs.squashfs`.
    pub rootfs: &'a Path,
    /// Layers for `/extensions/`, by file name; later names lie on top.
    pub extensions: &'a [PathBuf],
}

const DIRECTORY: u32 = 0o040_755;
const CONSOLE: u32 = 0o020_600;
const PROGRAM: u32 = 0o100_755;
const DATA: u32 = 0o100_644;

/// Writes the archive to `out`: sorted, owned by root, dated `release.epoch`.
pub fn build(out: &Path, release: &Release, parts: &Initramfs<'_>) -> Result<()> {
    let mut entries = vec![
        ("dev".to_owned(), DIRECTORY, None),
        ("dev/console".to_owned(), CONSOLE, None),
        ("init".to_owned(), PROGRAM, Some(parts.init)),
        ("rootfs.squashfs".to_owned(), DATA, Some(parts.rootfs)),
    ];
    if !parts.extensions.is_empty() {
        entries.push(("extensions".to_owned(), DIRECTORY, None));
    }
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
        entries.push((format!("extensions/{name}"), DATA, Some(path)));
    }
    entries.sort_by(|a, b| a.0.cmp(&b.0));
    if let Some([first, _]) = entries.array_windows().find(|[a, b]| a.0 == b.0) {
        return Err(Failure::new(
            format!("two extensions are called {}", first.0),
            "give each extension layer its own file name",
        ));
    }
    output::create(out, |file| {
        let mut archive = BufWriter::new(file);
        for (number, (name, mode, source)) in (1..).zip(&entries) {
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
            append(&mut archive, entry, *source)?;
        }
        newc::trailer(&mut archive)?;
        archive.flush()?;
        Ok(())
    })
}

fn append(archive: &mut impl Write, entry: Builder, source: Option<&Path>) -> Result<()> {
    let Some(path) = source else {
        entry.write(archive, 0).finish()?;
        return Ok(());
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
    use crate::image::testing::{Scratch, release};

    #[test]
    fn cpio_reads_it_and_it_is_the_same_twice() {
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
        };
        let (one, two) = (scratch.path("one"), scratch.path("two"));
        build(&one, &release(), &parts).unwrap();
        build(&two, &release(), &parts).unwrap();
        let archive = std::fs::read(&one).unwrap();
        assert_eq!(archive, std::fs::read(&two).unwrap());

        let mut seen = Vec::new();
        let mut input = archive.as_slice();
        loop {
            let reader = newc::Reader::new(input).unwrap();
            if reader.entry().is_trailer() {
                break;
            }
            let entry = reader.entry();
            assert_eq!((entry.uid(), entry.gid()), (0, 0));
            assert_eq!(entry.mtime(), 1_700_000_000);
            seen.push(format!(
                "{} {:o} {}",
                entry.name(),
                entry.mode(),
                entry.file_size()
            ));
            if entry.name() == "dev/console" {
                assert_eq!((entry.rdev_major(), entry.rdev_minor()), (5, 1));
            }
            input = reader.finish().unwrap();
        }
        assert_eq!(
            seen,
            [
                "dev 40755 0",
                "dev/console 20600 0",
                "extensions 40755 0",
                "extensions/10-a.squashfs 100644 5",
                "extensions/20-b.squashfs 100644 4",
                "init 100755 9",
                "rootfs.squashfs 100644 5000",
            ]
        );
    }

    #[test]
    fn an_extension_must_be_a_squashfs_of_its_own_name() {
        let scratch = Scratch::new();
        let file = scratch.file("x.tar", b"");
        let bad = [file.clone()];
        let parts = Initramfs {
            init: &file,
            rootfs: &file,
            extensions: &bad,
        };
        let error = build(&scratch.path("out"), &release(), &parts).unwrap_err();
        assert!(error.to_string().contains("is not a .squashfs file"));
        let same = scratch.file("x.squashfs", b"");
        let twice = [same.clone(), same];
        let parts = Initramfs {
            init: &file,
            rootfs: &file,
            extensions: &twice,
        };
        let error = build(&scratch.path("out"), &release(), &parts).unwrap_err();
        assert_eq!(
            error.to_string(),
            "two extensions are called extensions/x.squashfs"
        );
    }
}
