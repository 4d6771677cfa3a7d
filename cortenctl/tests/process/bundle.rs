//! The content of `support`'s file, and other verbs that write files.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

use corten_config::Document;
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::fake;
use crate::support::{HEEDING, cortenctl, editor, generate};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn support_bundle_collects_everything_but_secrets_from_answering_nodes() {
    let directory = tempfile::tempdir().unwrap();
    generate(directory.path());
    let address = fake::serve(directory.path()).await.to_string();
    let config = directory.path().join("cortenconfig");
    let file = directory.path().join("out.zip");
    let path = file.clone();
    let run = move || {
        let (config, path) = (config.to_str().unwrap(), path.to_str().unwrap());
        let flags = [
            "--cortenconfig",
            config,
            "-e",
            &address,
            "-n",
            "n1,evil,down",
        ];
        let verb = ["support", "-O", path];
        let first = cortenctl(&[&flags[..], &verb].concat());
        (first, cortenctl(&[&flags[..], &verb].concat()))
    };
    let (first, again) = tokio::task::spawn_blocking(run).await.unwrap();
    let told = String::from_utf8(first.stderr).unwrap();
    // A missing source is reported and does not affect the others. A node without any data counts
    // as failed, and the file is written anyway.
    assert_eq!(first.status.code(), Some(1), "{told}");
    assert!(told.contains("\nSOURCE "), "{told}");
    assert!(told.contains("\nn1/logs/etcd.log "), "{told}");
    assert!(told.contains("error: down: no route to host"), "{told}");
    let again = String::from_utf8(again.stderr).unwrap();
    assert!(again.contains("exists"), "{again}");

    let mode = std::fs::metadata(&file).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let mut zip = zip::ZipArchive::new(std::fs::File::open(&file).unwrap()).unwrap();
    let mut texts = BTreeMap::new();
    for index in 0..zip.len() {
        let mut entry = zip.by_index(index).unwrap();
        let mut text = String::new();
        entry.read_to_string(&mut text).unwrap();
        texts.insert(entry.name().to_owned(), text);
    }
    for (name, part) in [
        ("n1/version.yaml", "v1.14.0+corten.test"),
        ("n1/dmesg.log", "Linux"),
        ("n1/events.log", "machine.NewEvent"),
        ("n1/pressure/io.txt", "some avg10=0.00"),
        ("n1/dependencies.dot", "digraph \"n1\""),
        ("n1/logs/apid.log", "started\ntoken ****** refused\n"),
        ("n1/logs/audit.log", "started"),
        ("n1/kubernetes/kube-system_dns:coredns.log", "started"),
        ("n1/etcd.yaml", "hostname: cp1"),
        ("n1/resources/Hostnames.net.yaml", "hostname: n1"),
        ("n1/machineconfig.yaml", "type: worker"),
        ("evil/logs/_.._x.log", "started"),
        ("errors.txt", "n1/logs/etcd.log"),
        ("errors.txt", "cluster"),
    ] {
        let text = texts.get(name).map_or("", String::as_str);
        assert!(text.contains(part), "{name}: {text}\n{:?}", texts.keys());
    }
    let worker = std::fs::read(directory.path().join("worker.yaml")).unwrap();
    let token = Document::parse(&worker).unwrap().machine.token;
    for (name, text) in &texts {
        assert!(!text.contains(token.expose()), "{name}: {text}");
        assert!(name.split('/').all(|part| part != ".."), "{name}");
        assert!(!name.contains("MachineConfigs"), "{name}");
    }
}

#[test]
fn completions_and_manual_pages_cover_every_verb() {
    for shell in ["bash", "zsh", "fish"] {
        let output = cortenctl(&["completion", shell]);
        let script = String::from_utf8(output.stdout).unwrap();
        for verb in ["apply-config", "remove-member", "kubeconfig"] {
            assert!(script.contains(verb), "{shell}: {verb}");
        }
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("man");
    let output = cortenctl(&["man", path.to_str().unwrap()]);
    assert!(output.status.success(), "{output:?}");
    for page in ["cortenctl.1", "cortenctl-etcd-members.1", "cortenctl-get.1"] {
        assert!(path.join(page).exists(), "{page}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refused_edit_is_kept_in_a_private_file() {
    let directory = tempfile::tempdir().unwrap();
    generate(directory.path());
    let address = fake::serve(directory.path()).await.to_string();
    let script = directory.path().join("editor");
    std::fs::write(&script, "echo '# by hand' >> \"$1\"\n").unwrap();
    let kept = directory.path().join("kept");
    std::fs::create_dir(&kept).unwrap();
    let (config, drafts) = (directory.path().join("cortenconfig"), kept.clone());
    let run = move || {
        Command::new(env!("CARGO_BIN_EXE_cortenctl"))
            .args(["--cortenconfig", config.to_str().unwrap(), "-e", &address])
            .args(["edit", "mc", "-n", "strict"])
            .env_remove("VISUAL")
            .env("EDITOR", editor(&script))
            .env("TMPDIR", drafts)
            .output()
            .unwrap()
    };
    let output = tokio::task::spawn_blocking(run).await.unwrap();
    assert_eq!(output.status.code(), Some(1));
    let told = String::from_utf8(output.stderr).unwrap();
    assert!(told.contains("it cannot be changed"), "{told}");
    let mut files = std::fs::read_dir(&kept).unwrap();
    let file = files.next().unwrap().unwrap().path();
    assert!(told.contains(file.to_str().unwrap()), "{told}");
    let mode = std::fs::metadata(&file).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert!(
        std::fs::read_to_string(&file)
            .unwrap()
            .ends_with("# by hand\n")
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn interrupted_snapshot_leaves_no_part_of_it() {
    assert_eq!(interrupted(&HEEDING).await, Some(SIGINT));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ignored_signal_stays_ignored() {
    // A shell's background job ignores SIGINT. The second signal ends it.
    let shell = ["sh", "-c", "trap '' INT; exec \"$@\"", "sh"];
    assert_eq!(interrupted(&shell).await, Some(SIGTERM));
}

/// The signal that ends a snapshot: SIGINT is sent first, then SIGTERM. No part of the file is left.
async fn interrupted(through: &[&str]) -> Option<i32> {
    let directory = tempfile::tempdir().unwrap();
    generate(directory.path());
    let address = fake::serve(directory.path()).await.to_string();
    let (target, config) = (
        directory.path().join("target"),
        directory.path().join("cortenconfig"),
    );
    std::fs::create_dir(&target).unwrap();
    let files = || std::fs::read_dir(&target).unwrap().count();
    let run = || {
        let mut words = through.to_vec();
        words.push(env!("CARGO_BIN_EXE_cortenctl"));
        let mut child = Command::new(words[0])
            .args(&words[1..])
            .args(["--cortenconfig", config.to_str().unwrap(), "-e", &address])
            .args(["-n", "silent", "etcd", "snapshot"])
            .arg(target.join("etcd.snapshot"))
            .spawn()
            .unwrap();
        while files() == 0 {
            assert_eq!(child.try_wait().unwrap(), None);
            sleep(Duration::from_millis(10));
        }
        let pid = child.id().to_string();
        // SIGINT is the smaller number, so it is handled first.
        for signal in ["-INT", "-TERM"] {
            let killed = Command::new("kill").args([signal, &pid]).status();
            assert!(killed.unwrap().success());
        }
        child.wait().unwrap()
    };
    let status = tokio::task::block_in_place(run);
    assert_eq!(files(), 0);
    status.signal()
}
