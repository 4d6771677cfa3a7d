//! Where things are in the repository, and its programs.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The repository.
#[must_use]
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("tests/ is inside the repository")
}

/// Cargo's target directory.
#[must_use]
pub fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

/// The builder's cache of who runs the tests.
///
/// # Panics
/// Without a home directory.
#[must_use]
pub fn cache() -> PathBuf {
    std::env::var_os("CORTEN_CACHE").map_or_else(
        || {
            let home = std::env::home_dir().expect("a home directory");
            home.join(".cache/corten")
        },
        PathBuf::from,
    )
}

/// What of a cache was fetched and not made, as paths in it: mkimage's files, and Go's modules.
pub const DOWNLOADS: [&str; 2] = ["fetch", "go/modules/cache/download"];

/// The builder; compiled by who needs it.
#[must_use]
pub fn mkimage() -> PathBuf {
    target().join("debug/mkimage")
}

/// Copies the tracked files, as they are now, to another directory.
///
/// # Panics
/// When one cannot be copied.
pub fn copy_sources(to: &Path) {
    for path in tracked() {
        let to = to.join(&path);
        std::fs::create_dir_all(to.parent().expect("a directory")).expect("a directory");
        std::fs::copy(root().join(&path), to).expect("a copy of a tracked file");
    }
}

/// Copies a file or a whole directory; what is not there is not copied.
///
/// # Panics
/// When it cannot be copied.
pub fn copy(from: &Path, to: &Path) {
    if !from.exists() {
        return;
    }
    std::fs::create_dir_all(to.parent().expect("a directory")).expect("a directory");
    let status = Command::new("cp")
        .args(["--recursive", "--reflink=auto", "--no-target-directory"])
        .args([from, to])
        .status()
        .expect("cp runs");
    assert!(status.success(), "copying {}", from.display());
}

/// Every tracked file, relative to the repository.
///
/// # Panics
/// Outside a git checkout.
#[must_use]
pub fn tracked() -> Vec<PathBuf> {
    let output = Command::new("git")
        .args(["ls-files", "-z", "--cached"])
        .current_dir(root())
        .output()
        .expect("git is installed");
    assert!(output.status.success(), "git ls-files failed");
    String::from_utf8(output.stdout)
        .expect("file names are UTF-8")
        .split_terminator('\0')
        .map(PathBuf::from)
        // A file may be deleted in the work tree and not yet in the index.
        .filter(|path| root().join(path).is_file())
        .collect()
}

/// Runs cargo in the repository and panics with its output if it fails.
///
/// # Panics
/// When cargo fails.
pub fn cargo(arguments: &[&str], environment: &[(&str, &str)]) {
    // The one that runs the tests, so that nothing is compiled twice.
    let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(program)
        .args(arguments)
        .envs(environment.iter().copied())
        .current_dir(root())
        .output()
        .expect("cargo runs");
    assert!(
        output.status.success(),
        "cargo {}:\n{}",
        arguments.join(" "),
        String::from_utf8_lossy(&output.stderr)
    );
}

/// The client, built once per test program from the sources beside the tests.
#[must_use]
pub fn cortenctl() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| program("cortenctl"))
}

/// The program of this name, of the sources beside the tests.
#[must_use]
pub fn program(name: &str) -> PathBuf {
    // All of it, as `cargo test` does: a part alone is compiled with other features, anew.
    let all = ["--workspace", "--lib", "--bins", "--tests"];
    cargo(&[&["build", "--quiet"], &all[..]].concat(), &[]);
    target().join("debug").join(name)
}
