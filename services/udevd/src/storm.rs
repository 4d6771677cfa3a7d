//! An event storm, as from a new disk shelf, passes queue, rules and workers: memory is bounded and no event is lost.

use crate::apply::{Handler, Roots};
use crate::event::Event;
use crate::queue::Queue;
use crate::rules::Rules;
use crate::testing::Tree;
use std::collections::HashMap;
use std::path::Path;
use std::sync::Mutex;
use std::sync::mpsc::channel;
use std::{fs, thread};

const DISKS: usize = 500;
const EVENTS: usize = 10_000;
/// The daemon's value.
const BOUND: usize = 2048;
const WORKERS: usize = 3;

/// Rules for the disks of the storm.
const RULES: &str = r#"
ACTION=="remove", GOTO="end"
SUBSYSTEM!="block", GOTO="end"
KERNEL=="disk*|sd*", SUBSYSTEMS=="scsi", ATTRS{model}=="?*", ENV{MODEL}="$attr{model}"
ENV{MODEL}=="?*", SYMLINK+="shelf/$env{MODEL}-%n", TAG+="shelf"
IMPORT{builtin}="path_id", SYMLINK+="shelf/$env{ID_PATH}"
IMPORT{db}="ROUND"
ENV{ROUND}="$env{ROUND}x"
LABEL="end"
"#;

/// The kernel's text of event `number`. Disks take turns: each is added, changed repeatedly, and half of them are
/// removed at last.
fn recorded(number: usize) -> String {
    let (disk, round, rounds) = (number % DISKS, number / DISKS, EVENTS / DISKS);
    let action = match round {
        0 => "add",
        last if last + 1 == rounds && disk % 2 == 1 => "remove",
        _ => "change",
    };
    let path = devpath(disk);
    format!(
        "{action}@{path}\0ACTION={action}\0DEVPATH={path}\0SUBSYSTEM=block\0MAJOR=259\0\
         MINOR={disk}\0DEVNAME=disk{disk}\0DEVTYPE=disk\0DISKSEQ={disk}\0SEQNUM={number}\0"
    )
}

fn devpath(disk: usize) -> String {
    format!("/devices/pci0/0000:00:05.0/host0/target0:0:{disk}/0:0:{disk}:0/block/disk{disk}")
}

#[test]
fn storm_of_10000_events_loses_no_event() {
    let (tree, dev, run) = (Tree::new(), in_memory(), in_memory());
    tree.device("/devices/pci0/0000:00:05.0", "pci");
    for disk in 0..DISKS {
        let path = devpath(disk);
        let (unit, _) = path.split_once("/block/").unwrap();
        tree.device(unit, "scsi").device(&path, "block");
        tree.attribute(unit, "model", "SHELF 9\n");
    }
    let handler = Handler::new(Roots {
        sys: tree.path().into(),
        dev: dev.path().into(),
        run: run.path().into(),
        proc: "/proc".into(),
    });
    let (mut rules, mut problems) = (Rules::default(), Vec::new());
    rules.add("storm", RULES.as_bytes(), &mut problems);
    assert_eq!(problems, []);
    handler.set_rules(rules);

    let (jobs, work) = channel();
    let (finished, done) = channel();
    let work = Mutex::new(work);
    let (mut queue, mut arrived, mut most) = (Queue::default(), 0, 0);
    let mut last: HashMap<usize, u64> = HashMap::new();
    thread::scope(|scope| {
        for _ in 0..WORKERS {
            let (work, finished, handler) = (&work, finished.clone(), &handler);
            scope.spawn(move || {
                loop {
                    let job = work.lock().unwrap().recv();
                    let Ok((ticket, event)): Result<(_, Event), _> = job else {
                        return;
                    };
                    handler.handle(&event, &|| None);
                    finished.send((ticket, event)).unwrap();
                }
            });
        }
        let mut handled = 0;
        while handled < EVENTS {
            // The socket always has more events; the queue is bounded.
            while arrived < EVENTS && queue.len() < BOUND {
                queue.push(Event::parse(recorded(arrived).as_bytes()).unwrap());
                arrived += 1;
            }
            most = most.max(queue.len());
            while let Some(job) = queue.pop() {
                jobs.send(job).unwrap();
            }
            let (ticket, event) = done.recv().unwrap();
            queue.done(ticket);
            handled += 1;
            let disk = usize::try_from(event.node().unwrap().minor).unwrap();
            let before = last.insert(disk, event.sequence);
            assert!(before < Some(event.sequence), "{event} came too late");
        }
        drop(jobs);
    });
    assert_eq!((arrived, queue.len()), (EVENTS, 0));
    assert!(most <= BOUND, "{most} events at once");

    every_event_counted(dev.path(), run.path());
}

/// A temporary directory in memory, as `/dev` and `/run` on a node.
fn in_memory() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").unwrap()
}

/// Checks that a remaining disk saw every round, and that a removed disk left nothing.
fn every_event_counted(dev: &Path, run: &Path) {
    let rounds = "x".repeat(EVENTS / DISKS);
    for disk in 0..DISKS {
        let record = fs::read_to_string(run.join(format!("data/b259:{disk}")));
        let link = fs::read_link(dev.join(format!("shelf/SHELF_9-{disk}"))).ok();
        if disk % 2 == 1 {
            assert!(record.is_err() && link.is_none(), "{disk} is gone");
            continue;
        }
        let record = record.unwrap();
        assert!(record.contains(&format!("E:ROUND={rounds}\n")), "{record}");
        assert!(record.contains("Q:shelf\n"), "{record}");
        let place = format!("shelf/pci-0000:00:05.0-scsi-0:0:{disk}:0");
        assert!(dev.join(place).is_symlink(), "{record}");
        assert_eq!(link, Some(format!("../disk{disk}").into()));
    }
    assert_eq!(fs::read_dir(run.join("data")).unwrap().count(), DISKS / 2);
}
