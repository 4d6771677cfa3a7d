//! Promise: no node is lost when its power is cut at random moments while it upgrades to another version and back.
//!
//! The cut comes after one start counted from power-on, after the next from the first call for an upgrade. So it also
//! comes while the boot loader counts a start, and while a version is on trial.
#![expect(
    clippy::expect_used,
    clippy::panic,
    reason = "a failing step is a failing test"
)]

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{scope, sleep};
use std::time::{Duration, Instant};

use qemu::Firmware;
use tests::client::{Client, Table};
use tests::disk::NodeDisk;
use tests::moments::Moments;
use tests::node::{BOOT, Node, SOON};
use tests::{images, upgrades};

/// Cuts of the power of each of the two nodes, unless `CASES` says that both have another number together.
const CUTS: usize = 100;
/// Size of the disk in GiB: the node stores up to two installers, and unpacks one.
const DISK: u32 = 4;
/// Starts in a row that may be too short for an answer. The next start lasts until the node answers.
const SILENT: usize = 4;
/// Pause of the operator after an answer, such as one that a trial has not ended yet.
const PAUSE: Duration = Duration::from_secs(2);
/// Time between two looks at the operator.
const LOOK: Duration = Duration::from_millis(100);

/// A version.
struct Version {
    name: String,
    /// The archive of its installer.
    archive: String,
    /// The node's name of its installer.
    installer: String,
}

impl Version {
    /// Uploads the installer, unless the node has it: the node removes an installer that it has written.
    fn upload(&self, admin: &Client) -> Result<(), String> {
        let list = admin.call(&["image", "list", "--namespace", "system"])?;
        if Table::parse(&list)
            .column("IMAGE")
            .contains(&&*self.installer)
        {
            return Ok(());
        }
        let import = ["image", "import", "--namespace", "system", &self.archive];
        admin.call_within(BOOT, &import).map(drop)
    }
}

/// The versions between which the node changes.
type Versions = [Version; 2];

/// The operator's observations since one start of the node.
#[derive(Default)]
struct Seen {
    /// Versions that answered, in order.
    versions: Vec<String>,
    /// Whether the node began an upgrade.
    upgrades: bool,
    /// The first loss.
    loss: Option<String>,
}

/// Uploads an installer; returns the node's name of it.
fn import(admin: &Client, file: &str) -> String {
    let names = || {
        let list = admin.must(&["image", "list", "--namespace", "system"]);
        let table = Table::parse(&list);
        let names = table.column("IMAGE").into_iter().map(str::to_owned);
        names.collect::<Vec<String>>()
    };
    let before = names();
    let import = ["image", "import", "--namespace", "system", file];
    admin.call_within(BOOT, &import).expect("an upload");
    let new = names().into_iter().find(|name| !before.contains(name));
    new.expect("the name of the installer")
}

/// The version of the node with this `os-release`, if it is one of the two.
fn running<'a>(release: &str, versions: &'a Versions) -> Option<&'a str> {
    let mut names = versions.iter().map(|version| version.name.as_str());
    let runs = |name: &&str| release.contains(&format!("IMAGE_VERSION=\"{name}\""));
    names.find(runs)
}

/// State that the operator and the hand at the power share.
#[derive(Default)]
struct Progress {
    /// The operator has called for an upgrade.
    calls: AtomicBool,
    /// The power is cut.
    ends: AtomicBool,
}

/// Looks at the node until the power is cut, and upgrades it whenever no upgrade is on its way.
fn operate(admin: &Client, versions: &Versions, progress: &Progress) -> Seen {
    let mut seen = Seen::default();
    while !progress.ends.load(Ordering::Relaxed) && seen.loss.is_none() {
        if let Ok(release) = admin.call(&["read", "/etc/os-release"]) {
            match running(&release, versions) {
                None => seen.loss = Some(release),
                Some(name) if seen.versions.last().is_none_or(|last| last != name) => {
                    seen.versions.push(name.to_owned());
                }
                Some(name) => {
                    let meta = admin.call(&["get", "meta", "-o", "yaml"]);
                    seen.loss = meta.ok().filter(|meta| !meta.contains(upgrades::KEPT));
                    let other = versions.iter().find(|version| version.name != name);
                    let other = other.expect("two versions");
                    // A node whose version is on trial refuses.
                    let upgrade = ["upgrade", "--image", &other.installer, "--wait=false"];
                    progress.calls.store(true, Ordering::Relaxed);
                    let begun = other
                        .upload(admin)
                        .and_then(|()| admin.call_within(upgrades::UPGRADE, &upgrade));
                    seen.upgrades |= begun.is_ok();
                }
            }
        }
        sleep(PAUSE);
    }
    seen
}

/// Durations until the verdict of an upgrade.
struct Longest {
    from_power_on: Duration,
    from_call: Duration,
}

/// Measures one upgrade without a cut.
fn upgrade_once(start: impl Fn() -> Node, next: &Version) -> Longest {
    let begun = Instant::now();
    let node = start();
    let admin = node.admin();
    node.ask(&admin, &["version"], BOOT);
    let called = Instant::now();
    let upgrade = ["upgrade", "--image", &next.installer, "--timeout", "1h"];
    let done = admin.call_within(upgrades::UPGRADE, &upgrade);
    done.unwrap_or_else(|error| panic!("{error}"));
    upgrades::expect(&node, &next.name, "good");
    Longest {
        from_power_on: begun.elapsed(),
        from_call: called.elapsed(),
    }
}

/// Waits for the moment of a cut.
fn wait(cut: usize, longest: &Longest, moments: &mut Moments, progress: &Progress) {
    if cut % 2 == 1 {
        return sleep(moments.next(longest.from_power_on));
    }
    let started = Instant::now();
    // A node that cannot answer is cut too: the start after some such starts must be answered.
    while !progress.calls.load(Ordering::Relaxed) && started.elapsed() < BOOT {
        sleep(LOOK);
    }
    sleep(moments.next(longest.from_call));
}

fn power_is_cut_in_upgrade_loops(name: &str, firmware: Firmware) {
    let cases = std::env::var("CASES").ok();
    let cuts = cases.map_or(CUTS, |cases| {
        cases.parse::<usize>().expect("CASES is a number") / 2
    });
    let mut moments = Moments::new();
    let disk = NodeDisk::new(name, DISK);
    let start = || disk.start(|machine| machine.firmware(firmware).memory_mib(1024));
    let node = start();
    upgrades::prepare(&node);
    let own = images::image("-installer.tar").display().to_string();
    let files = [
        (images::version(), own),
        ("0.2.0".to_owned(), upgrades::installer("next")),
    ];
    let versions = files.map(|(name, archive)| {
        let installer = import(&node.admin(), &archive);
        Version {
            name,
            archive,
            installer,
        }
    });
    node.vm.kill();
    drop(node);
    let [_, next] = &versions;
    let longest = upgrade_once(start, next);
    eprintln!(
        "{name}: cuts within {} s of power-on, and within {} s of a call",
        longest.from_power_on.as_secs(),
        longest.from_call.as_secs()
    );

    let (mut silent, mut upgrading, mut changed) = (0, 0, 0);
    let mut answered: Vec<String> = Vec::new();
    for cut in 1..=cuts {
        let node = start();
        let admin = node.admin();
        let progress = Progress::default();
        let seen = scope(|scope| {
            let operator = scope.spawn(|| operate(&admin, &versions, &progress));
            if silent >= SILENT {
                node.ask(&node.admin(), &["version"], BOOT);
                sleep(PAUSE);
            }
            wait(cut, &longest, &mut moments, &progress);
            node.vm.kill();
            progress.ends.store(true, Ordering::Relaxed);
            operator.join().expect("the operator")
        });
        if let Some(loss) = seen.loss {
            panic!("cut {cut}: neither version, or not its META: {loss}");
        }
        silent = if seen.versions.is_empty() {
            silent + 1
        } else {
            0
        };
        upgrading += usize::from(seen.upgrades);
        answered.extend(seen.versions);
        let pairs = answered.iter().zip(answered.iter().skip(1));
        changed = pairs.filter(|(one, next)| one != next).count();
        eprintln!("{name}: cut {cut} of {cuts}, {upgrading} with an upgrade, {changed} changes");
    }
    let node = start();
    let admin = node.admin();
    let release = node.ask(&admin, &["read", "/etc/os-release"], BOOT);
    assert!(running(&release, &versions).is_some(), "{release}");
    let meta = node.ask(&admin, &["get", "meta", "-o", "yaml"], SOON);
    assert!(meta.contains(upgrades::KEPT), "{meta}");
    assert!(upgrading > 0, "no cut came in an upgrade");
    assert!(cuts < 10 || changed > 0, "no version was left");
}

#[test]
#[ignore = "make test-crash"]
fn power_cuts_in_upgrade_loops_lose_no_node() {
    power_is_cut_in_upgrade_loops("power-loop", Firmware::Uefi);
}

#[test]
#[ignore = "make test-crash"]
fn power_cuts_in_upgrade_loops_with_bios_lose_no_node() {
    power_is_cut_in_upgrade_loops("power-loop-bios", Firmware::Bios);
}
