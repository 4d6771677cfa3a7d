//! Builds and lists the EFI system partition of an image. `corten_installer::esp` writes it, for an image as on a node.

use std::fs::File;
use std::io::{Read, Seek};
use std::path::Path;

use corten_installer::esp::{self, Place, Stamp};
pub use corten_installer::esp::{Content, FatFile};
use corten_steps::error::Result;
use hadris_fat::{FatDateTime, FatVolume, FatVolumeReadExt as _};

use super::Release;
use super::output;

const SECTOR: u64 = 512;

/// Smallest size of a volume with `files` and `room` spare bytes, in bytes: whole MiB.
pub fn size_for(files: &[FatFile], room: u64) -> Result<u64> {
    Ok(esp::size_of(esp::content_of(files)?.saturating_add(room)))
}

/// Writes a volume of `size` bytes as a file of its own.
pub fn build(out: &Path, release: &Release, size: u64, files: &[FatFile]) -> Result<()> {
    output::create(out, |file| {
        file.set_len(size)?;
        write(file, 0, size, release, files)
    })
}

/// Makes the file system in `disk` at `start`, in `size` bytes that are zero.
pub(crate) fn write(
    disk: &mut File,
    start: u64,
    size: u64,
    release: &Release,
    files: &[FatFile],
) -> Result<()> {
    let place = Place {
        start,
        size,
        sector: SECTOR,
        id: release.id32("efi"),
    };
    let stamp: &'static Stamp = Box::leak(Box::new(stamp(release.epoch)));
    Ok(esp::write(disk, place, files, stamp)?)
}

/// A file found in a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// Path in the volume, without a leading slash.
    pub path: String,
    /// Size, in bytes.
    pub size: u64,
    /// Its bytes, if requested.
    pub content: Option<Vec<u8>>,
}

/// Every file of the volume, by path, with the content of the files that `wanted` selects.
pub fn list(volume: impl Read + Seek, wanted: impl Fn(&str) -> bool) -> Result<Vec<Found>> {
    let volume = FatVolume::open(volume)?;
    let mut files = Vec::new();
    let mut pending = vec![(String::new(), volume.root_dir())];
    while let Some((above, directory)) = pending.pop() {
        let mut entries = directory.entries();
        while let Some(entry) = entries.next_entry() {
            let entry = entry?;
            let name = entry.name().into_owned();
            let Some(file) = entry.as_entry().filter(|_| name != "." && name != "..") else {
                continue;
            };
            let path = format!("{above}{name}");
            if file.is_directory() {
                pending.push((format!("{path}/"), volume.open_dir_entry(file)?));
            } else if file.is_file() {
                let content = wanted(&path).then(|| volume.read_file(file)?.read_to_vec());
                let content = content.transpose()?;
                files.push(Found {
                    path,
                    size: file.len(),
                    content,
                });
            }
        }
    }
    files.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(files)
}

/// One second since 1970, as FAT counts.
fn stamp(epoch: u64) -> Stamp {
    let (year, month, day) = corten_steps::calendar::date(epoch);
    let part = |per: u64, of: u64| u8::try_from(epoch / per % of).unwrap_or(0);
    let year = u16::try_from(year).unwrap_or(u16::MAX);
    Stamp(FatDateTime::new(
        year,
        month,
        day,
        part(3600, 24),
        part(60, 60),
        part(1, 60),
    ))
}

#[cfg(test)]
mod tests {
    use corten_steps::error::Failure;

    use super::*;
    use crate::testing::{Scratch, host, noise, release, text};

    fn files(scratch: &Scratch) -> Vec<FatFile> {
        let big = scratch.file("big", &noise(3 << 20));
        vec![
            (
                "EFI/BOOT/BOOTX64.EFI".to_owned(),
                Content::Bytes(noise(70_000)),
            ),
            (
                "EFI/Linux/corten-1.2.3+3.efi".to_owned(),
                Content::File(big),
            ),
            (
                "loader/loader.conf".to_owned(),
                Content::Bytes(b"timeout 0\n".to_vec()),
            ),
        ]
    }

    #[test]
    fn fsck_accepts_the_volume_and_mtools_reads_it_back() {
        let scratch = Scratch::new();
        let files = files(&scratch);
        for size in [size_for(&files, 0).unwrap(), 256 << 20] {
            let out = scratch.path("esp");
            build(&out, &release(), size, &files).unwrap();
            let said = host("fsck.fat", &["-n", "-v", text(&out)]);
            assert!(said.contains("32 bit entries"), "{said}");
            assert!(
                !said.contains("Dirty") && !said.contains("differ"),
                "{said}"
            );
            let copy = scratch.path("copy");
            let image = text(&out);
            host(
                "mcopy",
                &[
                    "-n",
                    "-i",
                    image,
                    "::EFI/Linux/corten-1.2.3+3.efi",
                    text(&copy),
                ],
            );
            assert_eq!(std::fs::read(&copy).unwrap(), noise(3 << 20));
            std::fs::remove_file(&copy).unwrap();
            let listing = host("mdir", &["-i", image, "-/", "::"]);
            assert!(listing.contains("2023-11-14  22:13"), "{listing}");
        }
    }

    #[test]
    fn fsck_accepts_a_volume_on_a_disk_with_large_sectors() {
        let scratch = Scratch::new();
        let files = files(&scratch);
        let out = scratch.path("esp");
        let disk = File::create_new(&out).unwrap();
        let size = corten_installer::layout::esp_size(4 << 20, 3 << 20, 4096);
        disk.set_len(size).unwrap();
        let mut disk = File::options().read(true).write(true).open(&out).unwrap();
        let place = Place {
            start: 0,
            size,
            sector: 4096,
            id: 7,
        };
        let stamp: &'static Stamp = Box::leak(Box::new(stamp(1_700_000_000)));
        esp::write(&mut disk, place, &files, stamp).unwrap();
        let said = host("fsck.fat", &["-n", "-v", text(&out)]);
        assert!(said.contains("4096 bytes per logical sector"), "{said}");
        assert!(said.contains("32 bit entries"), "{said}");
        assert!(!said.contains("differ"), "{said}");
        let mut read = Vec::new();
        esp::read(
            &mut disk,
            (0, size),
            "EFI/Linux/corten-1.2.3+3.efi",
            |chunk| {
                read.extend_from_slice(chunk);
                Ok(())
            },
        )
        .unwrap();
        assert_eq!(read, noise(3 << 20));
    }

    #[test]
    fn volume_is_identical_when_built_at_another_time() {
        let scratch = Scratch::new();
        let files = files(&scratch);
        let (one, two) = (scratch.path("one"), scratch.path("two"));
        build(&one, &release(), 40 << 20, &files).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(2100)); // FAT has a resolution of 2 seconds
        build(&two, &release(), 40 << 20, &files).unwrap();
        assert!(std::fs::read(&one).unwrap() == std::fs::read(&two).unwrap());
    }

    #[test]
    fn written_files_are_listed_with_their_content() {
        let scratch = Scratch::new();
        let out = scratch.path("esp");
        build(&out, &release(), 40 << 20, &files(&scratch)).unwrap();
        let mut disk = File::options().read(true).write(true).open(&out).unwrap();
        let seen = list(&mut disk, |path| path.ends_with(".conf")).unwrap();
        let names: Vec<_> = seen
            .iter()
            .map(|file| (file.path.as_str(), file.size))
            .collect();
        assert_eq!(
            names,
            [
                ("EFI/BOOT/BOOTX64.EFI", 70_000),
                ("EFI/Linux/corten-1.2.3+3.efi", 3 << 20),
                ("loader/loader.conf", 10),
            ]
        );
        assert_eq!(seen[2].content.as_deref(), Some(b"timeout 0\n".as_slice()));
        assert_eq!(seen[1].content, None);
    }

    #[test]
    fn too_small_and_full_volumes_are_errors() {
        let scratch = Scratch::new();
        let files = files(&scratch);
        let error = build(&scratch.path("small"), &release(), 1 << 20, &files).unwrap_err();
        assert!(format!("{error:#}").contains("too small for FAT32"));
        let huge = scratch.path("huge");
        File::create(&huge).unwrap().set_len(60 << 20).unwrap();
        let more = [("x".to_owned(), Content::File(huge))];
        let error = build(&scratch.path("full"), &release(), 40 << 20, &more).unwrap_err();
        assert!(error.downcast_ref::<Failure>().is_some());
        assert!(
            format!("{error:#}").contains("adding x to the ESP"),
            "{error:#}"
        );
    }
}
