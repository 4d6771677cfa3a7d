//! Tests of children in roots of their own, on the real kernel.

use super::*;
use crate::child::{self, CapabilitySet, Confinement, Streams};
use crate::seccomp::Filter;
use crate::testing::skip;
use std::io::{BufRead, BufReader, PipeReader, Read};

/// The streams of a child, and the reader of its standard output. Its standard error is discarded.
fn streams() -> (Streams, PipeReader) {
    let (reader, writer) = io::pipe().unwrap();
    let nowhere = std::fs::File::options().write(true).open("/dev/null");
    let streams = Streams {
        stdin: None,
        stdout: writer.into(),
        stderr: nowhere.unwrap().into(),
    };
    (streams, reader)
}

#[test]
fn undeclared_paths_are_invisible_in_the_sandbox() {
    let stage = tempfile::tempdir().unwrap();
    let bind = |path: &str| Bind::new(path, Access::Run);
    // A dynamically linked program, its libraries, and one file.
    let binds = ["/usr", "/lib", "/lib64", "/proc/version"].map(bind);
    let confinement = Confinement {
        uid: 65534,
        gid: 65534,
        capabilities: CapabilitySet::empty(),
        no_new_privs: true,
        oom_score_adj: 0,
        cgroup_procs: None,
        own_network: false,
        root: Some(Root {
            stage: stage.path().to_owned(),
            binds: binds.to_vec(),
            links: Vec::new(),
            empty: Vec::new(),
        }),
        system_calls: Some(Filter::server().unwrap()),
    };
    let words = ["-R", "/proc", "/"].map(Into::into);
    let (streams, mut stdout) = streams();
    let started = child::start(&"/usr/bin/ls".into(), &words, &[], streams, &confinement);
    if !rustix::process::geteuid().is_root() {
        // Without the right to create namespaces the start fails; it must not give a child outside of its root.
        assert_eq!(started.unwrap_err().kind(), io::ErrorKind::PermissionDenied);
        return skip("root, to create a root file system");
    }
    started.unwrap();
    let mut shown = String::new();
    stdout.read_to_string(&mut shown).unwrap();
    assert_eq!(shown.lines().next(), Some("/:"), "{shown}");
    let root: Vec<_> = shown
        .lines()
        .skip(1)
        .take_while(|line| !line.is_empty())
        .collect();
    assert_eq!(root, ["lib", "lib64", "proc", "usr"]);
    assert!(shown.contains("/proc:\nversion\n"), "{shown}");
    // The mounts on the stage are invisible to the parent.
    assert_eq!(std::fs::read_dir(stage.path()).unwrap().count(), 0);
}

#[test]
fn a_file_that_is_replaced_is_seen_through_a_link() {
    if !rustix::process::geteuid().is_root() {
        return skip("root, to create a root file system");
    }
    let directory = tempfile::tempdir().unwrap();
    let stage = tempfile::tempdir().unwrap();
    let names = directory.path().join("names");
    std::fs::create_dir(&names).unwrap();
    let replace = |text: &str| {
        std::fs::write(names.join("new"), text).unwrap();
        std::fs::rename(names.join("new"), names.join("hosts")).unwrap();
    };
    replace("first\n");
    let bind = |path: &Path| Bind::new(path, Access::Run);
    let program = "cat /etc/hosts; until grep second /etc/hosts; do sleep 0.1; done; \
                   echo x > /etc/hosts || echo refused";
    let confinement = Confinement {
        uid: 0,
        gid: 0,
        capabilities: CapabilitySet::empty(),
        no_new_privs: true,
        oom_score_adj: 0,
        cgroup_procs: None,
        own_network: false,
        root: Some(Root {
            stage: stage.path().to_owned(),
            binds: ["/usr", "/lib", "/lib64"]
                .map(Path::new)
                .into_iter()
                .chain([names.as_path()])
                .map(bind)
                .collect(),
            links: vec![Link {
                path: "/etc/hosts".into(),
                target: names.join("hosts"),
            }],
            empty: Vec::new(),
        }),
        system_calls: None,
    };
    let words = ["-c", program].map(Into::into);
    let path = [("PATH".into(), "/usr/bin".into())];
    let (streams, stdout) = streams();
    child::start(&"/usr/bin/sh".into(), &words, &path, streams, &confinement).unwrap();
    let mut lines = BufReader::new(stdout).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "first");
    replace("second\n");
    assert_eq!(lines.next().unwrap().unwrap(), "second");
    assert_eq!(lines.next().unwrap().unwrap(), "refused");
}

#[test]
fn a_missing_path_is_named_before_anything_starts() {
    let root = Root {
        stage: "/tmp".into(),
        binds: vec![Bind::new("/no/such/file", Access::Read)],
        links: Vec::new(),
        empty: Vec::new(),
    };
    let error = Sandbox::new(&root).unwrap_err();
    assert!(error.to_string().starts_with("/no/such/file: "), "{error}");
}

/// Runs a shell script in a root with these binds and without a network; returns its process id and its output.
fn shell(stage: &Path, binds: &[Bind], script: &str) -> (u32, PipeReader) {
    let libraries = ["/usr", "/lib", "/lib64"].map(|path| Bind::new(path, Access::Run));
    let confinement = Confinement {
        uid: 0,
        gid: 0,
        capabilities: CapabilitySet::empty(),
        no_new_privs: true,
        oom_score_adj: 0,
        cgroup_procs: None,
        own_network: true,
        root: Some(Root {
            stage: stage.to_owned(),
            binds: libraries.into_iter().chain(binds.iter().cloned()).collect(),
            links: Vec::new(),
            empty: vec!["/proc/mounts".into()],
        }),
        system_calls: None,
    };
    let words = ["-c", script].map(Into::into);
    let path = [("PATH".into(), "/usr/bin".into())];
    let (streams, said) = streams();
    let shell = "/usr/bin/sh".into();
    let pid = child::start(&shell, &words, &path, streams, &confinement).unwrap();
    (pid, said)
}

#[test]
fn each_path_has_its_declared_access() {
    if !rustix::process::geteuid().is_root() {
        return skip("root, to create a root file system");
    }
    let [stage, data] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let at = |name: &str| data.path().join(name);
    for name in ["read", "write"] {
        std::fs::create_dir(at(name)).unwrap();
        std::fs::copy("/usr/bin/true", at(name).join("program")).unwrap();
        let (null, mode) = (at(name).join("null"), Mode::from_raw_mode(0o666));
        let kind = FileType::CharacterDevice;
        rustix::fs::mknodat(CWD, &null, kind, mode, rustix::fs::makedev(1, 3)).unwrap();
    }
    let binds = [
        Bind::new(at("read"), Access::Read),
        Bind::new(at("write"), Access::Write),
        Bind::new("/dev/null", Access::Devices),
    ];
    let script = format!(
        "cd {} && for i in read write; do \
            echo x > $i/new && echo $i is written; $i/program && echo $i runs; \
            echo x > $i/null && echo $i has devices; done; \
         echo x > /dev/null && echo a device; \
         test -e /proc/mounts && ! test -s /proc/mounts && echo no mounts",
        data.path().display()
    );
    let (_, mut said) = shell(stage.path(), &binds, &script);
    let mut text = String::new();
    said.read_to_string(&mut text).unwrap();
    assert_eq!(text, "write is written\na device\nno mounts\n");
    assert!(at("write").join("new").exists());
}

#[test]
fn later_mounts_are_visible_under_followed_paths_only() {
    if !rustix::process::geteuid().is_root() {
        return skip("root, to create a root file system");
    }
    let [stage, data] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let at = |name: &str| data.path().join(name);
    for name in ["followed/early", "followed/late", "other/late"] {
        std::fs::create_dir_all(at(name)).unwrap();
    }
    let lay = |path: &str| {
        mount(c"test", at(path), c"tmpfs", MountFlags::empty(), c"").unwrap();
        std::fs::write(at(path).join("seen"), "").unwrap();
    };
    // The mounts go with the thread.
    let alone = || {
        unshare(CloneFlags::CLONE_NEWNS).unwrap();
        let shared = MountPropagationFlags::SHARED | MountPropagationFlags::REC;
        mount_change(
            c"/",
            MountPropagationFlags::PRIVATE | MountPropagationFlags::REC,
        )
        .unwrap();
        mount_change(c"/", shared).unwrap();
        lay("followed/early");
        let followed = Bind {
            follows: true,
            ..Bind::new(at("followed"), Access::Read)
        };
        let binds = [followed, Bind::new(at("other"), Access::Read)];
        let script = format!(
            "cd {}; echo followed/early/*; until test -e followed/late/seen; do sleep 0.1; done; \
             echo followed/late/* other/late/*",
            data.path().display()
        );
        let (pid, said) = shell(stage.path(), &binds, &script);
        let mut lines = BufReader::new(said).lines();
        assert_eq!(lines.next().unwrap().unwrap(), "followed/early/seen");
        let network = |pid: &str| std::fs::read_link(format!("/proc/{pid}/ns/net")).unwrap();
        assert_ne!(network(&pid.to_string()), network("self"));
        lay("other/late");
        lay("followed/late");
        let last = lines.next().unwrap().unwrap();
        assert_eq!(last, "followed/late/seen other/late/*");
        unmount(at("followed/late"), UnmountFlags::DETACH).unwrap();
    };
    std::thread::scope(|scope| scope.spawn(alone).join().unwrap());
}
