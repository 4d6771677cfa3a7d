//! Promise: the same sources give the same bytes in every format, independent of user, place and time of the build.
//!
//! `CORTEN_REPRO_TRUST` names the steps that the second build takes from the first one's cache, signed with a temporary
//! key. The default is `kernel`. If it is empty, everything is built again.
#![expect(clippy::unwrap_used, reason = "a failing step is a failing test")]

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File, Permissions};
use std::io::Read;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

use corten_steps::cache::{OUTPUTS, STEPS};
use mkimage::output::Output;
use tests::workspace::{DOWNLOADS, copy, copy_sources, mkimage};
use tests::{images, workspace};

/// An unused user and group id.
const NOBODY: &str = "54321";
/// The environment of the second build, besides a fresh home.
const ELSEWHERE: [(&str, &str); 5] = [
    ("LC_ALL", "tr_TR.UTF-8"),
    ("LANG", "tr_TR.UTF-8"),
    ("TZ", "Pacific/Kiritimati"),
    ("USER", "somebody"),
    ("LOGNAME", "somebody"),
];

/// The target of both builds: without `--output`, every format of the architecture.
fn target() -> [&'static str; 2] {
    ["--arch", images::arch().name()]
}

/// The inputs that are not files, the same for both builds.
fn inputs() -> [(&'static str, String); 3] {
    let or = |name: &str, default: &str| std::env::var(name).unwrap_or_else(|_| default.to_owned());
    [
        ("SOURCE_DATE_EPOCH", or("SOURCE_DATE_EPOCH", "1700000000")),
        ("CORTEN_VERSION", or("CORTEN_VERSION", "0.1.0")),
        ("CORTEN_COMMIT", or("CORTEN_COMMIT", "0123456789ab")),
    ]
}

/// Builds every format as a user of this machine does.
fn build_here(out: &Path) {
    let status = Command::new(mkimage())
        .arg("build")
        .args(target())
        .arg("--out")
        .arg(out)
        .current_dir(workspace::root())
        .envs(inputs())
        .status()
        .unwrap();
    assert!(status.success(), "the first build failed ({status})");
}

/// Builds every format from downloads alone, in an environment that differs in every respect.
///
/// It starts from downloads only, in another directory, as another user on another host. Umask, locale and time zone
/// differ. It has no network and one processor. Its files are readable only by their owner and dated in the last
/// century. A build never reads the clock; only a virtual machine could set another one.
fn build_elsewhere(home: &Path) -> PathBuf {
    let (source, cache) = (home.join("source"), home.join("cache"));
    let (registry, trusted) = (home.join("cargo/registry"), home.join("trusted"));
    copy_sources(&source);
    for downloads in DOWNLOADS {
        copy(&workspace::cache().join(downloads), &cache.join(downloads));
    }
    let cargo_home = std::env::var_os("CARGO_HOME").map_or_else(
        || std::env::home_dir().unwrap().join(".cargo"),
        PathBuf::from,
    );
    for part in ["index", "cache"] {
        copy(
            &cargo_home.join("registry").join(part),
            &registry.join(part),
        );
    }
    fs::create_dir_all(&trusted).unwrap();
    for (entry, output) in trusted_steps() {
        println!("not built again: {entry}");
        let record = Path::new(STEPS).join(entry);
        copy(&workspace::cache().join(&record), &trusted.join(&record));
        let name = output.file_name().unwrap();
        copy(&output, &trusted.join(OUTPUTS).join(name));
    }
    let trust = workspace::sign_steps(&trusted, &home.join("keys"));
    // Copies of mkimage and cargo: the second user may have no access to the originals.
    let bin = home.join("bin");
    copy(&mkimage(), &bin.join("mkimage"));
    copy(Path::new(&cargo()), &bin.join("cargo"));
    estrange(home);

    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut command = isolated();
    command
        .arg(bin.join("mkimage"))
        .args(["build", "--offline", "--jobs", "1"])
        .args(target())
        .arg("--source")
        .arg(&source)
        .arg("--cache")
        .arg(&cache)
        .arg("--substituter")
        .arg(&trusted)
        .arg("--trust")
        .arg(&trust)
        .arg("--out")
        .arg(home.join("out"))
        .env_clear()
        .env("PATH", [bin.as_os_str(), &path].join(&OsString::from(":")))
        .env("CARGO", bin.join("cargo"))
        .env("CARGO_HOME", home.join("cargo"))
        .env("HOME", home)
        .envs(ELSEWHERE)
        .envs(inputs())
        .current_dir(home);
    let status = command.status().unwrap();
    assert!(
        status.success(),
        "the build in {} failed ({status})",
        home.display()
    );
    home.join("out")
}

/// The cargo that runs the tests, not rustup's proxy.
fn cargo() -> OsString {
    std::env::var_os("CARGO").unwrap_or_else(|| "/usr/bin/cargo".into())
}

/// The steps that are taken from the first build's cache, with their outputs.
fn trusted_steps() -> Vec<(String, PathBuf)> {
    let is_trusted = trusted_names();
    let planned = workspace::plan(&inputs()).into_iter();
    planned
        .filter(|(name, _, _)| is_trusted.contains(name))
        .map(|(name, key, output)| (format!("{name}-{key}"), output.unwrap()))
        .collect()
}

/// The names of those steps, which are not built twice.
fn trusted_names() -> Vec<String> {
    let trusted = std::env::var("CORTEN_REPRO_TRUST").unwrap_or_else(|_| "kernel".to_owned());
    let names = trusted.split(',').filter(|name| !name.is_empty());
    names.map(str::to_owned).collect()
}

/// Makes every file below `home` private to its owner, dated in the last century, and owned by
/// another user where that is possible.
fn estrange(home: &Path) {
    let old = SystemTime::UNIX_EPOCH + Duration::from_secs(915_148_800);
    for path in everything(home) {
        let mode = fs::symlink_metadata(&path).unwrap().mode();
        if path.is_symlink() {
            continue;
        }
        fs::set_permissions(&path, Permissions::from_mode(mode & 0o700)).unwrap();
        File::open(&path).unwrap().set_modified(old).unwrap();
    }
    if is_root() {
        let owner = format!("{NOBODY}:{NOBODY}");
        let status = Command::new("chown")
            .args(["--recursive", "--no-dereference", &owner])
            .arg(home)
            .status()
            .unwrap();
        assert!(status.success());
    }
}

fn is_root() -> bool {
    fs::metadata("/proc/self").unwrap().uid() == 0
}

/// A command that runs the rest of its arguments on one processor, without network, with another
/// host name and umask, as an unprivileged user. As root it uses another user, otherwise a user
/// namespace with another id.
fn isolated() -> Command {
    let inside = "hostname unheard-of && umask 077 && exec taskset --cpu-list 0 \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["--uts", "--net"]);
    if is_root() {
        command.args(["sh", "-c", inside, "sh", "setpriv", "--clear-groups"]);
        command.args(["--reuid", NOBODY, "--regid", NOBODY]);
        command.args(["--inh-caps=-all", "--bounding-set=-all", "--no-new-privs"]);
    } else {
        command.args(["--user", "--map-root-user"]);
        command.args(["sh", "-c", inside, "sh", "unshare", "--user"]);
        command.args(["--map-user", NOBODY, "--map-group", NOBODY]);
    }
    command
}

/// `dir` and all below it.
fn everything(dir: &Path) -> Vec<PathBuf> {
    let mut found = vec![dir.to_owned()];
    let mut open = vec![dir.to_owned()];
    while let Some(next) = open.pop() {
        for entry in fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() && !path.is_symlink() {
                open.push(path.clone());
            }
            found.push(path);
        }
    }
    found
}

/// Every file below `dir`, by path relative to it.
fn files(dir: &Path) -> BTreeMap<PathBuf, PathBuf> {
    everything(dir)
        .into_iter()
        .filter(|path| path.is_file())
        .map(|path| (path.strip_prefix(dir).unwrap().to_owned(), path))
        .collect()
}

/// Offset of the first byte that differs; `None` if the files are equal.
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

/// The differing part of the image, found by `mkimage verify`'s comparison.
fn explain(name: &Path, one: &Path, two: &Path) -> String {
    let scratch = tempfile::tempdir().unwrap();
    let tools = workspace::step_output("tools").unwrap();
    let tools = corten_steps::toolchain::Locked::new(&tools);
    match corten_image::compare::first_difference(one, two, &tools, scratch.path()) {
        Ok(Some(part)) => format!("{}: {part}", name.display()),
        _ => name.display().to_string(),
    }
}

#[test]
#[ignore = "make repro"]
fn two_builds_are_identical() {
    workspace::cargo(&["build", "--quiet", "--workspace"], &[]);
    let scratch = tempfile::tempdir().unwrap();
    // Readable by the other user, who gets a directory in it.
    fs::set_permissions(scratch.path(), Permissions::from_mode(0o755)).unwrap();
    let here = scratch.path().join("a");
    build_here(&here);
    let home = scratch.path().join("another/much/longer/path/b");
    let there = build_elsewhere(&home);
    let (one, two) = (files(&here), files(&there));
    let names = |files: &BTreeMap<PathBuf, PathBuf>| files.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&one), names(&two));
    for output in Output::of(images::builder_arch()) {
        let ending = output.suffix();
        let built = |name: &PathBuf| {
            name.iter()
                .any(|part| part.to_string_lossy().ends_with(ending))
        };
        assert!(one.keys().any(built), "no {output} among {:?}", names(&one));
    }
    let mut different = Vec::new();
    for (name, path) in &one {
        match first_difference(path, &two[name]) {
            Some(at) => different.push(format!("{} (byte {at})", explain(name, path, &two[name]))),
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
