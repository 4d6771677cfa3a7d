//! The output of a build, `verify`, `sbom` and `cache prune`. Runs the real recipe, whose steps are
//! all finished in a substituter, so that no step is executed.
#![expect(clippy::expect_used, reason = "a failing step is a failing test")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use corten_steps::cache::{Cache, OUTPUTS, STEPS, digest, trust};
use serde_json::Value;

use support::{failed, limited, write_program};

mod support;

const VERSION: &str = "1.2.3";
/// The formats of these tests.
const FORMATS: &str = "uki,raw,pxe";
/// The licence of the Go module.
const LICENCES: &[u8] = br#"{"pkg:golang/example.org/a@v1.0.0": "Beerware"}"#;
/// Size of a disk in bytes, larger than the limit of [`BLOCKS`].
const DISK: usize = 1 << 20;
/// Limit for [`limited`]: 256 or 512 KiB, depending on the shell's block size.
const BLOCKS: u32 = 512;

/// Caches and an output directory for one test.
struct Site {
    dir: tempfile::TempDir,
}

impl Site {
    /// A site whose second cache has every finished step of the `x86_64` images.
    fn new() -> Self {
        let site = Self::without_steps();
        Cache::open(&site.path("finished"), Vec::new()).expect("a cache");
        for (name, key) in site.plan(&["--output", FORMATS]) {
            let out = site.path("finished/new");
            site.finish(&name, &out);
            let output = digest::of_tree(&out).expect("a digest");
            let kept = site.path("finished").join(OUTPUTS).join(&output);
            fs::rename(&out, &kept).expect("an output");
            let records = site.path("finished").join(STEPS);
            let record = serde_json::json!({"output": output}).to_string();
            fs::write(records.join(format!("{name}-{key}")), record).expect("a record");
        }
        let keys = site.path("keys");
        let mut sign = site.command(&["cache", "sign", "--keys", keys.to_str().expect("UTF-8")]);
        sign.env("CORTEN_CACHE", site.path("finished"));
        result(&sign.output().expect("mkimage"));
        site
    }

    /// A site without finished steps, with a key for signing them.
    fn without_steps() -> Self {
        let site = Self {
            dir: tempfile::tempdir().expect("a directory"),
        };
        let (keys, key) = (site.path("keys"), trust::Signer::generate().expect("a key"));
        fs::create_dir(&keys).expect("a directory");
        fs::write(keys.join(trust::PRIVATE), key.to_pem()).expect("a key");
        fs::write(keys.join(trust::PUBLIC), key.public().to_pem()).expect("a key");
        site
    }

    /// The record of a step in the second cache.
    fn record(&self, step: &str) -> PathBuf {
        let records = self.path("finished").join(STEPS);
        let prefix = format!("{step}-");
        let found = names(&records)
            .into_iter()
            .find(|name| name.strip_prefix(&prefix).is_some_and(digest::is_digest));
        records.join(found.expect("a record"))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Writes the files of a step's output that later steps, the bill of materials and the output
    /// directory need.
    fn finish(&self, step: &str, out: &Path) {
        let image = format!("corten-{VERSION}-x86_64");
        let write = |path: &str, content: &[u8]| write_program(&out.join(path), content);
        match step {
            // Called as --library-path DIRECTORY --argv0 rustc PROGRAM; runs the host's rustc
            // instead.
            "toolchain" => write(
                "usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2",
                b"#!/bin/sh\nshift 5\nexec rustc \"$@\"\n",
            ),
            "go-tools" => write(
                "usr/lib/go-1/bin/go",
                b"#!/bin/sh\nprintf '/x: go1\\n\\tdep\\texample.org/a\\tv1.0.0\\th1:x=\\n'\n",
            ),
            "licences" => write("licences.json", LICENCES),
            "uki" => write(&format!("{image}.efi"), b"program"),
            "raw" => write(&format!("{image}.raw"), &vec![7; DISK]),
            "pxe" => write(&format!("{image}-pxe/vmlinuz"), b"kernel"),
            _ => write("anything", step.as_bytes()),
        }
    }

    /// `mkimage` on the repository, without network.
    fn command(&self, arguments: &[&str]) -> Command {
        let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let mut command = Command::new(env!("CARGO_BIN_EXE_mkimage"));
        command
            .args(arguments)
            .arg("--substituter")
            .arg(self.path("finished"))
            .arg("--trust")
            .arg(self.path("keys").join(trust::PUBLIC))
            .current_dir(repository)
            .env("CORTEN_CACHE", self.path("cache"))
            .env("CORTEN_VERSION", VERSION)
            .env("SOURCE_DATE_EPOCH", "1700000000")
            .env("CORTEN_COMMIT", "0123456789ab")
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().expect("mkimage")
    }

    /// The standard output of a call that must succeed.
    fn say(&self, arguments: &[&str]) -> String {
        result(&self.run(arguments))
    }

    /// Name and key of each step of a build.
    fn plan(&self, arguments: &[&str]) -> Vec<(String, String)> {
        let arguments = [&["plan", "--format", "json"][..], arguments].concat();
        let said = self.say(&arguments);
        objects(&said)
            .iter()
            .map(|step| (word(step, "step"), word(step, "key")))
            .collect()
    }

    /// `mkimage build` with more arguments.
    fn build(&self, more: &[&str]) -> Output {
        let out = self.path("out");
        let out = out.to_str().expect("UTF-8");
        let all = ["build", "--offline", "--output", FORMATS, "--out", out];
        self.run(&[&all[..], more].concat())
    }

    /// `mkimage verify` of an image of the build.
    fn verify(&self, suffix: &str, more: &[&str]) -> Output {
        let image = self.image(suffix);
        let image = image.to_str().expect("UTF-8");
        self.run(&[&["verify", image, "--offline"][..], more].concat())
    }

    /// The names in the output directory, sorted.
    fn left(&self) -> Vec<String> {
        names(&self.path("out")).into_iter().collect()
    }

    fn image(&self, suffix: &str) -> PathBuf {
        self.path("out")
            .join(format!("corten-{VERSION}-x86_64{suffix}"))
    }
}

fn names(directory: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(directory).expect("a directory");
    let name = |entry: std::io::Result<fs::DirEntry>| {
        let name = entry.expect("an entry").file_name();
        name.into_string().expect("UTF-8")
    };
    entries.map(name).collect()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The standard output of a call that must succeed.
fn result(output: &Output) -> String {
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout)
}

/// One JSON object a line.
fn objects(text: &str) -> Vec<Value> {
    let lines = text.lines();
    lines.map(|line| line.parse().expect("an object")).collect()
}

fn word(object: &Value, key: &str) -> String {
    object[key].as_str().expect("a text").to_owned()
}

/// The suffixes of a build's files.
const BUILT: [&str; 6] = [
    "-pxe",
    ".SHA256SUMS",
    ".efi",
    ".provenance.json",
    ".raw",
    ".spdx.json",
];

#[test]
fn build_prints_steps_as_a_log_and_results_as_json() {
    let site = Site::new();
    let output = site.build(&[]);
    let (log, results) = (text(&output.stderr), text(&output.stdout));
    assert!(output.status.success(), "{log}");
    let steps = site.plan(&["--output", FORMATS]);
    let wanted: Vec<String> = steps.iter().map(|(step, _)| format!("{step} …")).collect();
    assert_eq!(log.lines().collect::<Vec<_>>(), wanted, "a log");
    let paths: BTreeSet<PathBuf> = results.lines().map(PathBuf::from).collect();
    assert_eq!(paths, BUILT.map(|suffix| site.image(suffix)).into());
    assert_eq!(
        site.left(),
        BUILT.map(|suffix| format!("corten-{VERSION}-x86_64{suffix}"))
    );

    let output = site.build(&["--format", "json"]);
    assert_eq!(text(&output.stderr), "");
    let said = objects(&text(&output.stdout));
    let (about_steps, about_outputs) = said.split_at(steps.len());
    for (object, (step, _)) in about_steps.iter().zip(&steps) {
        assert_eq!(
            (word(object, "step"), &object["cached"]),
            (step.clone(), &Value::Bool(true))
        );
        assert!(object["seconds"].is_number(), "{object}");
    }
    let outputs = about_outputs.iter().map(|object| word(object, "output"));
    assert_eq!(outputs.map(PathBuf::from).collect::<BTreeSet<_>>(), paths);

    let plan = site.say(&["plan", "--output", FORMATS]);
    assert_eq!(plan.lines().count(), steps.len());
    assert!(plan.lines().all(|line| line.ends_with(" cached")), "{plan}");
}

#[test]
fn finished_step_is_used_only_with_a_valid_signature() {
    let site = Site::new();
    let record = site.record("raw");
    let signed = fs::read_to_string(&record).expect("the record");
    let warned = |output: &Output, why: &str| {
        let said = text(&output.stderr);
        let entry = record.file_name().expect("a name").to_str().expect("UTF-8");
        let wanted = format!("WARNING: the finished step {entry} of ");
        assert!(said.contains(&wanted) && said.contains(why), "{said}");
    };
    // Without the cached step the image would be made, and fails because the other steps are
    // stand-ins.
    let made = |output: &Output| {
        let said = text(&output.stderr);
        assert!(
            !output.status.success() && said.contains("step raw"),
            "{said}"
        );
    };
    let mut object: Value = signed.parse().expect("an object");
    let output = word(&object, "output");
    object
        .as_object_mut()
        .expect("an object")
        .remove("signatures");
    fs::write(&record, object.to_string()).expect("the record");
    let unsigned = site.build(&[]);
    warned(&unsigned, "no signature of a key that --trust names");
    made(&unsigned);
    fs::write(&record, &signed).expect("the record");

    let image = site.path("finished").join(OUTPUTS).join(output);
    let image = image.join(format!("corten-{VERSION}-x86_64.raw"));
    let content = fs::read(&image).expect("the image");
    fs::write(&image, "changed").expect("the image");
    let changed = site.build(&[]);
    warned(&changed, "but the signed digest is");
    made(&changed);
    assert!(!site.path("out").exists(), "an image");

    fs::write(&image, content).expect("the image");
    result(&site.build(&[]));
    // The step is now in this cache, which verifies it against its digest.
    fs::remove_dir_all(site.path("finished")).expect("the second cache");
    assert_eq!(text(&site.build(&[]).stderr).matches("WARNING").count(), 0);
    let kept = names(&site.path("cache").join(OUTPUTS));
    let kept = kept
        .iter()
        .map(|name| site.path("cache").join(OUTPUTS).join(name));
    let image = kept.map(|dir| dir.join(format!("corten-{VERSION}-x86_64.raw")));
    let image = image.into_iter().find(|path| path.exists());
    fs::write(image.expect("the image"), "changed").expect("the image");
    let changed = site.build(&[]);
    made(&changed);
    let said = text(&changed.stderr);
    assert!(
        said.contains("WARNING: the finished step raw-") && said.contains("built again"),
        "{said}"
    );
}

#[test]
fn checksums_of_another_architecture_are_kept() {
    let site = Site::new();
    fs::create_dir(site.path("out")).expect("a directory");
    let other = site.path(&format!("out/corten-{VERSION}-arm64.SHA256SUMS"));
    fs::write(&other, "other").expect("a file");
    assert!(site.build(&[]).status.success());
    assert_eq!(fs::read(&other).expect("it"), b"other");
    let check = Command::new("sha256sum")
        .args(["--check", "--strict"])
        .arg(site.image(".SHA256SUMS"))
        .current_dir(site.path("out"))
        .output()
        .expect("sha256sum");
    let said = text(&check.stdout);
    assert!(check.status.success(), "{said}");
    // The checksums cover every file except their own; the bundle directory counts one file.
    assert_eq!(said.lines().count(), BUILT.len() - 1, "{said}");
}

#[test]
fn a_full_output_directory_leaves_no_half_image() {
    let site = Site::new();
    let out = site.path("out");
    let out = out.to_str().expect("UTF-8");
    let arguments = ["build", "--offline", "--output", "raw", "--out", out];
    // The cache copies the image from the second cache while there is room.
    result(&site.run(&arguments));
    fs::remove_dir_all(out).expect("the images");
    let mut command = limited(&site.command(&arguments), BLOCKS);
    let said = failed(&command.output().expect("mkimage"));
    assert!(
        said.contains(&format!("writing {}", site.image(".raw").display())),
        "{said}"
    );
    assert!(said.contains("remedy: free disk space there, or set --out to another directory"));
    assert_eq!(site.left(), [] as [&str; 0]);

    // Existing files stay unchanged.
    fs::write(site.image(".raw"), "older").expect("a file");
    failed(&command.output().expect("mkimage"));
    assert_eq!(fs::read(site.image(".raw")).expect("it"), b"older");
    assert_eq!(site.left().len(), 1);
}

#[test]
fn verify_names_the_first_difference_of_an_image() {
    let site = Site::new();
    assert!(site.build(&[]).status.success());
    let arch = ["--arch", "x86_64"];
    for suffix in [".raw", ".efi", "-pxe"] {
        let said = result(&site.verify(suffix, &arch));
        assert!(said.ends_with(" is identical to its rebuild\n"), "{said}");
    }
    // These stand-ins have no kernel with an architecture.
    let said = failed(&site.verify(".raw", &[]));
    assert!(said.contains("does not show its architecture"), "{said}");
    assert!(said.contains("remedy: give it with --arch"), "{said}");

    let mut disk = fs::read(site.image(".raw")).expect("the disk");
    disk[70_000] = 8;
    fs::write(site.image(".raw"), disk).expect("the disk");
    let said = failed(&site.verify(".raw", &arch));
    assert!(
        said.contains(".raw differs from its rebuild at byte 70000"),
        "{said}"
    );
    assert!(said.contains("SOURCE_DATE_EPOCH"), "{said}");
    let bundle = site.image("-pxe");
    fs::write(bundle.join("extra"), "").expect("a file");
    let said = failed(&site.verify("-pxe", &arch));
    assert!(
        said.contains("by extra, which only the image has"),
        "{said}"
    );
    fs::remove_file(bundle.join("extra")).expect("a file");
    fs::write(bundle.join("vmlinuz"), "kerneL").expect("a file");
    let said = failed(&site.verify("-pxe", &arch));
    assert!(
        said.contains("-pxe/vmlinuz differs from its rebuild at byte 5"),
        "{said}"
    );

    let said = failed(&site.verify("-missing.raw", &arch));
    assert!(
        said.contains("-missing.raw") && said.contains("remedy: check the path"),
        "{said}"
    );
    let said = failed(&site.verify(".txt", &arch));
    assert!(
        said.contains("not end with the suffix of an image format"),
        "{said}"
    );
}

#[test]
fn the_bill_of_materials_names_every_kind_of_component() {
    let site = Site::new();
    let bill: Value = site.say(&["sbom"]).parse().expect("a document");
    assert_eq!(bill["spdxVersion"], "SPDX-2.3");
    let packages = bill["packages"].as_array().expect("packages");
    let names: BTreeSet<&str> = packages
        .iter()
        .flat_map(|one| [&one["name"], &one["licenseDeclared"]])
        .filter_map(Value::as_str)
        .collect();
    for name in "linux libc6 kmod init serde stdlib example.org/a Beerware".split(' ') {
        assert!(names.contains(name), "{name} is not among {names:?}");
    }
    assert_eq!(site.say(&["sbom"]), site.say(&["sbom", "--output", "pxe"]));
}

#[test]
fn pruning_keeps_the_steps_of_every_architecture() {
    let site = Site::without_steps();
    let entry = |(name, key): (String, String)| format!("{name}-{key}");
    let mut wanted = BTreeSet::new();
    for arch in ["x86_64", "arm64"] {
        let steps: Vec<String> = site
            .plan(&["--arch", arch])
            .into_iter()
            .map(entry)
            .collect();
        assert!(
            steps.iter().any(|step| step.starts_with("gcp-")),
            "{steps:?}"
        );
        wanted.extend(steps);
    }
    let profile = site.path("loud.toml");
    fs::write(
        &profile,
        "arch = \"arm64\"\nkernel-arguments = [\"debug\"]\n",
    )
    .expect("a profile");
    let profile = ["--profile", profile.to_str().expect("UTF-8")];
    let of_profile: BTreeSet<String> = site.plan(&profile).into_iter().map(entry).collect();
    assert!(of_profile.iter().any(|step| !wanted.contains(step)));

    let steps = site.path("cache/steps");
    let stale = format!("kernel-{}", "0123456789abcdef".repeat(4));
    let all: BTreeSet<String> = [&wanted, &of_profile]
        .into_iter()
        .flatten()
        .cloned()
        .collect();
    let digests = ["0", "1"].map(|digit| digit.repeat(64));
    for entry in all.iter().chain([&stale]) {
        let digest = &digests[usize::from(*entry == stale)];
        let record = serde_json::json!({"output": digest}).to_string();
        fs::write(steps.join(entry), record).expect("a step");
        fs::create_dir_all(site.path("cache").join(OUTPUTS).join(digest)).expect("an output");
    }
    // An entry of an older version of the builder.
    fs::create_dir(steps.join("kernel-0123456789abcdef")).expect("a step");
    fs::write(site.path("cache/fetch/00"), "").expect("a file");
    let prune = ["cache", "prune"];
    let said = site.say(&[&prune, &profile[..]].concat());
    assert_eq!(names(&steps), all, "with a profile");
    let outputs = names(&site.path("cache").join(OUTPUTS));
    assert_eq!(outputs, [digests[0].clone()].into(), "of steps that stay");
    assert!(said.contains(&stale) && said.contains("fetch/00"), "{said}");
    for more in [&["--arch", "arm64"][..], &["--arch", "x86_64"], &[]] {
        site.say(&[&prune, more].concat());
        assert_eq!(names(&steps), wanted, "{more:?}");
    }
}
