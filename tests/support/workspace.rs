//! Paths and programs of the repository.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The root of the repository.
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

/// The builder's cache of the user who runs the tests.
///
/// # Panics
/// The user has no home directory.
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

/// The fetched parts of a cache, as paths in it: mkimage's files, and Go's modules.
pub const DOWNLOADS: [&str; 2] = ["fetch", "go/modules/cache/download"];

/// The path of the builder, which the caller must compile.
#[must_use]
pub fn mkimage() -> PathBuf {
    target().join("debug/mkimage")
}

/// Copies the tracked files in their current state to another directory.
///
/// # Panics
/// A file cannot be copied.
pub fn copy_sources(to: &Path) {
    for path in tracked() {
        let to = to.join(&path);
        std::fs::create_dir_all(to.parent().expect("a directory")).expect("a directory");
        std::fs::copy(root().join(&path), to).expect("a copy of a tracked file");
    }
}

/// Copies a file or a whole directory; ignores a missing one.
///
/// # Panics
/// It cannot be copied.
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

/// Signs every finished step of a cache with a new key set in `keys`, and returns the public key
/// for `--trust`.
///
/// # Panics
/// A step does not match its record.
#[must_use]
pub fn sign_steps(cache: &Path, keys: &Path) -> PathBuf {
    for arguments in [&["keys"][..], &["cache", "sign", "--keys"]] {
        let output = Command::new(mkimage())
            .args(arguments)
            .arg(keys)
            .env("CORTEN_CACHE", cache)
            .output()
            .expect("mkimage runs");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}");
    }
    keys.join("cache.pub")
}

/// The steps of a build for the architecture under test with these variables: name, key, and output
/// if there is one.
///
/// # Panics
/// The builder cannot plan one.
#[must_use]
pub fn plan(variables: &[(&str, String)]) -> Vec<(String, String, Option<PathBuf>)> {
    let output = Command::new(mkimage())
        .args([
            "plan",
            "--format",
            "json",
            "--arch",
            crate::images::arch().name(),
        ])
        .current_dir(root())
        .envs(variables.iter().map(|(name, value)| (name, value)))
        .output()
        .expect("mkimage runs");
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    let steps = text.lines().map(|line| {
        let step: serde_json::Value = line.parse().expect("an object");
        let word = |name: &str| step.get(name).and_then(serde_json::Value::as_str);
        let (name, key) = (word("step").expect("a name"), word("key").expect("a key"));
        let output = word("output").map(PathBuf::from);
        (name.to_owned(), key.to_owned(), output)
    });
    steps.collect()
}

/// The output of a finished step, of a build for the architecture under test.
#[must_use]
pub fn step_output(step: &str) -> Option<PathBuf> {
    let mut steps = plan(&[]).into_iter();
    steps.find(|(name, _, _)| name == step)?.2
}

/// Every tracked file, relative to the repository.
///
/// # Panics
/// The repository is no git checkout.
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
        // A file may be deleted in the work tree but still in the index.
        .filter(|path| root().join(path).is_file())
        .collect()
}

/// Runs cargo in the repository.
///
/// # Panics
/// cargo fails; the message has its output.
pub fn cargo(arguments: &[&str], environment: &[(&str, &str)]) {
    // The cargo that runs the tests, so that nothing is compiled twice. Without what it tells a test of its package:
    // ring's build script runs again when these variables change, and everything above ring is compiled again.
    let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
            command.env_remove(&name);
        }
    }
    let output = command
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

/// Directory of the programs, if a script has built them: a user-mode kernel would take long to compile them again.
const PROGRAMS: &str = "CORTEN_PROGRAMS";

/// The program of this name, built from the sources beside the tests.
#[must_use]
pub fn program(name: &str) -> PathBuf {
    if let Some(programs) = std::env::var_os(PROGRAMS) {
        return Path::new(&programs).join(name);
    }
    // The whole workspace, as for `cargo test`: a part alone would be compiled again with other
    // features.
    let all = ["--workspace", "--lib", "--bins", "--tests"];
    cargo(&[&["build", "--quiet"], &all[..]].concat(), &[]);
    target().join("debug").join(name)
}
