//! `cluster create`, interrupted: with a program `docker` that keeps what it makes as files.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::support::HEEDING;

/// Timeout of a step; an idle machine needs milliseconds.
const PATIENCE: Duration = Duration::from_secs(60);

/// Containers and networks are files beside the script. The making of a network waits for the file `go`.
const DOCKER: &str = r#"#!/bin/sh
at=$(dirname "$0")/made
case "$1 $2" in
"info --format") echo 2 ;;
"network create")
    for flag; do
        case $flag in --label=corten.directory=*) echo "${flag#*=*=}" > "$at/network" ;; esac
    done
    until [ -e "$at/../go" ]; do sleep 0.02; done ;;
"network ls") [ ! -e "$at/network" ] || if [ "$3" = --format ]; then cat "$at/network"; else echo network; fi ;;
"network rm") rm "$at/network" ;;
"run --detach") : > "$at/container"; echo container ;;
"ps --all") [ ! -e "$at/container" ] || echo container ;;
"rm --force") rm "$at/container" ;;
"inspect --format") echo true ;;
"logs --tail") ;;
*) echo "unexpected: $*" >&2; exit 1 ;;
esac
"#;

/// A machine with that program.
struct Machine(tempfile::TempDir);

impl Machine {
    fn new() -> Machine {
        let machine = Machine(tempfile::tempdir().unwrap());
        fs::create_dir(machine.at("made")).unwrap();
        // Another process writes it: one that a test starts meanwhile would keep it open (execve(2), `ETXTBSY`).
        let write = "printf %s \"$1\" > \"$0\" && chmod 755 \"$0\"";
        let written = Command::new("sh")
            .args(["-c", write])
            .arg(machine.at("docker"))
            .arg(DOCKER)
            .status();
        assert!(written.unwrap().success());
        machine
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Begins to make a cluster.
    fn create(&self) -> Child {
        let path = std::env::var("PATH").unwrap();
        Command::new(HEEDING[0])
            .args(&HEEDING[1..])
            .arg(env!("CARGO_BIN_EXE_cortenctl"))
            .args([
                "cluster",
                "create",
                "--provisioner",
                "docker",
                "--image",
                "corten:test",
            ])
            .args([
                "--name",
                "lab",
                "--workers",
                "0",
                "--wait",
                "api",
                "--state",
            ])
            .arg(self.at("state"))
            .env("PATH", format!("{}:{path}", self.0.path().display()))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    }

    /// Remains of clusters.
    fn left(&self) -> Vec<PathBuf> {
        let entries = |name: &str| {
            let entries = fs::read_dir(self.at(name)).unwrap();
            entries
                .map(|entry| entry.unwrap().path())
                .collect::<Vec<_>>()
        };
        [entries("made"), entries("state")].concat()
    }
}

fn until_exists(path: &Path) {
    let end = Instant::now() + PATIENCE;
    while !path.exists() {
        assert!(Instant::now() < end, "{} does not appear", path.display());
        sleep(Duration::from_millis(5));
    }
}

fn signal(child: &Child, name: &str) {
    let kill = format!("kill -{name} {}", child.id());
    let sent = Command::new("sh").args(["-c", &kill]).status().unwrap();
    assert!(sent.success());
}

fn check(machine: &Machine, ended: &Output) {
    let told = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(1), "{told}");
    assert!(told.contains("removing the incomplete cluster"), "{told}");
    assert!(told.ends_with("error: interrupted\n"), "{told}");
    assert_eq!(machine.left(), [""; 0].map(PathBuf::from), "{told}");
}

#[test]
fn interrupted_cluster_creation_removes_what_it_made() {
    for name in ["INT", "TERM", "HUP"] {
        let machine = Machine::new();
        fs::write(machine.at("go"), "").unwrap();
        let child = machine.create();
        // It waits for a node that never answers.
        until_exists(&machine.at("made/container"));
        signal(&child, name);
        check(&machine, &child.wait_with_output().unwrap());
    }
}

#[test]
fn interruption_of_a_step_that_blocks_is_not_lost() {
    let machine = Machine::new();
    let child = machine.create();
    until_exists(&machine.at("made/network"));
    signal(&child, "INT");
    fs::write(machine.at("go"), "").unwrap();
    check(&machine, &child.wait_with_output().unwrap());
}
