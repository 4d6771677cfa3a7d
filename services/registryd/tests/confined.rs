//! Unpacks an extension in the node's sandbox: as user 53, in a root with only the image and the directory. It has no
//! network, and the system calls of a tool. The sandbox itself is tested in
//! `node/supervisor/src/supervisor/tool_tests.rs`.
#![expect(clippy::unwrap_used, reason = "a failing step is a failing test")]

use std::ffi::OsString;
use std::fs;
use std::io::{self, PipeReader, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, chown};
use std::path::Path;

use corten_extension::archive::testing::{Image, Member, PLAIN, file, node, tar};
use corten_sys::child::{self, CapabilitySet, Confinement, Streams};
use corten_sys::sandbox::{Access, Bind, Root};
use corten_sys::seccomp::Filter;
use tar::EntryType;

const UID: u32 = 53;
const MANIFEST: &str = "version: v1alpha1\nmetadata: {name: hello, version: '1'}\n";
/// Holds the program's arguments in the process that runs it.
const MARK: &str = "CORTEN_TEST_UNPACK";

fn is_root() -> bool {
    let is_root = fs::metadata("/proc/self").unwrap().uid() == 0;
    if !is_root {
        assert!(std::env::var_os("CORTEN_NO_SKIP").is_none(), "needs root");
        let mut error = io::stderr();
        error.write_all(b"\nSKIPPED a part: needs root\n").unwrap();
    }
    is_root
}

/// Not a test: runs the program when this process was started for it.
#[test]
fn the_program() {
    if let Ok(words) = std::env::var(MARK) {
        let words = ["registryd"].into_iter().chain(words.split(' '));
        let ended = registryd::run(words.map(OsString::from));
        // ExitCode has no other comparison.
        assert_eq!(format!("{ended:?}"), "ExitCode(unix_exit_status(0))");
        println!("UNPACKED");
    }
}

/// The program's output, stdout and stderr.
fn unpack(image: &Path, digest: &str, to: &Path) -> String {
    let stage = tempfile::tempdir().unwrap();
    let program = std::env::current_exe().unwrap();
    let own = ["/usr", "/lib", "/lib64"].map(|path| Bind::new(path, Access::Run));
    let files = [
        Bind::new(&program, Access::Run),
        Bind::new(image, Access::Read),
        Bind::new(to, Access::Write),
    ];
    let confinement = Confinement {
        uid: UID,
        gid: UID,
        capabilities: CapabilitySet::empty(),
        no_new_privs: true,
        oom_score_adj: 0,
        cgroup_procs: None,
        own_network: true,
        root: Some(Root {
            stage: stage.path().to_owned(),
            binds: own.into_iter().chain(files).collect(),
            links: Vec::new(),
            empty: Vec::new(),
        }),
        system_calls: Some(Filter::tool().unwrap()),
    };
    let (streams, mut said) = streams();
    let words = format!("unpack {} {digest} {}", image.display(), to.display());
    let environment = [(MARK.into(), words.into())];
    let arguments = ["--exact", "the_program", "--nocapture"].map(OsString::from);
    let program = program.into_os_string();
    child::start(&program, &arguments, &environment, streams, &confinement).unwrap();
    let mut text = String::new();
    said.read_to_string(&mut text).unwrap();
    text
}

fn streams() -> (Streams, PipeReader) {
    let (reader, writer) = io::pipe().unwrap();
    let streams = Streams {
        stdin: None,
        stdout: writer.try_clone().unwrap().into(),
        stderr: writer.into(),
    };
    (streams, reader)
}

/// An image of these files, its digest, and an empty directory that belongs to the user.
fn world(directory: &Path, members: &[Member<'_>]) -> String {
    let mut image = Image::default();
    let digest = image.add(corten_api::ARCH, &[(PLAIN, tar(members))]);
    fs::write(directory.join("x.tar"), image.archive()).unwrap();
    let to = directory.join("to");
    fs::create_dir(&to).unwrap();
    chown(to, Some(UID), Some(UID)).unwrap();
    digest
}

#[test]
fn an_extension_is_unpacked_without_privileges() {
    if !is_root() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let program = node(
        "rootfs/usr/local/bin/tool",
        EntryType::Regular,
        0o755,
        "a program",
    );
    let digest = world(
        directory.path(),
        &[file("manifest.yaml", MANIFEST), program],
    );
    let to = directory.path().join("to");
    let said = unpack(&directory.path().join("x.tar"), &digest, &to);
    assert!(said.contains("UNPACKED"), "{said}");
    let placed = to.join("rootfs/usr/local/bin/tool");
    assert_eq!(fs::read_to_string(&placed).unwrap(), "a program");
    let about = fs::metadata(placed).unwrap();
    assert_eq!((about.uid(), about.mode() & 0o7777), (UID, 0o755));
}

#[test]
fn hostile_archives_change_nothing_outside_their_directory() {
    if !is_root() {
        return;
    }
    for member in [
        file("rootfs/usr/local/../../../../escaped", "x"),
        file("../escaped", "x"),
        node(
            "rootfs/usr/local/a",
            EntryType::Symlink,
            0o777,
            "../../../../../escaped",
        ),
        node("rootfs/usr/local/a", EntryType::Char, 0o666, ""),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let digest = world(directory.path(), &[file("manifest.yaml", MANIFEST), member]);
        let to = directory.path().join("to");
        let said = unpack(&directory.path().join("x.tar"), &digest, &to);
        assert!(!said.contains("UNPACKED"), "{member:?}: {said}");
        assert!(!to.join("manifest.yaml").exists(), "{member:?}");
        assert_eq!(
            fs::read_dir(directory.path()).unwrap().count(),
            2,
            "{member:?}"
        );
    }
}
