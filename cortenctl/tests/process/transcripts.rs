//! Transcripts: files of commands with their output, checked against a fake node. `UPDATE=1` writes them.
//!
//! A line `$ COMMAND` is followed by its output, by lines `! TEXT` of its standard error, and by `(exit N)` after a
//! failure. `DIR` is a directory of the test, `NOW` a time of this day; `VERSION` and `ARCH` are the client's.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::fake;
use crate::support::{editor, generate};

/// Version of a client that was built without `CORTEN_VERSION`.
const DEVELOPMENT: &str = concat!(env!("CARGO_PKG_VERSION"), "-dev");

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn config_transcript_matches() {
    transcript("config").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn certificates_transcript_matches() {
    transcript("certificates").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn looking_transcript_matches() {
    transcript("looking").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_transcript_matches() {
    transcript("files").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn machine_transcript_matches() {
    transcript("machine").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forms_transcript_matches() {
    transcript("forms").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn resources_transcript_matches() {
    transcript("resources").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acting_transcript_matches() {
    transcript("acting").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn etcd_transcript_matches() {
    transcript("etcd").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hostile_transcript_matches() {
    transcript("hostile").await;
}

/// Runs the commands of a file one after the other, in one directory.
async fn transcript(name: &str) {
    let directory = tempfile::tempdir().unwrap();
    generate(directory.path());
    let address = fake::serve(directory.path()).await;
    prepare(directory.path());
    let file = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/process/transcripts")
        .join(format!("{name}.txt"));
    let expected = std::fs::read_to_string(&file).unwrap();
    let mut found = String::new();
    for line in expected.lines() {
        if let Some(command) = line.strip_prefix("$ ") {
            found.push_str(line);
            found.push('\n');
            let (command, here) = (command.to_owned(), directory.path().to_owned());
            let endpoint = address.to_string();
            let run = move || shown(&command, &here, &endpoint);
            found.push_str(&tokio::task::spawn_blocking(run).await.unwrap());
        } else if line.starts_with('#') {
            found.push_str(line);
            found.push('\n');
        }
    }
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&file, &found).unwrap();
        return;
    }
    for (number, (is, should)) in found.lines().zip(expected.lines()).enumerate() {
        assert_eq!(is, should, "{name}.txt:{}\n{found}", number + 1);
    }
    assert_eq!(found, expected, "{name}.txt");
}

/// Makes the editor and the files that the commands use.
fn prepare(directory: &Path) {
    std::fs::write(
        directory.join("editor"),
        "sed -i 's/type: worker/type: controlplane/' \"$1\"\n",
    )
    .unwrap();
    std::fs::write(
        directory.join("patch.yaml"),
        "machine: {network: {hostname: new}}\n",
    )
    .unwrap();
    std::fs::write(directory.join("snapshot"), vec![7; 200_000]).unwrap();
    prepare_pki(&directory.join("pki"));
}

/// Makes the files of a control plane node of kubeadm.
fn prepare_pki(directory: &Path) {
    std::fs::create_dir_all(directory.join("etcd")).unwrap();
    let samples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/corpus/pki");
    for (name, sample) in [
        ("ca.crt", "rsa.crt"),
        ("ca.key", "rsa.key"),
        ("front-proxy-ca.crt", "p384.crt"),
        ("front-proxy-ca.key", "p384.key"),
        ("etcd/ca.crt", "rsa.crt"),
        ("etcd/ca.key", "rsa-pkcs8.key"),
        ("sa.key", "rsa.key"),
    ] {
        std::fs::copy(samples.join(sample), directory.join(name)).unwrap();
    }
}

fn shown(command: &str, directory: &Path, endpoint: &str) -> String {
    let path = directory.to_str().unwrap();
    let words: Vec<String> = words(command)
        .iter()
        .map(|word| word.replace("DIR", path).replace("ENDPOINT", endpoint))
        .collect();
    let output = Command::new(env!("CARGO_BIN_EXE_cortenctl"))
        .args(&words)
        .current_dir(directory)
        .env_remove("TALOSCONFIG")
        .env_remove("KUBECONFIG")
        .env_remove("VISUAL")
        .env("EDITOR", editor(&directory.join("editor")))
        .env("TMPDIR", directory)
        .env("HOME", directory)
        .env("CORTENCONFIG", directory.join("cortenconfig"))
        .output()
        .unwrap();
    let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    for line in String::from_utf8_lossy(&output.stderr).lines() {
        text.push_str("! ");
        text.push_str(line);
        text.push('\n');
    }
    if !output.status.success() {
        text.push_str(&format!("(exit {})\n", output.status.code().unwrap()));
    }
    let text = text.replace(path, "DIR").replace(endpoint, "ENDPOINT");
    let tag = corten_api::version_tag(option_env!("CORTEN_VERSION").unwrap_or(DEVELOPMENT));
    let text = text.replace(&tag, "VERSION");
    let text = text.replace(corten_api::ARCH, "ARCH");
    text.split_inclusive([' ', '\n', '(', ')'])
        .map(masked)
        .collect()
}

/// Replaces times of today, which differ from run to run.
fn masked(word: &str) -> String {
    let bare = word.trim_end_matches([' ', '\n', '(', ')']);
    let format = &time::format_description::well_known::Rfc3339;
    let old = time::macros::datetime!(2026-01-01 0:00 UTC);
    match time::OffsetDateTime::parse(bare, format) {
        Ok(at) if at > old => word.replace(bare, "NOW"),
        _ => word.to_owned(),
    }
}

/// Words of a line; single quotes keep blanks.
fn words(line: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut quoted = false;
    for c in line.chars() {
        match c {
            '\'' => quoted = !quoted,
            ' ' if !quoted => words.push(String::new()),
            c => words.last_mut().unwrap().push(c),
        }
    }
    words.retain(|word| !word.is_empty());
    words
}
