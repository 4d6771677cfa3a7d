//! A destination's position in the logs. It stores line numbers only. Lines that a slow or absent receiver has not
//! received stay in the rings until they are evicted.

use super::message::{self, Tags};
use crate::config::Logs;
use crate::sources::KERNEL;
use crate::store::Store;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Messages of one log, in order, and the position after them.
#[derive(Debug)]
pub(super) struct Batch {
    pub(super) log: Arc<str>,
    pub(super) next: u64,
    pub(super) messages: Vec<Vec<u8>>,
}

/// Reads logs from their positions.
#[derive(Debug, Clone)]
pub(super) struct Follower {
    store: Arc<Store>,
    logs: Logs,
    tags: Tags,
    places: BTreeMap<Arc<str>, u64>,
    /// The log read last. The next read starts with the log after it.
    last: Option<Arc<str>>,
}

impl Follower {
    /// Starts at the oldest line of every log.
    pub(super) fn new(store: Arc<Store>, logs: Logs, tags: Tags) -> Follower {
        Follower {
            store,
            logs,
            tags,
            places: BTreeMap::new(),
            last: None,
        }
    }

    /// The next messages, at most one block of one log; `None` if there are none yet.
    pub(super) fn next(&mut self) -> Option<Batch> {
        let ids: Vec<Arc<str>> = match self.logs {
            Logs::Kernel => vec![KERNEL.into()],
            Logs::Services => {
                let mut ids = self.store.ids();
                ids.retain(|id| &**id != KERNEL);
                let behind = ids.partition_point(|id| Some(id) <= self.last.as_ref());
                ids.rotate_left(behind);
                ids
            }
        };
        ids.into_iter().find_map(|id| self.read(id))
    }

    fn read(&mut self, log: Arc<str>) -> Option<Batch> {
        let place = self.places.get(&log).copied();
        // Lines evicted before a new destination started do not count as lost.
        let place = place.or_else(|| self.store.cursor(&log, -1))?;
        let read = self.store.read(&log, place)?;
        let mut messages = Vec::new();
        for (line, at) in read.lines() {
            if messages.is_empty() && read.dropped > 0 {
                messages.push(message::encode_loss(&log, read.dropped, at, &self.tags));
            }
            messages.push(message::encode(&log, line, at, &self.tags));
        }
        self.places.insert(log.clone(), read.next);
        self.last = Some(log.clone());
        Some(Batch {
            log,
            next: read.next,
            messages,
        })
    }

    /// Sets the position in a log.
    pub(super) fn go(&mut self, log: &Arc<str>, next: u64) {
        self.places.insert(log.clone(), next);
    }
}

#[cfg(test)]
mod tests {
    use super::Follower;
    use crate::config::Logs;
    use crate::destination::message::Tags;
    use crate::store::{Bounds, Store};
    use std::sync::Arc;

    fn store() -> Arc<Store> {
        let (per_log, total) = (20_000, 100_000);
        Arc::new(Store::new(Bounds { per_log, total }))
    }

    fn texts(follower: &mut Follower) -> Vec<String> {
        let batches = std::iter::from_fn(|| follower.next());
        let messages = batches.flat_map(|batch| batch.messages);
        messages
            .map(|message| {
                let value: serde_json::Value = serde_json::from_slice(&message).unwrap();
                format!(
                    "{}: {}",
                    value["talos-service"].as_str().unwrap(),
                    value["msg"].as_str().unwrap()
                )
            })
            .collect()
    }

    #[test]
    fn each_destination_kind_gets_its_logs_once() {
        let store = store();
        for (log, line) in [("a", "1"), ("kernel", "6,1,1,1;k"), ("b", "2"), ("a", "3")] {
            store.append(log, line.as_bytes()).unwrap();
        }
        let mut services = Follower::new(store.clone(), Logs::Services, Tags::new());
        let mut kernel = Follower::new(store.clone(), Logs::Kernel, Tags::new());
        assert_eq!(texts(&mut services), ["a: 1", "a: 3", "b: 2"]);
        assert_eq!(texts(&mut kernel), ["kernel: k"]);
        store.append("a", b"4").unwrap();
        assert_eq!(texts(&mut services), ["a: 4"]);
        assert_eq!(texts(&mut kernel), [] as [&str; 0]);
        services.go(&"a".into(), 1);
        assert_eq!(texts(&mut services), ["a: 3", "a: 4"]);
    }

    #[test]
    fn lines_are_lost_only_to_the_bound_and_are_counted() {
        let store = store();
        let mut follower = Follower::new(store.clone(), Logs::Services, Tags::new());
        store.append("a", b"first").unwrap();
        assert_eq!(texts(&mut follower), ["a: first"]);
        for n in 0..5000 {
            store.append("a", format!("line {n}").as_bytes()).unwrap();
        }
        let got = texts(&mut follower);
        let lost = 5000 - (got.len() - 1);
        assert!(lost > 0);
        assert_eq!(got[0], format!("a: {lost} messages were lost"));
        assert_eq!(got[1], format!("a: line {lost}"));
        assert_eq!(got[got.len() - 1], "a: line 4999");
        // A follower that starts now has lost nothing.
        let mut late = Follower::new(store, Logs::Services, Tags::new());
        assert!(texts(&mut late)[0].starts_with("a: line "));
    }

    #[test]
    fn loud_log_does_not_delay_the_others() {
        let store = store();
        for n in 0..500 {
            store
                .append("loud", format!("a line of some length {n}").as_bytes())
                .unwrap();
        }
        store.append("quiet", b"me").unwrap();
        let mut follower = Follower::new(store, Logs::Services, Tags::new());
        let order: Vec<_> = (0..3).map(|_| follower.next().unwrap().log).collect();
        assert_eq!(order, ["loud".into(), "quiet".into(), Arc::from("loud")]);
    }
}
