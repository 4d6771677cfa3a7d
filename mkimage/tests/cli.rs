//! Invalid input ends in one clear error that names it, and leaves no partial output.
#![expect(clippy::expect_used, reason = "a failing step is a failing test")]

use std::path::Path;
use std::process::{Command, Output};

/// Runs mkimage on the repository with a cache of its own, without network.
fn mkimage(cache: &Path, args: &[&str]) -> Output {
    command(cache, args).output().expect("mkimage starts")
}

fn command(cache: &Path, args: &[&str]) -> Command {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut command = Command::new(env!("CARGO_BIN_EXE_mkimage"));
    command
        .args(args)
        .current_dir(repository)
        .env("CORTEN_CACHE", cache)
        .env_remove("CORTEN_VERSION");
    command
}

/// The error text of a call that must fail.
fn fails(args: &[&str]) -> String {
    let cache = tempfile::tempdir().expect("a directory");
    let output = mkimage(cache.path(), args);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success(), "{args:?} was accepted");
    assert!(!text.contains("panicked"), "{text}");
    text
}

#[test]
fn an_unknown_architecture_is_named_with_the_known_ones() {
    let text = fails(&["plan", "--arch", "riscv64"]);
    assert!(text.contains("riscv64"), "{text}");
}

#[test]
fn an_unknown_format_is_named_with_the_known_ones() {
    let text = fails(&["plan", "--output", "raw,floppy"]);
    assert!(text.contains("floppy") && text.contains("iso"), "{text}");
}

#[test]
fn an_unknown_profile_key_is_named() {
    let dir = tempfile::tempdir().expect("a directory");
    let profile = dir.path().join("edge.toml");
    std::fs::write(&profile, "flavour = \"mild\"\n").expect("a profile");
    let text = fails(&["plan", "--profile", profile.to_str().expect("UTF-8")]);
    assert!(
        text.contains("flavour") && text.contains("remedy:"),
        "{text}"
    );
}

#[test]
fn a_kernel_argument_cannot_undo_the_hardening() {
    let text = fails(&[
        "plan",
        "--offline",
        "--kernel-argument",
        "module.sig_enforce=0",
    ]);
    assert!(
        text.contains("module.sig_enforce=0") && text.contains("remedy:"),
        "{text}"
    );
}

#[test]
fn container_images_of_each_architecture_have_their_own_steps_and_none_of_a_node() {
    let steps = |args: &[&str]| -> Vec<(String, String)> {
        let cache = tempfile::tempdir().expect("a directory");
        let output = mkimage(cache.path(), &[&["plan"][..], args].concat());
        assert!(output.status.success(), "{output:?}");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let lines = text.lines().filter_map(|line| {
            let mut words = line.split_whitespace().map(str::to_owned);
            Some((words.next()?, words.next()?))
        });
        lines.collect()
    };
    let key = |plan: &[(String, String)], step: &str| {
        let found = plan.iter().find(|(name, _)| name == step);
        found.map(|(_, key)| key.clone())
    };
    let [amd64, arm64] =
        ["x86_64", "arm64"].map(|arch| steps(&["--arch", arch, "--output", "images"]));
    for step in ["kubernetes", "container-images", "images"] {
        let (one, other) = (key(&amd64, step), key(&arm64, step));
        assert!(one.is_some() && other.is_some(), "{step}");
        assert_ne!(one, other, "{step}");
    }
    for step in ["kernel", "rootfs", "daemons"] {
        assert_eq!(key(&arm64, step), None, "{step}");
    }
    // A node's disk holds the same images.
    let node = steps(&["--arch", "arm64", "--output", "raw", "--with-images"]);
    for step in ["kubernetes", "container-images"] {
        assert_eq!(key(&node, step), key(&arm64, step), "{step}");
    }
    assert!(key(&node, "kernel").is_some() && key(&node, "imagecache").is_some());
}

#[test]
fn meta_value_without_a_tag_is_refused() {
    let text = fails(&["plan", "--meta", "text"]);
    assert!(text.contains("TAG=VALUE"), "{text}");
    let text = fails(&["plan", "--meta", "0x0=text"]);
    assert!(
        text.contains("META tag") && text.contains("remedy:"),
        "{text}"
    );
}

#[test]
fn build_without_a_date_warns_that_the_clock_has_no_lower_bound() {
    let warns = |output: &str, date: Option<&str>| {
        let cache = tempfile::tempdir().expect("a directory");
        let build = ["build", "--offline", "--output", output];
        let mut command = command(cache.path(), &build);
        match date {
            Some(date) => command.env("SOURCE_DATE_EPOCH", date),
            None => command.env_remove("SOURCE_DATE_EPOCH"),
        };
        let output = command.output().expect("mkimage starts");
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success(), "an empty cache sufficed: {text}");
        text.contains("export SOURCE_DATE_EPOCH=")
    };
    assert!(warns("raw", None) && warns("raw", Some("0")));
    assert!(!warns("raw", Some("1700000000")) && !warns("images", None));
}

#[test]
fn offline_build_with_an_empty_cache_names_the_missing_file() {
    let cache = tempfile::tempdir().expect("a directory");
    let out = tempfile::tempdir().expect("a directory");
    let target = out.path().join("images");
    let args = [
        "build",
        "--offline",
        "--out",
        target.to_str().expect("UTF-8"),
    ];
    let output = mkimage(cache.path(), &args);
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    assert!(
        text.contains("--offline") && text.contains("remedy:"),
        "{text}"
    );
    assert!(!target.exists(), "an output directory without an image");
    let steps = std::fs::read_dir(cache.path().join("steps"))
        .expect("the cache")
        .count();
    assert_eq!(steps, 0, "a broken cache entry");
}

#[test]
fn file_that_is_not_an_image_is_not_inspected() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("x.raw");
    std::fs::write(&file, b"nothing").expect("a file");
    let text = fails(&["inspect", file.to_str().expect("UTF-8")]);
    assert!(text.contains("remedy:"), "{text}");
}

#[test]
fn kernel_source_given_by_hand_must_match_the_lock() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("linux.tar.xz");
    std::fs::write(&file, b"another").expect("a file");
    let file = file.to_str().expect("UTF-8");
    for verb in ["config", "diff"] {
        let text = fails(&["kernel", verb, "--kernel-source", file]);
        assert!(text.contains("linux.tar.xz has SHA-256 "), "{text}");
        assert!(text.contains("remedy: give the tarball of "), "{text}");
    }
}

#[test]
fn overlay_that_needs_a_disk_is_refused_for_other_formats() {
    let dir = tempfile::tempdir().expect("a directory");
    let overlay = "name = \"board\"\narch = \"arm64\"\npartition-offset = 16777216\n";
    std::fs::write(dir.path().join("overlay.toml"), overlay).expect("an overlay");
    let overlay = [
        "--arch",
        "arm64",
        "--overlay",
        dir.path().to_str().expect("UTF-8"),
    ];
    for output in ["uki", "raw,iso", "pxe", "installer", "rootfs"] {
        let text = fails(&[&["plan", "--output", output][..], &overlay].concat());
        assert!(
            text.contains("the overlay for board needs a disk"),
            "{text}"
        );
        assert!(text.contains("remedy: remove that format"), "{text}");
    }
    let cache = tempfile::tempdir().expect("a directory");
    let output = mkimage(cache.path(), &[&["plan"][..], &overlay].concat());
    assert!(output.status.success());
    let plan = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        plan.contains("\nraw ") && !plan.contains("\niso "),
        "{plan}"
    );
}
