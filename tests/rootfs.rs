//! Promise: the image contains only listed files; no shell, interpreter or package manager, no
//! set-id and no world-writable file. The test reads the shipped image with the file system's own
//! tool, not the builder's input.
#![expect(clippy::unwrap_used, reason = "a failing step is a failing test")]

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use corten_rootfs::programs;
use tests::{images, initramfs, workspace};

/// Modules change with the kernel's version; only the directory is listed.
const MODULES: &str = "/usr/lib/modules/";

#[derive(Debug, Clone, PartialEq, Eq)]
struct File {
    mode: String,
    owner: String,
    path: String,
    target: Option<String>,
}

impl File {
    fn is_program(&self) -> bool {
        self.mode.starts_with('-') && self.mode.contains('x')
    }

    fn golden_line(&self) -> String {
        let target = self.target.as_ref().map(|target| format!(" -> {target}"));
        format!(
            "{} {} {}{}",
            self.mode,
            self.owner,
            self.path,
            target.unwrap_or_default()
        )
    }
}

/// A line of `unsquashfs -lln`: mode, owner, size, date, time, path.
fn parse(line: &str) -> Option<File> {
    let mut words = line.split_whitespace();
    let mode = words.next()?.to_owned();
    let owner = words.next()?.replace('/', ":");
    let time = words.nth(2)?;
    let (_, name) = line.split_once(&format!(" {time} "))?;
    let (path, target) = match name.split_once(" -> ") {
        Some((path, target)) if mode.starts_with('l') => (path, Some(target.to_owned())),
        _ => (name, None),
    };
    Some(File {
        mode,
        owner,
        path: path.to_owned(),
        target,
    })
}

/// The files of the root file system in the network boot bundle.
fn files() -> Vec<File> {
    let boot = images::direct();
    let entries = initramfs::read(boot.initrd.as_deref().unwrap());
    let rootfs = entries
        .into_iter()
        .find(|entry| entry.name == "rootfs.squashfs")
        .unwrap();
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("rootfs.squashfs");
    fs::write(&image, rootfs.data).unwrap();
    let output = Command::new("unsquashfs")
        .args(["-dest", "", "-lln"])
        .arg(&image)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let text = String::from_utf8(output.stdout).unwrap();
    let lines = text.lines().filter(|line| !line.is_empty());
    let files: Vec<File> = lines.map(|line| parse(line).ok_or(line).unwrap()).collect();
    assert!(files.len() > 50, "only {} files listed", files.len());
    files
}

#[test]
#[ignore = "make test-vm"]
fn root_file_system_has_only_listed_programs_and_no_interpreter() {
    let files = files();
    let found: Vec<&File> = files
        .iter()
        .filter(|file| programs::is_interpreter(&file.path))
        .collect();
    assert!(found.is_empty(), "{found:?}");

    let list = fs::read_to_string(workspace::root().join("rootfs/executables.txt")).unwrap();
    let listed = programs::allowed(&list, images::builder_arch()).unwrap();
    let programs: BTreeSet<&str> = files
        .iter()
        .filter(|file| file.is_program())
        .map(|file| file.path.as_str())
        .collect();
    assert_eq!(programs, listed);
    assert!(
        programs.len() <= programs::MOST_EXECUTABLES,
        "{} programs",
        programs.len()
    );
}

#[test]
#[ignore = "make test-vm"]
fn root_file_system_has_no_set_id_or_world_writable_files() {
    for file in files() {
        let set_id = file.mode.contains(['s', 'S', 't', 'T']);
        let open = !file.mode.starts_with('l') && file.mode.chars().nth(8) == Some('w');
        assert!(!set_id && !open, "{file:?}");
        assert!(
            "-dl".contains(&file.mode[..1]),
            "neither file, directory nor link: {file:?}"
        );
    }
}

#[test]
#[ignore = "make test-vm"]
fn root_file_system_matches_the_golden_listing() {
    let golden = fs::read_to_string(
        workspace::root().join(format!("rootfs/golden/{}.txt", images::arch().name())),
    )
    .unwrap();
    let wanted: BTreeSet<&str> = golden.lines().filter(|line| !line.is_empty()).collect();
    let lines: Vec<String> = files()
        .iter()
        .filter(|file| file.path != "/" && !file.path.is_empty())
        .filter(|file| !file.path.starts_with(MODULES))
        .map(File::golden_line)
        .collect();
    let found: BTreeSet<&str> = lines.iter().map(String::as_str).collect();
    let missing: Vec<_> = wanted.difference(&found).collect();
    let added: Vec<_> = found.difference(&wanted).collect();
    assert!(
        missing.is_empty() && added.is_empty(),
        "missing: {missing:#?}\nnot listed: {added:#?}"
    );
}

#[test]
fn unsquashfs_lines_are_parsed() {
    let link = parse("lrwxrwxrwx 0/0                 7 1970-01-01 00:00 /bin -> usr/bin").unwrap();
    assert_eq!(link.golden_line(), "lrwxrwxrwx 0:0 /bin -> usr/bin");
    let file = parse("-rwxr-xr-x 0/0           1234567 2026-01-01 12:34 /usr/bin/a b").unwrap();
    assert!(file.is_program());
    assert_eq!(file.golden_line(), "-rwxr-xr-x 0:0 /usr/bin/a b");
}
