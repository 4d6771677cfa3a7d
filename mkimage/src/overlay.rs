//! Image overlays: a board's additions to a disk image, so that the board's own firmware boots it.
//!
//! An overlay is a directory with `overlay.toml` and an optional `esp/`, whose files go to the EFI system partition.
//! Never contains boot firmware: the caller gives it in a directory of its own.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use corten_steps::arch::Arch;
use corten_steps::cache::{KeyBuilder, sha256_file};
use corten_steps::error::{Failure, Remedy as _, Result};
use serde::Deserialize;

/// The description file of an overlay.
const FILE: &str = "overlay.toml";
/// The directory of its own files for the EFI system partition.
const ESP: &str = "esp";
/// Directories of that partition that belong to the image, in lower case: FAT ignores case.
const OURS: [&str; 3] = ["efi", "loader", "grub"];
/// The largest partition offset in bytes: boards read their loaders from the first megabytes.
const FARTHEST: u64 = 1 << 30;

/// The content of `overlay.toml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Declared {
    /// The board's name in the names of its images.
    name: String,
    /// The boards' architecture.
    arch: Arch,
    /// Kernel parameters the board needs.
    #[serde(default)]
    kernel_arguments: Vec<String>,
    /// Offset of the first partition in bytes; firmware that is read from the disk itself lies
    /// before it.
    #[serde(default)]
    partition_offset: Option<u64>,
    /// Device trees for the EFI system partition, by their paths in the kernel's source.
    #[serde(default)]
    device_trees: Vec<String>,
    /// Boot firmware files for the EFI system partition.
    #[serde(default)]
    firmware: Vec<String>,
    /// Boot firmware files that are written to the disk itself.
    #[serde(default)]
    raw: Vec<DeclaredRaw>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct DeclaredRaw {
    file: String,
    offset: u64,
}

impl Declared {
    /// Refuses invalid content of an overlay in `dir` for `arch`; `invalid` begins the message and
    /// names the file.
    fn check(&self, dir: &Path, arch: Arch, invalid: &str) -> Result<()> {
        if self.arch != arch {
            return Err(Failure::new(
                format!("the overlay {} is for {}", dir.display(), self.arch),
                format!("build with --arch {}, or without it", self.arch),
            ));
        }
        let is_part_of_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        if self.name.is_empty() || !self.name.chars().all(is_part_of_name) {
            return Err(Failure::new(
                format!(
                    "{invalid}: name {:?} cannot be a part of an image's name",
                    self.name
                ),
                "use lower-case letters, digits and dashes",
            ));
        }
        if self
            .partition_offset
            .is_some_and(|at| at == 0 || at > FARTHEST || at % corten_image::raw::ALIGNMENT != 0)
        {
            return Err(Failure::new(
                format!("{invalid}: partition-offset is not a multiple of 1 MiB, or over 1 GiB"),
                "correct it",
            ));
        }
        let trees = arch.names().device_trees;
        if let Some(other) = self
            .device_trees
            .iter()
            .find(|tree| !trees.contains(&tree.as_str()))
        {
            return Err(Failure::new(
                format!("{invalid}: device-trees: the kernel's build makes no {other:?}"),
                format!("name one of: {}", trees.join(", ")),
            ));
        }
        Ok(())
    }
}

/// A complete overlay: all of its files exist.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Overlay {
    /// The board's name; `None` for an image that is for no board.
    pub name: Option<String>,
    /// Kernel parameters, added after the image's own.
    pub kernel_arguments: Vec<String>,
    /// Offset of the first partition in bytes; `None` for the default.
    pub partition_offset: Option<u64>,
    /// Device trees, by path below the kernel's.
    pub device_trees: Vec<String>,
    /// Files of the EFI system partition: path there, and source.
    pub esp: BTreeMap<String, PathBuf>,
    /// Files written to the disk itself: offset in bytes, and source.
    pub raw: BTreeMap<u64, PathBuf>,
}

impl Overlay {
    /// Reads the overlay in `dir`, with the boot firmware in `firmware`.
    ///
    /// # Errors
    /// The overlay is invalid or for another architecture, or firmware is missing.
    pub fn read(dir: &Path, firmware: Option<&Path>, arch: Arch) -> Result<Self> {
        let file = dir.join(FILE);
        let text = std::fs::read_to_string(&file).or_fail(
            format!("cannot read {}", file.display()),
            "give the directory of an overlay; docs/building.md describes it",
        )?;
        let invalid = format!("the overlay {} is not valid", file.display());
        let declared: Declared = toml::from_str(&text).or_fail(
            invalid.clone(),
            "correct this key or value; docs/building.md lists the keys of an overlay",
        )?;
        declared.check(dir, arch, &invalid)?;
        let of_esp = files(&dir.join(ESP))?;
        let raw_files = declared.raw.iter().map(|one| &one.file);
        let on_esp = of_esp.iter().chain(&declared.firmware);
        let strange = on_esp
            .filter(|path| !is_free(path))
            .chain(raw_files.filter(|path| !is_plain(path)));
        if let Some(path) = { strange }.next() {
            return Err(Failure::new(
                format!("{invalid}: {path:?} cannot be a file of an overlay"),
                "use a relative path; on the EFI partition one that is not below EFI, loader or grub",
            ));
        }
        let twice = |what: String| Failure::new(format!("{invalid}: {what}"), "keep one of them");
        let given = |name: &String| given(firmware, name, dir);
        let mut esp = BTreeMap::new();
        for path in of_esp {
            let source = dir.join(ESP).join(&path);
            esp.insert(path, source);
        }
        for name in &declared.firmware {
            if esp.insert(name.clone(), given(name)?).is_some() {
                return Err(twice(format!("firmware: {name:?} is given twice")));
            }
        }
        let mut raw = BTreeMap::new();
        for one in &declared.raw {
            if raw.insert(one.offset, given(&one.file)?).is_some() {
                let what = format!("raw: there are two files at offset {}", one.offset);
                return Err(twice(what));
            }
        }
        Ok(Self {
            name: Some(declared.name),
            kernel_arguments: declared.kernel_arguments,
            partition_offset: declared.partition_offset,
            device_trees: declared.device_trees,
            esp,
            raw,
        })
    }

    /// Whether the overlay has more than kernel parameters, and therefore needs a disk image.
    pub fn is_of_disk(&self) -> bool {
        self.partition_offset.is_some()
            || !(self.device_trees.is_empty() && self.esp.is_empty() && self.raw.is_empty())
    }

    /// Adds the overlay's inputs to the key of the disk image.
    ///
    /// # Errors
    /// A file cannot be read.
    pub fn key(&self, mut key: KeyBuilder) -> Result<KeyBuilder> {
        key = key.add("offset", format!("{:?}", self.partition_offset));
        for tree in &self.device_trees {
            key = key.add("device-tree", tree);
        }
        for (path, source) in &self.esp {
            key = key.add("esp", path).add("sha256", sha256_file(source)?);
        }
        for (offset, source) in &self.raw {
            key = key
                .add("raw", offset.to_string())
                .add("sha256", sha256_file(source)?);
        }
        Ok(key)
    }

    /// All files of the overlay in `dir` and its boot firmware, each with its purpose.
    pub fn files(&self, dir: &Path) -> Vec<(String, PathBuf)> {
        let itself = (format!("overlay/{FILE}"), dir.join(FILE));
        let esp = self.esp.iter();
        let esp = esp.map(|(path, source)| (format!("overlay/esp/{path}"), source.clone()));
        let raw = self.raw.iter();
        let raw = raw.map(|(offset, source)| (format!("overlay/raw/{offset}"), source.clone()));
        std::iter::once(itself).chain(esp).chain(raw).collect()
    }
}

/// The path of a boot firmware file; fails if the file is missing.
fn given(firmware: Option<&Path>, name: &str, overlay: &Path) -> Result<PathBuf> {
    let missing = || {
        Failure::new(
            format!(
                "the overlay {} needs {name} of the board's boot firmware",
                overlay.display()
            ),
            "get the firmware from the maker of the board, and give its directory with --firmware",
        )
    };
    let path = firmware.ok_or_else(missing)?.join(name);
    match path.is_file() {
        true => Ok(path),
        false => Err(missing()),
    }
}

/// Whether the path stays below its directory and names the same file on FAT, which drops dots and
/// spaces at the end of a name.
fn is_plain(path: &str) -> bool {
    path.split('/')
        .all(|part| !part.is_empty() && !part.ends_with(['.', ' ']))
}

/// Whether an overlay may put a file at this path of the EFI partition.
fn is_free(path: &str) -> bool {
    let first = path.split('/').next().unwrap_or_default();
    is_plain(path) && !OURS.contains(&first.to_ascii_lowercase().as_str())
}

/// The files below a directory, by relative path; none if the directory does not exist.
fn files(dir: &Path) -> Result<Vec<String>> {
    let mut found = Vec::new();
    if dir.symlink_metadata().is_err() {
        return Ok(found);
    }
    let all = walkdir::WalkDir::new(dir).follow_root_links(false);
    for entry in all.sort_by_file_name() {
        let entry = entry?;
        if entry.file_type().is_dir() {
            continue;
        }
        let path = entry.path().strip_prefix(dir)?;
        let name = path.to_str().filter(|_| entry.file_type().is_file());
        found.push(name.map(str::to_owned).ok_or_else(|| {
            Failure::new(
                format!("{} cannot be a file of an overlay", entry.path().display()),
                "use plain files with UTF-8 names: a FAT file system holds no others",
            )
        })?);
    }
    Ok(found)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::profile::Profile;

    /// Writes a stand-in for every boot firmware file of the overlay in `dir`: its content is its
    /// name.
    pub(crate) fn write_firmware(dir: &Path, firmware: &Path) {
        let text = std::fs::read_to_string(dir.join(FILE)).unwrap();
        let declared: Declared = toml::from_str(&text).unwrap();
        let raw = declared.raw.iter().map(|one| &one.file);
        for name in declared.firmware.iter().chain(raw) {
            let file = firmware.join(name);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, name).unwrap();
        }
    }

    /// Writes an overlay and a firmware directory for a test.
    fn overlay(text: &str, files: &[&str]) -> (tempfile::TempDir, PathBuf, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let (overlay, firmware) = (dir.path().join("board"), dir.path().join("firmware"));
        std::fs::create_dir_all(overlay.join("esp")).unwrap();
        std::fs::create_dir_all(&firmware).unwrap();
        std::fs::write(overlay.join(FILE), text).unwrap();
        for file in files {
            let path = dir.path().join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, file).unwrap();
        }
        (dir, overlay, firmware)
    }

    const BOARD: &str = "name = \"board\"\narch = \"arm64\"\nkernel-arguments = [\"console=ttyS1\"]\npartition-offset = 16777216\n\
        device-trees = [\"broadcom/bcm2711-rpi-4-b.dtb\"]\nfirmware = [\"start4.elf\"]\n\
        [[raw]]\nfile = \"loader.bin\"\noffset = 32768\n";
    const FILES: [&str; 3] = [
        "board/esp/config.txt",
        "firmware/start4.elf",
        "firmware/loader.bin",
    ];

    #[test]
    fn overlay_combines_the_board_files_with_the_firmware_of_the_builder() {
        let (_dir, board, firmware) = overlay(BOARD, &FILES);
        let read = Overlay::read(&board, Some(&firmware), Arch::Arm64).unwrap();
        let paths: Vec<&str> = read.esp.keys().map(String::as_str).collect();
        assert_eq!(paths, ["config.txt", "start4.elf"]);
        assert_eq!(read.raw[&32768], firmware.join("loader.bin"));
        assert_eq!(read.name.as_deref(), Some("board"));
        assert!(read.is_of_disk() && !Overlay::default().is_of_disk());
        assert_eq!(read.partition_offset, Some(16 << 20));
        assert_eq!(read.kernel_arguments, ["console=ttyS1"]);
        let key = |overlay: &Overlay| overlay.key(KeyBuilder::new("x")).unwrap().finish();
        let before = key(&read);
        std::fs::write(firmware.join("start4.elf"), "another").unwrap();
        assert!(key(&read) != before);
    }

    #[test]
    fn every_board_of_the_repository_can_be_built_with_its_firmware() {
        let boards = Path::new(env!("CARGO_MANIFEST_DIR")).join("boards");
        let entries = std::fs::read_dir(boards)
            .unwrap()
            .map(|entry| entry.unwrap().path());
        let profiles = entries.filter(|path| path.extension().is_some_and(|end| end == "toml"));
        let mut read = 0;
        for path in profiles {
            let profile = Profile::read(&path).unwrap();
            let overlay = profile.overlay.unwrap();
            let firmware = tempfile::tempdir().unwrap();
            write_firmware(&overlay, firmware.path());
            let found = Overlay::read(&overlay, Some(firmware.path()), profile.arch).unwrap();
            assert_eq!(found.name.as_deref(), path.file_stem().unwrap().to_str());
            assert!(found.is_of_disk());
            read += 1;
        }
        assert!(read > 0);
    }

    #[test]
    fn overlay_problem_is_named_with_a_remedy() {
        let failure = |text: &str, files: &[&str], arch: Arch| {
            let (_dir, board, firmware) = overlay(text, files);
            format!(
                "{:#}",
                Overlay::read(&board, Some(&firmware), arch).unwrap_err()
            )
        };
        let arm64 = |text: &str, files: &[&str]| failure(text, files, Arch::Arm64);
        assert!(
            arm64(BOARD, &FILES[..1]).contains("needs start4.elf of the board's boot firmware")
        );
        assert!(failure(BOARD, &FILES, Arch::X86_64).contains("is for arm64"));
        assert!(arm64("name = \"board\"\narch = \"arm64\"\ncolour = 1\n", &[]).contains("colour"));
        assert!(arm64("arch = \"arm64\"\n", &[]).contains("name"));
        for bad in ["", "A", "../x", "a b", "a.raw"] {
            let text = format!("name = {bad:?}\narch = \"arm64\"\n");
            assert!(
                arm64(&text, &[]).contains(&format!("name {bad:?} cannot be a part")),
                "{bad}"
            );
        }
        for bad in ["0", "1000", "4611686018427387904"] {
            let text = format!("name = \"board\"\narch = \"arm64\"\npartition-offset = {bad}\n");
            assert!(arm64(&text, &[]).contains("partition-offset"), "{bad}");
        }
        let text = "name = \"board\"\narch = \"arm64\"\ndevice-trees = [\"x.dtb\"]\n";
        assert!(arm64(text, &[]).contains("no \"x.dtb\""));
        for bad in ["Efi/boot.efi", "../x", "/x", "a//b", "loader/x", "EFI./x"] {
            let text = format!("name = \"board\"\narch = \"arm64\"\nfirmware = [{bad:?}]\n");
            let why = format!("{bad:?} cannot be a file of an overlay");
            assert!(arm64(&text, &[]).contains(&why), "{bad}");
        }
        let raw = |file: &str| format!("[[raw]]\nfile = {file:?}\noffset = 4096\n");
        for bad in ["../../x", "/x"] {
            let text = format!("name = \"board\"\narch = \"arm64\"\n{}", raw(bad));
            let why = format!("{bad:?} cannot be a file of an overlay");
            assert!(arm64(&text, &[]).contains(&why), "{bad}");
        }
        let text = format!(
            "name = \"board\"\narch = \"arm64\"\n{}{}",
            raw("a"),
            raw("b")
        );
        let why = "raw: there are two files at offset 4096";
        assert!(arm64(&text, &["firmware/a", "firmware/b"]).contains(why));
        let text = "name = \"board\"\narch = \"arm64\"\nfirmware = [\"config.txt\"]\n";
        let files = ["board/esp/config.txt", "firmware/config.txt"];
        assert!(arm64(text, &files).contains("firmware: \"config.txt\" is given twice"));
        let (dir, board, firmware) =
            overlay("name = \"board\"\narch = \"arm64\"\n", &["secret/key"]);
        std::fs::remove_dir(board.join(ESP)).unwrap();
        std::os::unix::fs::symlink(dir.path().join("secret"), board.join(ESP)).unwrap();
        Overlay::read(&board, Some(&firmware), Arch::Arm64).unwrap_err();
        let (_dir, board, _) = overlay(BOARD, &FILES);
        Overlay::read(&board, None, Arch::Arm64).unwrap_err();
    }
}
