//! The daemon on a machine made of a directory: recorded kernel events are sent again over a socket with little room.

use super::*;
use crate::event::Event;
use crate::pool::LATE;
use crate::testing::Tree;
use corten_corpus::{sample, samples};
use rustix::event::{EventfdFlags, eventfd};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::{self, Read as _};
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixStream;
use std::sync::Mutex;
use std::sync::mpsc::channel;
use std::thread;

/// Socket capacity in messages: enough for one coldplug batch, or for seven removals and insertions of the USB stick.
const ROOM: usize = 105;

/// Subsystems that are buses; all others are classes.
const BUSES: [&str; 4] = ["pci", "scsi", "usb", "virtio"];

/// A simulated netlink socket. When it is full, it drops messages and reports that before the queued ones
/// (net/netlink/af_netlink.c, `netlink_overrun`).
struct Wire {
    waiting: Mutex<Waiting>,
    ready: OwnedFd,
}

#[derive(Default)]
struct Waiting {
    messages: VecDeque<Vec<u8>>,
    is_overrun: bool,
    dropped: usize,
}

impl Wire {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            waiting: Mutex::default(),
            ready: eventfd(0, EventfdFlags::NONBLOCK).unwrap(),
        })
    }

    fn send(&self, message: &[u8]) {
        let mut waiting = self.waiting.lock().unwrap();
        if waiting.messages.len() < ROOM {
            waiting.messages.push_back(message.to_vec());
        } else {
            waiting.is_overrun = true;
            waiting.dropped += 1;
        }
        rustix::io::write(&self.ready, &1_u64.to_ne_bytes()).unwrap();
    }

    fn dropped(&self) -> usize {
        std::mem::take(&mut self.waiting.lock().unwrap().dropped)
    }
}

impl AsFd for Wire {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.ready.as_fd()
    }
}

impl Source for Arc<Wire> {
    fn receive(&self) -> io::Result<Received> {
        let mut waiting = self.waiting.lock().unwrap();
        if std::mem::take(&mut waiting.is_overrun) {
            return Ok(Received::Overrun);
        }
        Ok(match waiting.messages.pop_front() {
            Some(message) => Event::parse(&message).map_or(Received::Broken, Received::Event),
            None => {
                let _ = rustix::io::read(&self.ready, &mut [0; 8][..]);
                Received::Empty
            }
        })
    }
}

/// The messages of a recorded sample. Each begins with a line that is not `KEY=value`.
fn messages(sample: &[u8]) -> Vec<Vec<u8>> {
    let mut messages: Vec<Vec<u8>> = Vec::new();
    for line in sample.split_inclusive(|byte| *byte == 0) {
        if !line.contains(&b'=') {
            messages.push(Vec::new());
        }
        messages.last_mut().unwrap().extend(line);
    }
    messages
}

/// A machine whose kernel answers a request for a device with the recorded message of that device.
struct Machine {
    tree: Tree,
    wire: Arc<Wire>,
    present: BTreeMap<String, Vec<u8>>,
}

impl Machine {
    fn new() -> Self {
        Self {
            tree: Tree::new(),
            wire: Wire::new(),
            present: BTreeMap::new(),
        }
    }

    /// The sysfs links that other directories have for a device.
    fn links(event: &Event) -> Vec<String> {
        let (subsystem, name) = (&event.subsystem, event.sysname());
        let mut links = vec![match BUSES.contains(&subsystem.as_str()) {
            true => format!("bus/{subsystem}/devices/{name}"),
            false => format!("class/{subsystem}/{name}"),
        }];
        if let Some(node) = event.node() {
            let kind = if node.block { "block" } else { "char" };
            links.push(format!("dev/{kind}/{}:{}", node.major, node.minor));
        }
        links
    }

    /// Changes sysfs as the events of the sample say, and sends the events.
    fn play(&mut self, name: &str) {
        for message in messages(&sample("uevents", name)) {
            let event = Event::parse(&message).unwrap();
            let device = self.tree.path().join(event.devpath.trim_start_matches('/'));
            let links = Self::links(&event);
            let links = links.iter().map(|link| self.tree.path().join(link));
            match event.action.name() {
                "add" => {
                    self.tree.device(&event.devpath, &event.subsystem);
                    for link in links {
                        fs::create_dir_all(link.parent().unwrap()).unwrap();
                        symlink(&device, link).unwrap();
                    }
                    self.present.insert(event.devpath.clone(), message.clone());
                }
                "remove" => {
                    fs::remove_dir_all(device).unwrap();
                    links.for_each(|link| fs::remove_file(link).unwrap());
                    self.present.remove(&event.devpath).unwrap();
                }
                _ => assert!(self.present.contains_key(&event.devpath), "{event}"),
            }
            self.wire.send(&message);
        }
    }

    /// Sends the events of the requested devices; returns their number.
    fn answer(&self) -> usize {
        let is_asked_for = |path: &&String| {
            let file = self.tree.path().join(path.trim_start_matches('/'));
            let file = file.join("uevent");
            let asked = fs::read_to_string(&file).unwrap() == "add";
            if asked {
                fs::write(file, "").unwrap();
            }
            asked
        };
        let asked: Vec<&String> = self.present.keys().filter(is_asked_for).collect();
        for path in &asked {
            self.wire.send(&self.present[*path]);
        }
        asked.len()
    }
}

/// A daemon and its output directories.
struct Running {
    daemon: Daemon<Arc<Wire>>,
    dev: tempfile::TempDir,
    run: tempfile::TempDir,
    _proc: tempfile::TempDir,
}

impl Running {
    fn on(machine: &Machine) -> Self {
        Self::with(machine, |handler| {
            Box::new(move || {
                let handler = handler.clone();
                Box::new(move |event| drop(handler.handle(event, &|| None)))
            })
        })
    }

    fn with(machine: &Machine, work: impl FnOnce(Arc<Handler>) -> Box<Work>) -> Self {
        let [dev, run, proc] = [(); 3].map(|()| tempfile::tempdir().unwrap());
        // The host's own interfaces use the same indexes, so renaming is off.
        fs::write(proc.path().join("cmdline"), "net.ifnames=0").unwrap();
        let roots = Roots {
            sys: machine.tree.path().into(),
            dev: dev.path().into(),
            run: run.path().into(),
            proc: proc.path().into(),
        };
        Self {
            daemon: Daemon::new(machine.wire.clone(), roots, &[], 3, work).unwrap(),
            dev,
            run,
            _proc: proc,
        }
    }

    /// Steps until the daemon is idle and no request is open.
    fn settle(&mut self, machine: &Machine) {
        while !self.daemon.step().unwrap() || machine.answer() > 0 {
            machine.answer();
        }
    }

    fn knows(&self, device: &str) -> bool {
        self.run.path().join("data").join(device).exists()
    }

    /// The daemon's output: links, and database records without their times.
    fn made(&self) -> BTreeSet<String> {
        let mut made = BTreeSet::new();
        let mut left = vec![self.dev.path().to_owned(), self.run.path().join("data")];
        while let Some(path) = left.pop() {
            let name = path.strip_prefix(self.dev.path());
            let name = name
                .or_else(|_| path.strip_prefix(self.run.path()))
                .unwrap();
            let name = name.display();
            if let Ok(target) = fs::read_link(&path) {
                made.insert(format!("{name} -> {}", target.display()));
            } else if path.is_dir() {
                left.extend(
                    fs::read_dir(&path)
                        .unwrap()
                        .map(|entry| entry.unwrap().path()),
                );
            } else {
                let text = fs::read_to_string(&path).unwrap();
                let lines = text.lines().filter(|line| !line.starts_with("I:"));
                made.insert(format!("{name}: {}", lines.collect::<Vec<_>>().join(" ")));
            }
        }
        made
    }
}

#[test]
fn corpus_samples_are_kernel_messages() {
    for sample in samples("uevents") {
        let all = messages(&sample.bytes);
        assert!(all.len() > 2, "{}", sample.name);
        let mut before = 0;
        for message in all {
            let event = Event::parse(&message).unwrap();
            let head = format!("{}@{}\0ACTION=", event.action.name(), event.devpath);
            assert!(message.starts_with(head.as_bytes()) && message.ends_with(b"\0"));
            assert!(event.sequence > before, "{event}");
            before = event.sequence;
        }
    }
}

#[test]
fn dropped_kernel_events_are_recovered() {
    let everything = ["disk", "disk-with-change", "card", "mapped"];
    // The reference: a run that receives every event.
    let mut machine = Machine::new();
    let mut heard = Running::on(&machine);
    for name in everything {
        machine.play(name);
        heard.settle(&machine);
    }
    assert_eq!(machine.wire.dropped(), 0);
    let whole = heard.made();
    assert!(
        whole.contains("disk/by-diskseq/21 -> ../../sda"),
        "{whole:#?}"
    );

    let mut machine = Machine::new();
    let mut daemon = Running::on(&machine);
    machine.play("disk");
    machine.play("stick");
    daemon.settle(&machine);
    assert!(daemon.knows("b8:0") && daemon.knows("b8:48"));
    // Pull the stick out and put it in until the socket is full. The last removal and the events after it are dropped.
    let round = ["stick-gone", "stick"];
    let length = round.map(|name| messages(&sample("uevents", name)).len());
    assert_eq!(
        ROOM % length.iter().sum::<usize>(),
        0,
        "it is there when room ends"
    );
    while machine.wire.dropped() == 0 {
        for name in round {
            machine.play(name);
        }
    }
    machine.play("stick-gone");
    for name in everything {
        if name != "disk" {
            machine.play(name);
        }
    }
    let told = machine.wire.waiting.lock().unwrap().messages.len();
    assert!(told == ROOM && machine.wire.dropped() > 20);
    daemon.settle(&machine);
    assert_eq!(machine.wire.dropped(), 0);
    assert!(
        !daemon.knows("b8:48"),
        "a device that was removed unnoticed is forgotten"
    );
    let made = daemon.made();
    assert_eq!(made, whole);

    // A daemon that starts on the final state must give the same result.
    let mut fresh = Running::on(&machine);
    fresh.settle(&machine);
    assert_eq!(fresh.made(), whole);
}

#[test]
fn health_request_is_answered() {
    let machine = Machine::new();
    let mut running = Running::on(&machine);
    running.settle(&machine);
    for _ in 0..2 {
        let mut caller = UnixStream::connect(running.run.path().join("health")).unwrap();
        caller.shutdown(Shutdown::Write).unwrap();
        assert!(running.daemon.step().unwrap());
        assert_eq!(caller.read(&mut [0]).unwrap(), 0);
    }
}

#[test]
fn event_behind_a_hung_device_waits_without_busy_looping() {
    let (go_on, held) = channel::<()>();
    let held = Arc::new(Mutex::new(held));
    let machine = Machine::new();
    let mut running = Running::with(&machine, |_| {
        Box::new(move || {
            let held = held.clone();
            Box::new(move |_| held.lock().unwrap().recv().unwrap_or_default())
        })
    });
    let message = b"add@/devices/a\0ACTION=add\0DEVPATH=/devices/a\0SUBSYSTEM=a\0SEQNUM=1\0";
    let daemon = &mut running.daemon;
    machine.wire.send(message);
    assert!(!daemon.step().unwrap());
    while daemon.pool.late().is_empty() {
        daemon.pool.replace_late(Instant::now() + 2 * LATE);
        thread::yield_now();
    }
    while daemon.room() > 0 {
        for _ in 0..daemon.room() {
            daemon.queue.push(Event::parse(message).unwrap());
        }
    }
    machine.wire.send(message);
    assert!(daemon.step().unwrap(), "nothing else is left to do");
    go_on.send(()).unwrap();
    let happened = daemon.wait(false).unwrap();
    assert!(happened.done && !happened.events);
}
