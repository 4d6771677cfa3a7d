//! Promise: the same sources give the same bytes in every format, whoever
//! builds them, wherever and when.
//!
//! Two builds from empty caches (only what was fetched is shared), one after
//! the other, so that the clock differs by itself.
#![expect(clippy::unwrap_used, reason = "a failing step is a failing test")]

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;

use tests::workspace;

/// One way to build. Everything in it differs between the two.
struct Environment {
    /// Directory below the scratch directory: another name, another depth.
    place: &'static str,
    umask: &'static str,
    jobs: &'static str,
    variables: &'static [(&'static str, &'static str)],
    /// In a user and host-name namespace of its own, as nobody in particular.
    elsewhere: bool,
}

const HERE: Environment = Environment {
    place: "a",
    umask: "022",
    jobs: "2",
    variables: &[("LC_ALL", "C"), ("TZ", "UTC")],
    elsewhere: false,
};

const ELSEWHERE: Environment = Environment {
    place: "another/much/longer path/b",
    umask: "077",
    jobs: "3",
    variables: &[
        ("LC_ALL", "C.UTF-8"),
        ("LANG", "tr_TR.UTF-8"),
        ("TZ", "Pacific/Kiritimati"),
        ("USER", "somebody"),
        ("LOGNAME", "somebody"),
        ("KBUILD_BUILD_HOST", "unheard"),
    ],
    elsewhere: true,
};

fn copy_sources(to: &Path) {
    for path in workspace::tracked() {
        let target = to.join(&path);
        fs::create_dir_all(target.parent().unwrap()).unwrap();
        fs::copy(workspace::root().join(&path), &target).unwrap();
    }
}

/// Builds every format; the output directory.
fn build(scratch: &Path, environment: &Environment) -> PathBuf {
    let home = scratch.join(environment.place);
    let (source, cache, out) = (home.join("source"), home.join("cache"), home.join("out"));
    fs::create_dir_all(&cache).unwrap();
    copy_sources(&source);
    let fetched = std::env::var_os("CORTEN_CACHE").map_or_else(
        || std::env::home_dir().unwrap().join(".cache/corten"),
        PathBuf::from,
    );
    // Downloads only: nothing that was compiled.
    for shared in ["fetch", "go/modules"] {
        let (there, here) = (fetched.join(shared), cache.join(shared));
        fs::create_dir_all(here.parent().unwrap()).unwrap();
        if there.is_dir() {
            std::os::unix::fs::symlink(there, here).unwrap();
        }
    }
    let script = format!("umask {} && exec \"$@\"", environment.umask);
    let mut command = if environment.elsewhere {
        let mut command = Command::new("unshare");
        // Any user but root, and a host name nobody has.
        command.args([
            "--user",
            "--map-user=1234",
            "--map-group=1234",
            "--uts",
            "--",
        ]);
        command
    } else {
        Command::new("env")
    };
    let status = command
        .args(["sh", "-c", &script, "sh"])
        .arg(workspace::target().join("debug/mkimage"))
        .args([
            "build",
            "--arch",
            "x86_64",
            "--jobs",
            environment.jobs,
            "--source",
        ])
        .arg(&source)
        .arg("--cache")
        .arg(&cache)
        .arg("--out")
        .arg(&out)
        .arg("--output")
        .arg("raw,iso,pxe,uki,qcow2,vhd,vmdk,ova,gcp,installer")
        .envs(environment.variables.iter().copied())
        .env("HOME", &home)
        .current_dir(&home)
        .status()
        .unwrap();
    assert!(
        status.success(),
        "the build in {} failed ({status})",
        home.display()
    );
    out
}

/// Every file below `dir`, by path relative to it.
fn files(dir: &Path) -> BTreeMap<PathBuf, PathBuf> {
    let mut found = BTreeMap::new();
    let mut open = vec![dir.to_owned()];
    while let Some(next) = open.pop() {
        for entry in fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
            } else {
                found.insert(path.strip_prefix(dir).unwrap().to_owned(), path);
            }
        }
    }
    found
}

/// Position of the first byte that differs; `None` if the files are the same.
fn first_difference(one: &Path, two: &Path) -> Option<u64> {
    let (mut one, mut two) = (File::open(one).unwrap(), File::open(two).unwrap());
    let mut at = 0;
    loop {
        let (mut a, mut b) = (Vec::new(), Vec::new());
        one.by_ref().take(1 << 20).read_to_end(&mut a).unwrap();
        two.by_ref().take(1 << 20).read_to_end(&mut b).unwrap();
        if a != b {
            let same = a.iter().zip(&b).take_while(|(a, b)| a == b).count();
            return Some(at + same as u64);
        }
        if a.is_empty() {
            return None;
        }
        at += a.len() as u64;
    }
}

#[test]
#[ignore = "make repro"]
fn two_builds_are_identical() {
    workspace::cargo(&["build", "--quiet", "-p", "mkimage"], &[]);
    let scratch = tempfile::tempdir().unwrap();
    let one = files(&build(scratch.path(), &HERE));
    let two = files(&build(scratch.path(), &ELSEWHERE));
    let names = |files: &BTreeMap<PathBuf, PathBuf>| files.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&one), names(&two));
    assert!(one.len() > 10, "only {:?} were built", names(&one));
    let mut different = Vec::new();
    for (name, path) in &one {
        match first_difference(path, &two[name]) {
            Some(at) => different.push(format!("{}: byte {at}", name.display())),
            None => println!("same: {}", name.display()),
        }
    }
    assert!(different.is_empty(), "{}", different.join("\n"));
    println!("{} files, 0 differing bytes", one.len());
}

#[test]
fn the_first_difference_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, bytes: &[u8]| {
        let path = dir.path().join(name);
        fs::write(&path, bytes).unwrap();
        path
    };
    let long = vec![7; (1 << 20) + 5];
    let mut changed = long.clone();
    changed[(1 << 20) + 2] = 8;
    let (a, b, c) = (
        write("a", &long),
        write("b", &changed),
        write("c", &long[..9]),
    );
    assert_eq!(first_difference(&a, &a), None);
    assert_eq!(first_difference(&a, &b), Some((1 << 20) + 2));
    assert_eq!(first_difference(&a, &c), Some(9));
}
