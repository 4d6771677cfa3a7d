//! Order of events: those of a device, its relatives, its device number or its interface come one by one. No I/O.
//!
//! Relatives are ancestors and descendants. All other events may overtake. Each event counts the earlier events it
//! waits for and lists the events that wait for it, so completion needs no search.

use crate::event::Event;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

/// The number of an event in the queue.
pub type Ticket = u64;

#[derive(Debug)]
struct Entry {
    event: Option<Event>,
    keys: Vec<String>,
    waits: usize,
    dependents: Vec<Ticket>,
}

/// Events that arrived and are not done.
#[derive(Debug, Default)]
pub struct Queue {
    next: Ticket,
    entries: HashMap<Ticket, Entry>,
    ready: VecDeque<Ticket>,
    /// The latest event of each device path. Children sort after their parent.
    paths: BTreeMap<String, Ticket>,
    /// The latest event of each device number or interface.
    others: HashMap<String, Ticket>,
}

impl Queue {
    /// Adds an event.
    pub fn push(&mut self, event: Event) {
        let ticket = self.next;
        self.next += 1;
        let keys = keys(&event);
        let mut before = BTreeSet::new();
        for path in paths(&event) {
            // The device itself and those above it ...
            let ends = path
                .char_indices()
                .filter(|(i, c)| *c == '/' && *i > 0)
                .map(|(i, _)| i);
            let prefixes = ends.chain([path.len()]).filter_map(|end| path.get(..end));
            before.extend(prefixes.filter_map(|prefix| self.paths.get(prefix)));
            // ... and those below it.
            let start = format!("{path}/");
            let below = self.paths.range(start.clone()..);
            before.extend(
                below
                    .take_while(|(p, _)| p.starts_with(&start))
                    .map(|(_, t)| t),
            );
        }
        before.extend(keys.iter().filter_map(|key| self.others.get(key)));
        for earlier in &before {
            if let Some(entry) = self.entries.get_mut(earlier) {
                entry.dependents.push(ticket);
            }
        }
        for path in paths(&event) {
            self.paths.insert(path.to_owned(), ticket);
        }
        for key in &keys {
            self.others.insert(key.clone(), ticket);
        }
        if before.is_empty() {
            self.ready.push_back(ticket);
        }
        let waits = before.len();
        let entry = Entry {
            event: Some(event),
            keys,
            waits,
            dependents: Vec::new(),
        };
        self.entries.insert(ticket, entry);
    }

    /// The next event that waits for no other. It stays in the queue until [`Self::done`].
    pub fn pop(&mut self) -> Option<(Ticket, Event)> {
        let ticket = self.ready.pop_front()?;
        let entry = self.entries.get_mut(&ticket)?;
        let event = entry.event.take()?;
        entry.keys.extend(paths(&event).map(str::to_owned));
        Some((ticket, event))
    }

    /// Removes a handled event and releases the events that waited for it.
    pub fn done(&mut self, ticket: Ticket) {
        let Some(entry) = self.entries.remove(&ticket) else {
            return;
        };
        for key in &entry.keys {
            if self.paths.get(key) == Some(&ticket) {
                self.paths.remove(key);
            }
            if self.others.get(key) == Some(&ticket) {
                self.others.remove(key);
            }
        }
        for waiting in entry.dependents {
            if let Some(entry) = self.entries.get_mut(&waiting) {
                entry.waits -= 1;
                if entry.waits == 0 {
                    self.ready.push_back(waiting);
                }
            }
        }
    }

    /// Number of these events and of all events that wait for them.
    pub fn held_up_by(&self, tickets: &[Ticket]) -> usize {
        let mut held_up: BTreeSet<Ticket> = BTreeSet::new();
        let mut next: Vec<Ticket> = tickets.to_vec();
        while let Some(ticket) = next.pop() {
            let Some(entry) = self.entries.get(&ticket) else {
                continue;
            };
            if held_up.insert(ticket) {
                next.extend(&entry.dependents);
            }
        }
        held_up.len()
    }

    /// Number of events that wait or are in work.
    pub fn len(&self) -> usize {
        self.entries.len()
    }
}

/// The paths of an event: the device's current and previous path.
fn paths(event: &Event) -> impl Iterator<Item = &str> {
    [Some(event.devpath.as_str()), event.property("DEVPATH_OLD")]
        .into_iter()
        .flatten()
}

/// Names that another device path may have had: the kernel reuses a device number or interface index after removal.
fn keys(event: &Event) -> Vec<String> {
    event
        .id()
        .filter(|id| !id.starts_with('+'))
        .into_iter()
        .collect()
}

#[cfg(test)]
mod tests {
    use super::{Queue, Ticket};
    use crate::event::Event;
    use proptest::prelude::{prop_assert, proptest};

    fn event(devpath: &str, more: &str) -> Event {
        Event::parse(format!("ACTION=add\nDEVPATH={devpath}\n{more}").as_bytes()).unwrap()
    }

    fn pop(queue: &mut Queue) -> Option<(Ticket, String)> {
        queue.pop().map(|(ticket, event)| (ticket, event.devpath))
    }

    #[test]
    fn parent_events_come_first_and_unrelated_events_in_any_order() {
        let mut queue = Queue::default();
        for path in ["/a", "/a/b", "/a/b/c", "/ab", "/a"] {
            queue.push(event(path, ""));
        }
        let (parent, _) = pop(&mut queue).unwrap();
        let (stranger, path) = pop(&mut queue).unwrap();
        assert_eq!(path, "/ab");
        assert_eq!(
            pop(&mut queue),
            None,
            "children wait, and so does the parent's next event"
        );
        queue.done(stranger);
        queue.done(parent);
        let (child, path) = pop(&mut queue).unwrap();
        assert_eq!((path.as_str(), pop(&mut queue)), ("/a/b", None));
        queue.done(child);
        let (grandchild, path) = pop(&mut queue).unwrap();
        assert_eq!((path.as_str(), pop(&mut queue)), ("/a/b/c", None));
        queue.done(grandchild);
        let (last, path) = pop(&mut queue).unwrap();
        assert_eq!((path.as_str(), queue.len()), ("/a", 1));
        queue.done(last);
        assert_eq!(
            (queue.len(), queue.paths.len(), queue.others.len()),
            (0, 0, 0)
        );
    }

    #[test]
    fn events_waiting_for_an_event_are_counted_once() {
        let mut queue = Queue::default();
        for path in ["/a", "/b", "/a/b", "/a/b", "/a/c"] {
            queue.push(event(path, ""));
        }
        let (held_up, _) = pop(&mut queue).unwrap();
        assert_eq!(queue.held_up_by(&[held_up]), 4);
        let (other, _) = pop(&mut queue).unwrap();
        assert_eq!(queue.held_up_by(&[held_up, other]), 5);
        queue.done(held_up);
        assert_eq!(queue.held_up_by(&[held_up]), 0);
    }

    #[test]
    fn reused_device_numbers_and_renamed_devices_wait() {
        let mut queue = Queue::default();
        let node = "SUBSYSTEM=block\nMAJOR=8\nMINOR=0\nDEVNAME=sda";
        queue.push(event("/x/sda", node));
        queue.push(event("/y/sda", node));
        queue.push(event("/z", "DEVPATH_OLD=/y/sda/old"));
        let (first, _) = pop(&mut queue).unwrap();
        assert_eq!(pop(&mut queue), None);
        queue.done(first);
        let (second, path) = pop(&mut queue).unwrap();
        assert_eq!((path.as_str(), pop(&mut queue)), ("/y/sda", None));
        queue.done(second);
        assert_eq!(pop(&mut queue).unwrap().1, "/z");
    }

    proptest! {
        #[test]
        fn related_events_keep_their_order_and_all_complete(
            paths in proptest::collection::vec("(/[ab]){1,4}", 1..40),
            picks in proptest::collection::vec(0usize..4, 80),
        ) {
            let mut queue = Queue::default();
            for (number, path) in paths.iter().enumerate() {
                queue.push(event(path, &format!("SEQNUM={number}")));
            }
            let (mut work, mut finished): (Vec<(Ticket, Event)>, Vec<Event>) = Default::default();
            let mut picks = picks.iter().cycle();
            while queue.len() > 0 {
                while work.len() < 3 && let Some(next) = queue.pop() {
                    for (_, other) in &work {
                        let (a, b) = (format!("{}/", other.devpath), format!("{}/", next.1.devpath));
                        prop_assert!(!a.starts_with(&b) && !b.starts_with(&a));
                    }
                    work.push(next);
                }
                prop_assert!(!work.is_empty(), "nothing can go on");
                let (ticket, event) = work.remove(picks.next().unwrap() % work.len());
                queue.done(ticket);
                finished.push(event);
            }
            for (index, later) in finished.iter().enumerate() {
                for earlier in finished.iter().skip(index + 1) {
                    let (a, b) = (format!("{}/", later.devpath), format!("{}/", earlier.devpath));
                    let related = a.starts_with(&b) || b.starts_with(&a);
                    prop_assert!(!related || later.sequence < earlier.sequence);
                }
            }
        }
    }
}
