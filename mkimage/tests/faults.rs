//! A failing build ends in one clear error with its remedy, and leaves no broken cache entry or half-written image.
//!
//! Each test builds from a lock of one small package, served by a mirror whose behaviour the test sets. With that
//! package unpacked, a build fails at the missing Go compiler.
#![expect(
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a failing step is a failing test"
)]

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use std::{fs, thread};

use rustix::process::{Pid, Signal, kill_process};
use sha2::{Digest as _, Sha256};

use support::{failed, limited, write_program};

mod support;

/// Timeout for events that are expected at once.
const SOON: Duration = Duration::from_secs(30);
/// The program in the package, larger than any buffer or file system block.
const PROGRAM: &str = "usr/bin/tool";

/// The mirror's answer to a request for the package.
#[derive(Clone)]
enum Answer {
    File(Vec<u8>),
    /// The file, after a delay.
    Slowly(Vec<u8>, Duration),
    Missing,
    /// The beginning of the file, then a stall.
    Stall,
}

struct Mirror {
    url: String,
    /// Requests for the package so far.
    asked: Arc<AtomicUsize>,
}

impl Mirror {
    fn start(answer: Answer) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let asked = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&asked);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (answer, count) = (answer.clone(), Arc::clone(&count));
                thread::spawn(move || serve(stream, &answer, &count));
            }
        });
        Self { url, asked }
    }

    fn wait_for_request(&self) {
        wait("a request", || self.asked.load(Ordering::SeqCst) > 0);
    }
}

fn serve(mut stream: std::net::TcpStream, answer: &Answer, count: &AtomicUsize) {
    let mut request = [0; 4096];
    let read = stream.read(&mut request).unwrap_or(0);
    let is_package = request[..read].starts_with(b"GET /pool/demo.deb ");
    let mut send = |body: &[u8], size: usize| {
        // The client may have disconnected, as some tests intend.
        let _ = write!(
            stream,
            "HTTP/1.1 200 OK\r\ncontent-length: {size}\r\nconnection: close\r\n\r\n"
        );
        let _ = stream.write_all(body);
    };
    match answer {
        Answer::File(body) if is_package => send(body, body.len()),
        Answer::Slowly(body, wait) if is_package => {
            count.fetch_add(1, Ordering::SeqCst);
            thread::sleep(*wait);
            return send(body, body.len());
        }
        Answer::Stall if is_package => {
            send(b"!<arch>", 1 << 20);
            count.fetch_add(1, Ordering::SeqCst);
            thread::sleep(SOON * 4);
            return;
        }
        _ => {
            let _ = write!(
                stream,
                "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
            );
        }
    }
    if is_package {
        count.fetch_add(1, Ordering::SeqCst);
    }
}

fn wait(what: &str, mut done: impl FnMut() -> bool) {
    let since = Instant::now();
    while !done() {
        assert!(since.elapsed() < SOON, "no {what} within {SOON:?}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// A Debian package with [`PROGRAM`] in it.
fn package() -> Vec<u8> {
    let mut tar = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_gnu();
    // Neither a hole nor compressible.
    let content: Vec<u8> = (0..1_u32 << 20)
        .flat_map(|i| i.wrapping_mul(2_654_435_761).to_le_bytes())
        .collect();
    header.set_size(content.len() as u64);
    header.set_mode(0o755);
    tar.append_data(&mut header, format!("./{PROGRAM}"), content.as_slice())
        .expect("an entry");
    let data = tar.into_inner().expect("an archive");
    let mut deb = ar::Builder::new(Vec::new());
    for (name, content) in [("debian-binary", &b"2.0\n"[..]), ("data.tar", &data)] {
        let header = ar::Header::new(name.into(), content.len() as u64);
        deb.append(&header, content).expect("a member");
    }
    deb.into_inner().expect("a package")
}

/// A source tree like the repository, with a lock of one package and a cache of its own.
struct Site {
    dir: tempfile::TempDir,
}

impl Site {
    fn new(package: &[u8]) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let repository = fs::canonicalize(Path::new(env!("CARGO_MANIFEST_DIR")).join(".."))
            .expect("the repository");
        let source = dir.path().join("source");
        fs::create_dir_all(source.join("rootfs")).expect("a directory");
        for (from, to, except) in [
            (repository.clone(), source.clone(), "rootfs"),
            (
                repository.join("rootfs"),
                source.join("rootfs"),
                "packages.lock",
            ),
        ] {
            for entry in fs::read_dir(from).expect("the repository") {
                let entry = entry.expect("an entry");
                if entry.file_name() != except {
                    symlink(entry.path(), to.join(entry.file_name())).expect("a link");
                }
            }
        }
        let lock = format!(
            "[[package]]\nname = \"demo\"\nversion = \"1-1\"\narch = \"amd64\"\nsuite = \"trixie\"\n\
             path = \"pool/demo.deb\"\nsize = {}\nsha256 = \"{}\"\nuse = \"toolchain\"\n",
            package.len(),
            hex::encode(Sha256::digest(package))
        );
        fs::write(source.join("rootfs/packages.lock"), lock).expect("a lock");
        Self { dir }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// `mkimage build` with more arguments.
    fn command(&self, mirror: &Mirror, more: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_mkimage"));
        command
            .args(["build", "--output", "raw", "--source"])
            .arg(self.path("source"))
            .arg("--out")
            .arg(self.path("out"))
            .args(more);
        self.of(command, mirror)
    }

    /// A call with the site's cache and mirror.
    fn of(&self, mut command: Command, mirror: &Mirror) -> Command {
        command
            .env("CORTEN_CACHE", self.path("cache"))
            .env("CORTEN_MIRRORS", &mirror.url)
            .env("SOURCE_DATE_EPOCH", "1700000000")
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        for name in ["http_proxy", "HTTP_PROXY", "ALL_PROXY", "all_proxy"] {
            command.env_remove(name);
        }
        command
    }

    fn build(&self, mirror: &Mirror, more: &[&str]) -> Output {
        let output = self.command(mirror, more).output();
        output.expect("mkimage starts")
    }

    /// A build that gets its mirrors from apt; `script` stands in for apt.
    fn with_apt(&self, mirror: &Mirror, script: &str) -> Command {
        let tools = self.path("tools");
        let apt = tools.join("apt-get");
        write_program(&apt, format!("#!/bin/sh\n{script}\n").as_bytes());
        let mut path = tools.into_os_string();
        path.push(":/usr/bin:/bin");
        let mut command = self.command(mirror, &[]);
        command.env("PATH", path).env_remove("CORTEN_MIRRORS");
        command
    }

    /// The names in a directory of the cache.
    fn cached(&self, directory: &str) -> Vec<String> {
        let entries = fs::read_dir(self.path("cache").join(directory)).expect("the cache");
        entries
            .map(|entry| entry.expect("an entry").file_name().into_string())
            .map(|name| name.expect("UTF-8"))
            .collect()
    }

    /// The cache is empty, and no image was begun.
    fn assert_untouched(&self) {
        assert_eq!(self.cached("fetch"), [] as [&str; 0], "a broken download");
        assert_eq!(self.cached("steps"), [] as [&str; 0], "a broken entry");
        assert!(!self.path("out").exists(), "an output directory");
    }

    /// The package is unpacked completely, and no partial output is left.
    fn assert_unpacked(&self) {
        let steps = self.cached("steps");
        let step = steps.iter().find(|name| name.starts_with("toolchain-"));
        let step = step.unwrap_or_else(|| panic!("no toolchain among {steps:?}"));
        let record = fs::read(self.path("cache/steps").join(step)).expect("its record");
        let record: serde_json::Value = serde_json::from_slice(&record).expect("an object");
        let output = record["output"].as_str().expect("a digest");
        let program = self.path("cache/outputs").join(output).join(PROGRAM);
        assert_eq!(fs::metadata(program).expect("the program").len(), 4 << 20);
        let left = self.cached("work");
        assert!(
            !left.iter().any(|name| name.starts_with("toolchain")),
            "{left:?}"
        );
    }
}

/// The error where a build of one package ends.
fn failed_for_want_of_go(output: &Output) {
    let text = failed(output);
    assert!(text.contains("no Go compiler"), "{text}");
}

#[test]
fn content_that_differs_from_the_lock_is_refused() {
    let site = Site::new(&package());
    let mirror = Mirror::start(Answer::File(b"something else".to_vec()));
    let text = failed(&site.build(&mirror, &[]));
    assert!(text.contains("demo 1-1 differs from the lock"), "{text}");
    site.assert_untouched();
}

#[test]
fn release_build_takes_locked_packages_only() {
    let site = Site::new(&package());
    let mirror = Mirror::start(Answer::Missing);
    let text = failed(&site.build(&mirror, &["--release"]));
    assert!(text.contains("no mirror has demo 1-1"), "{text}");
    assert!(text.contains("mkimage lock"), "{text}");
    site.assert_untouched();
}

#[test]
fn snapshot_archive_of_the_host_is_tried_first() {
    let site = Site::new(&package());
    let (moved_on, snapshot) = (
        Mirror::start(Answer::Missing),
        Mirror::start(Answer::File(package())),
    );
    // The form in which apt lists its sources: one line each, the snapshot archive after the
    // mirror.
    let script = format!("echo {}; echo {}", moved_on.url, snapshot.url);
    let output = site.with_apt(&moved_on, &script).output();
    let output = output.expect("mkimage");
    assert!(!String::from_utf8_lossy(&output.stderr).contains("WARNING"));
    failed_for_want_of_go(&output);
    site.assert_unpacked();
    let asked = |mirror: &Mirror| mirror.asked.load(Ordering::SeqCst);
    assert_eq!((asked(&moved_on), asked(&snapshot)), (1, 1));
}

#[test]
fn kernel_source_is_never_substituted_but_can_be_given_by_hand() {
    let site = Site::new(&package());
    let mirror = Mirror::start(Answer::Missing);
    let mut command = Command::new(env!("CARGO_BIN_EXE_mkimage"));
    command
        .args(["kernel", "config", "--source"])
        .arg(site.path("source"));
    let text = failed(&site.of(command, &mirror).output().expect("mkimage starts"));
    assert!(
        text.contains("the kernel's source") && text.contains("no mirror has linux-source"),
        "{text}"
    );
    assert!(
        text.contains("remedy: give its tarball with --kernel-source"),
        "{text}"
    );
    assert!(!text.contains("WARNING"), "{text}");
    site.assert_untouched();
}

#[test]
fn quick_build_cannot_be_a_release() {
    let site = Site::new(&package());
    let mirror = Mirror::start(Answer::File(package()));
    let profile = site.path("quick.toml");
    fs::write(&profile, "quick = true\n").expect("a profile");
    let profile = profile.to_str().expect("UTF-8");
    let text = failed(&site.build(&mirror, &["--profile", profile, "--release"]));
    assert!(text.contains("a quick build cannot be a release"), "{text}");
    assert!(!site.path("out").exists(), "an image");
}

#[test]
fn a_substitute_must_be_signed_by_the_archive() {
    let site = Site::new(&package());
    let mirror = Mirror::start(Answer::Missing);
    let text = failed(&site.build(&mirror, &[]));
    assert!(text.contains("dists/trixie/InRelease"), "{text}");
    site.assert_untouched();
}

#[test]
fn full_disk_is_named_and_the_next_build_continues() {
    let site = Site::new(&package());
    let mirror = Mirror::start(Answer::File(package()));
    // 512 KiB or 1 MiB, depending on the shell's block size.
    let output = limited(&site.command(&mirror, &[]), 1024).output();
    let text = failed(&output.expect("mkimage starts"));
    assert!(text.contains("free disk space in CORTEN_CACHE"), "{text}");
    site.assert_untouched();
    failed_for_want_of_go(&site.build(&mirror, &[]));
    site.assert_unpacked();
}

#[test]
fn missing_host_tool_is_named() {
    let site = Site::new(&package());
    let mirror = Mirror::start(Answer::File(package()));
    let mut command = site.command(&mirror, &[]);
    let text = failed(
        &command
            .env("PATH", site.path("nothing"))
            .env_remove("CORTEN_MIRRORS")
            .output()
            .expect("it"),
    );
    assert!(text.contains("apt-get is not installed"), "{text}");
    assert!(text.contains("set them in CORTEN_MIRRORS"), "{text}");
    site.assert_untouched();
}

#[test]
fn ctrl_c_reports_an_interrupted_build() {
    let site = Site::new(&package());
    let mirror = Mirror::start(Answer::Stall);
    let child = site.command(&mirror, &[]).spawn().expect("mkimage");
    mirror.wait_for_request();
    signal(child.id(), Signal::INT);
    let output = child.wait_with_output().expect("mkimage");
    let text = failed(&output);
    assert!(text.contains("mkimage: interrupted"), "{text}");
    assert_eq!(output.status.code(), Some(130));
    site.assert_untouched();
}

#[test]
fn ctrl_c_stops_the_tool_that_runs() {
    let site = Site::new(&package());
    let mirror = Mirror::start(Answer::Missing);
    // The first tool of a build is apt, which lists the mirrors.
    let started = site.path("started");
    let script = format!(
        "echo $$ > '{0}.new'; mv '{0}.new' '{0}'; exec sleep 600",
        started.display()
    );
    let child = site.with_apt(&mirror, &script).spawn().expect("mkimage");
    wait("tool", || started.exists());
    signal(child.id(), Signal::TERM);
    let output = child.wait_with_output().expect("mkimage");
    assert!(failed(&output).contains("mkimage: interrupted"));
    let tool = fs::read_to_string(&started).expect("its id");
    let stat = Path::new("/proc").join(tool.trim()).join("stat");
    // The machine may have no process that reaps it, so that a zombie counts as ended.
    wait("end of the tool", || {
        fs::read_to_string(&stat).map_or(true, |stat| stat.contains(") Z "))
    });
}

#[test]
fn build_continues_after_kill_9() {
    let site = Site::new(&package());
    let stalled = Mirror::start(Answer::Stall);
    let mut child = site.command(&stalled, &[]).spawn().expect("mkimage");
    stalled.wait_for_request();
    child.kill().expect("SIGKILL");
    child.wait().expect("mkimage");
    site.assert_untouched();
    let mirror = Mirror::start(Answer::File(package()));
    failed_for_want_of_go(&site.build(&mirror, &[]));
    site.assert_unpacked();
}

#[test]
fn two_builds_at_once_share_the_work() {
    let site = Site::new(&package());
    let mirror = Mirror::start(Answer::Slowly(package(), Duration::from_secs(1)));
    let builds = [(); 2].map(|()| site.command(&mirror, &[]).spawn().expect("mkimage"));
    for build in builds {
        failed_for_want_of_go(&build.wait_with_output().expect("mkimage"));
    }
    assert_eq!(mirror.asked.load(Ordering::SeqCst), 1, "fetched twice");
    site.assert_unpacked();
}

fn signal(id: u32, signal: Signal) {
    let id = i32::try_from(id).ok().and_then(Pid::from_raw);
    kill_process(id.expect("an id"), signal).expect("a signal");
}
