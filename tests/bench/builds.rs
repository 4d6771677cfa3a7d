//! Build times of a disk image: after a change of one line, and from downloads only.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use ::tests::workspace;
use anyhow::{Context as _, ensure};
use corten_steps::cache::{OUTPUTS, STEPS};

use crate::document::Section;
use crate::report::verdict;

/// The title of the section that is measured only on request.
pub const COLD: &str = "Build from nothing";
/// Limits of docs/promises.md, in seconds.
const REBUILD_LIMIT: f64 = 60.0;
const COLD_LIMIT: f64 = 25.0 * 60.0;
const KERNEL_LIMIT: f64 = 15.0 * 60.0;
/// The changed file, in a large part of machined.
const CHANGED: &str = "node/server/src/logs.rs";

/// A finished build.
#[derive(Debug, Default)]
struct Built {
    seconds: f64,
    /// Every step that was not in the cache, with its time in seconds.
    steps: Vec<(String, f64)>,
}

/// A disk image after a change of one line in machined, for development and as shipped.
pub fn again(directory: &Path) -> anyhow::Result<Section> {
    let source = sources(directory)?;
    // A cache of its own for the changed steps, with the user's cache as substituter for all
    // others.
    let (cache, finished) = (directory.join("again"), workspace::cache());
    remove(&cache)?;
    // Go's modules must be copied: Go reads them from one directory only.
    let [_, modules] = workspace::DOWNLOADS;
    workspace::copy(&finished.join(modules), &cache.join(modules));
    let (signed, trust) = signed(directory, &finished)?;
    let [finished, trust] = [&signed, &trust].map(|path| path.to_str());
    let finished = finished.context("the path of the cache is not UTF-8")?;
    let trust = trust.context("the path of the key is not UTF-8")?;
    let mut rows = Vec::new();
    for (name, more) in [("quick", &["--quick"][..]), ("as shipped", &[])] {
        let more = [&["--substituter", finished, "--trust", trust][..], more].concat();
        // Not measured: compiles everything that the change does not affect.
        build(&source, &cache, directory, &more)?;
        change_a_line(&source.join(CHANGED))?;
        rows.push((name, build(&source, &cache, directory, &more)?));
    }
    remove(&cache)?;
    let mut text = String::from(
        "The raw disk image of x86_64 after a change of one line in machined; everything else is in the cache. \
         `--quick` is\nwhat `make run` builds.\n\n| build | time | limit | |\n|---|---|---|---|\n",
    );
    for (name, built) in rows {
        let limit = (name == "quick").then_some(REBUILD_LIMIT);
        text.push_str(&row(name, built.seconds, limit));
    }
    Ok(Section {
        title: "Rebuild after a change of one line".to_owned(),
        text,
    })
}

/// A view of the user's cache with signed steps, and the key that verifies them. The user's cache
/// itself stays unchanged.
fn signed(directory: &Path, cache: &Path) -> anyhow::Result<(PathBuf, PathBuf)> {
    let (view, keys) = (directory.join("signed"), directory.join("keys"));
    remove(&view)?;
    remove(&keys)?;
    fs::create_dir_all(&view)?;
    for shared in ["fetch", OUTPUTS] {
        std::os::unix::fs::symlink(cache.join(shared), view.join(shared))?;
    }
    workspace::copy(&cache.join(STEPS), &view.join(STEPS));
    let trust = workspace::sign_steps(&view, &keys);
    Ok((view, trust))
}

/// A disk image with an empty cache, except for the downloads.
pub fn cold(directory: &Path) -> anyhow::Result<Section> {
    let source = sources(directory)?;
    let cache = directory.join("cold");
    remove(&cache)?;
    for downloads in workspace::DOWNLOADS {
        workspace::copy(&workspace::cache().join(downloads), &cache.join(downloads));
    }
    let built = build(&source, &cache, directory, &[])?;
    remove(&cache)?;
    let mut text = String::from(
        "The raw disk image of x86_64 with an empty cache but for the downloads.\n\n\
         | step | time | limit | |\n|---|---|---|---|\n",
    );
    let mut steps = built.steps;
    steps.sort_by(|(_, one), (_, other)| other.total_cmp(one));
    for (step, seconds) in steps.iter().filter(|(_, seconds)| *seconds >= 1.0) {
        let limit = (step == "kernel").then_some(KERNEL_LIMIT);
        text.push_str(&row(step, *seconds, limit));
    }
    text.push_str(&row("all", built.seconds, Some(COLD_LIMIT)));
    Ok(Section {
        title: COLD.to_owned(),
        text,
    })
}

fn row(name: &str, seconds: f64, limit: Option<f64>) -> String {
    let (limit, kept) = limit.map_or_else(Default::default, |limit| {
        (format!("{limit} s"), verdict(seconds, limit))
    });
    format!("| {name} | {seconds:.1} s | {limit} | {kept} |\n")
}

/// A copy of the sources, for changes.
fn sources(directory: &Path) -> anyhow::Result<PathBuf> {
    let source = directory.join("source");
    remove(&source)?;
    workspace::copy_sources(&source);
    Ok(source)
}

fn remove(directory: &Path) -> anyhow::Result<()> {
    if directory.exists() {
        let removed = fs::remove_dir_all(directory);
        removed.with_context(|| format!("removing {}", directory.display()))?;
    }
    Ok(())
}

/// Adds a line that no earlier build had, and that the compiler keeps.
fn change_a_line(file: &Path) -> anyhow::Result<()> {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?;
    let now = now.as_nanos();
    let line = format!("\n#[used] static MEASURED_{now}: u128 = {now};\n");
    fs::OpenOptions::new()
        .append(true)
        .open(file)?
        .write_all(line.as_bytes())?;
    Ok(())
}

fn build(source: &Path, cache: &Path, directory: &Path, more: &[&str]) -> anyhow::Result<Built> {
    let begin = Instant::now();
    let output = Command::new(workspace::mkimage())
        .args(["build", "--offline", "--arch", "x86_64", "--output", "raw"])
        .args(["--format", "json", "--source"])
        .arg(source)
        .arg("--cache")
        .arg(cache)
        .arg("--out")
        .arg(directory.join("images"))
        .args(more)
        .env("SOURCE_DATE_EPOCH", "1700000000")
        .stderr(Stdio::inherit())
        .output()
        .context("run mkimage")?;
    let seconds = begin.elapsed().as_secs_f64();
    ensure!(
        output.status.success(),
        "mkimage ended with {}",
        output.status
    );
    let steps = String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter_map(step)
        .collect();
    Ok(Built { seconds, steps })
}

/// A built step, from a line of `mkimage build --format json`.
fn step(line: &str) -> Option<(String, f64)> {
    let step: serde_json::Value = line.parse().ok()?;
    let built = !step.get("cached")?.as_bool()?;
    let name = step.get("step")?.as_str()?.to_owned();
    built.then_some((name, step.get("seconds")?.as_f64()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cached_steps_are_not_measured() {
        let line = |cached| format!(r#"{{"step": "kernel", "cached": {cached}, "seconds": 9.5}}"#);
        assert_eq!(step(&line(false)), Some(("kernel".to_owned(), 9.5)));
        assert_eq!(step(&line(true)), None);
        assert_eq!(step(r#"{"output": "corten.raw"}"#), None);
    }

    #[test]
    fn file_changed_twice_is_recompiled() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("lib.rs");
        fs::write(&file, "").unwrap();
        change_a_line(&file).unwrap();
        change_a_line(&file).unwrap();
        let text = fs::read_to_string(&file).unwrap();
        let name = |line: &str| line.split_once(": u128").map(|(item, _)| item.to_owned());
        let names: Vec<String> = text.lines().filter_map(name).collect();
        assert!(
            matches!(names.as_slice(), [one, two] if one != two),
            "{text}"
        );
    }

    #[test]
    fn exceeded_limit_is_reported() {
        assert_eq!(
            row("all", 61.04, Some(60.0)),
            "| all | 61.0 s | 60 s | NOT KEPT |\n"
        );
        assert_eq!(row("uki", 2.0, None), "| uki | 2.0 s |  |  |\n");
    }
}
