//! Tools by the declarations of the table, and the access the kernel grants them.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt as _;
use std::process::Command;

use corten_base::testing::{LoopDevice, skip};

use super::*;
use crate::supervisor::handover;
use crate::{REGISTRYD, SystemCalls, tool};

#[tokio::test]
async fn long_tool_output_is_quoted_from_its_end() {
    let much = "Phase 1 - find and verify superblock...\n".repeat(10_000);
    let words = read(format!("{much}fatal error: no memory").as_bytes()).await;
    assert!(words.starts_with("... "), "{words}");
    assert!(words.ends_with("...\nfatal error: no memory"), "{words}");
    assert_eq!(words.len(), MOST_WORDS + 4);
    assert_eq!(read(&b"no such file"[..]).await, "no such file");
}

/// Libraries of the test's shell and programs.
const LIBRARIES: [&str; 3] = ["/usr", "/lib", "/lib64"];
const TOOLS: [&str; 4] = ["mkfs.xfs", "xfs_repair", "udevd", REGISTRYD];

struct World {
    directory: tempfile::TempDir,
    places: Places,
}

impl World {
    fn new() -> World {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        let places = Places {
            cgroups: at("cgroup"),
            notify: at("notify"),
            stage: at("stage"),
            containers: at("containers"),
        };
        fs::create_dir_all(places.cgroups.join(TOOLS_CGROUP)).unwrap();
        fs::write(places.cgroups.join(TOOLS_CGROUP).join("cgroup.procs"), "").unwrap();
        fs::create_dir(&places.stage).unwrap();
        World { directory, places }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Starts a program of this host with the confinement of a tool, plus its libraries.
    fn start(
        &self,
        tool: &Tool,
        (program, words): (&str, &[&str]),
        files: &[Argument],
    ) -> (u32, [tokio::net::unix::pipe::Receiver; 2]) {
        let mut confinement = confinement(tool, files, &self.places).unwrap();
        if let Some(root) = &mut confinement.root {
            // This host lacks the image's program.
            root.binds.retain(|bind| bind.path != path(tool));
            if tool.sandbox.links.is_empty() {
                let libraries = LIBRARIES.map(|path| Bind::new(path, Access::Run));
                root.binds.splice(..0, libraries);
            }
        }
        let (streams, outputs) = process::streams().unwrap();
        let words: Vec<OsString> = words.iter().map(Into::into).collect();
        let environment = [("PATH".into(), "/usr/bin:/usr/sbin".into())];
        let program = OsString::from(program);
        let pid = child::start(&program, &words, &environment, streams, &confinement).unwrap();
        (pid, outputs)
    }

    /// The exit code and the output.
    async fn run(
        &self,
        tool: &Tool,
        command: (&str, &[&str]),
        files: &[Argument],
    ) -> (Option<i32>, String) {
        let (pid, [out, err]) = self.start(tool, command, files);
        let (out, err) = tokio::join!(read(out), read(err));
        (ended(pid), format!("{out}{err}"))
    }
}

fn ended(pid: u32) -> Option<i32> {
    use nix::sys::wait::{WaitStatus, waitpid};
    let pid = nix::unistd::Pid::from_raw(pid.cast_signed());
    match waitpid(pid, None).unwrap() {
        WaitStatus::Exited(_, code) => Some(code),
        _ => None,
    }
}

fn of_root() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        skip("root, to confine a tool");
    }
    is_root
}

#[tokio::test]
async fn tool_has_its_own_user_root_network_and_declared_capabilities_only() {
    if !of_root() {
        return;
    }
    let network = fs::read_link("/proc/self/ns/net").unwrap();
    for name in TOOLS {
        let (tool, world) = (tool(name).unwrap(), World::new());
        let device = world.at("disk");
        fs::write(&device, "").unwrap();
        let files = [Argument::device(&device)];
        let (pid, _outputs) = world.start(&tool, ("/usr/bin/sleep", &["1000"]), &files);
        let of = |file: &str| fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap();
        let status = of("status");
        let fields: BTreeMap<_, _> = status
            .lines()
            .filter_map(|line| line.split_once(':'))
            .map(|(name, value)| (name, value.split_whitespace().collect::<Vec<_>>().join(" ")))
            .collect();
        let user = tool.uid.to_string();
        let user = [&*user; 4].join(" ");
        for (field, wanted) in [
            ("Uid", &*user),
            ("Gid", &user),
            ("Groups", ""),
            ("NoNewPrivs", "1"),
            ("Seccomp", "2"),
        ] {
            assert_eq!(fields[field], wanted, "{name}: {field}");
        }
        for field in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
            let held = u64::from_str_radix(&fields[field], 16).unwrap();
            assert_eq!(
                held & !tool.capabilities.bits(),
                0,
                "{name}: {field} {held:x}"
            );
        }
        let own = fs::read_link(format!("/proc/{pid}/ns/net")).unwrap();
        assert_ne!(own, network, "{name}");
        // At most the heading of the table.
        let routes = of("net/route");
        assert!(routes.lines().count() <= 1, "{name}: {routes}");
        let mounts = of("mountinfo");
        let mut seen: Vec<_> = mounts
            .lines()
            .map(|line| line.split(' ').nth(4).unwrap())
            .collect();
        seen.retain(|path| !path.starts_with("/usr") && !LIBRARIES.contains(path));
        seen.sort_unstable();
        let mut wanted = vec!["/", device.to_str().unwrap()];
        if name == "udevd" {
            wanted.extend(["/sys", "/proc/cmdline", "/etc/modprobe.d"]);
        }
        wanted.sort_unstable();
        assert_eq!(seen, wanted, "{name}");
        signal_group(pid, Signal::KILL).unwrap();
        ended(pid);
    }
}

#[tokio::test]
async fn compromised_tool_reaches_no_other_file_process_or_socket() {
    if !of_root() {
        return;
    }
    // The script uses only shell builtins and starts no process.
    let script = "echo x > \"$1/work\" && echo worked; \
                  { echo x > \"$2/beside\"; } 2>&1; { echo x > /escaped; } 2>&1; { read x < /etc/passwd; } 2>&1; \
                  { echo x > /dev/tcp/127.0.0.1/50000; } 2>&1; \
                  { true | true; } 2>&1";
    for name in ["mkfs.xfs", "xfs_repair", REGISTRYD] {
        let (tool, world) = (tool(name).unwrap(), World::new());
        let filled = world.at("filled");
        handover::give(&filled, tool.uid).unwrap();
        let beside = world.directory.path().to_str().unwrap().to_owned();
        let words = ["-c", script, "sh", filled.to_str().unwrap(), &beside];
        let files = [Argument::fills(&filled)];
        let (_, said) = world.run(&tool, ("/usr/bin/bash", &words), &files).await;
        assert!(said.contains("worked\n"), "{name}: {said}");
        for refused in [
            "beside: Read-only file system",
            "/escaped: Read-only file system",
            "/etc/passwd: No such file or directory",
            "fork: Function not implemented",
            "socket: Function not implemented",
        ] {
            assert!(said.contains(refused), "{name}: {refused}: {said}");
        }
        assert!(!world.at("beside").exists());
        assert_eq!(fs::metadata(filled.join("work")).unwrap().uid(), tool.uid);
    }
}

async fn file_systems_are_made_and_repaired(world: &World, device: &Path) {
    let files = [Argument::device(device)];
    let shown = device.to_str().unwrap();
    for (name, words) in [
        ("mkfs.xfs", &["-q", "-f", "-L", "STATE", shown][..]),
        ("xfs_repair", &[shown]),
    ] {
        let tool = tool(name).unwrap();
        let program = format!("/usr/sbin/{name}");
        let (code, said) = world.run(&tool, (&program, words), &files).await;
        assert_eq!(code, Some(0), "{name}: {said}");
        let (code, said) = world.run(&tool, (&program, words), &[]).await;
        assert_ne!(code, Some(0), "{name} of what it does not see: {said}");
    }
}

#[tokio::test]
async fn file_systems_are_made_and_repaired_in_the_sandbox() {
    if !of_root() {
        return;
    }
    if !Path::new("/usr/sbin/mkfs.xfs").exists() {
        return skip("xfsprogs");
    }
    let world = World::new();
    let image = world.at("disk");
    fs::File::create(&image)
        .unwrap()
        .set_len(512 << 20)
        .unwrap();
    file_systems_are_made_and_repaired(&world, &image).await;
    let Some(disk) = LoopDevice::of(&image) else {
        return;
    };
    let device = disk.path().to_owned();
    file_systems_are_made_and_repaired(&world, &device).await;
    // The superblock is lost; a copy of it repairs the file system.
    fs::File::options()
        .write(true)
        .open(&device)
        .and_then(|mut disk| io::Write::write_all(&mut disk, &[0; 4096]))
        .unwrap();
    let tool = tool("xfs_repair").unwrap();
    let words: &[&str] = &[device.to_str().unwrap()];
    let command = ("/usr/sbin/xfs_repair", words);
    let (code, said) = world
        .run(&tool, command, &[Argument::device(&device)])
        .await;
    assert_eq!(code, Some(0), "{said}");
    let label = Command::new("/usr/sbin/xfs_admin")
        .arg("-l")
        .arg(&device)
        .output();
    let label = String::from_utf8_lossy(&label.unwrap().stdout).into_owned();
    assert!(label.contains("\"STATE\""), "{label}");
}

#[tokio::test]
async fn module_loader_sees_modules_and_no_node_data() {
    if !of_root() {
        return;
    }
    let (tool, world) = (tool("udevd").unwrap(), World::new());
    assert_eq!(tool.system_calls, SystemCalls::ModuleLoader);
    let script = "ls / /etc /proc; ls -d /sys/module/*/ | head -n 1; read line < /proc/cmdline && echo read; \
                  echo x > /etc/modprobe.d/x || ls /system";
    let (_, said) = world
        .run(&tool, ("/usr/bin/sh", &["-c", script]), &[])
        .await;
    let start =
        "/:\netc\nlib\nlib64\nproc\nsys\nusr\n\n/etc:\nmodprobe.d\n\n/proc:\ncmdline\n/sys/module/";
    assert!(said.starts_with(start), "{said}");
    assert!(said.contains("read\n"), "{said}");
    assert!(
        said.contains("Read-only file system") && said.contains("/system"),
        "{said}"
    );
}
