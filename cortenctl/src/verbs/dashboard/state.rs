//! The dashboard's data about nodes, and the user's selection.

use corten_api::machine as api;
use corten_client::answers::Answers;
use corten_client::connect::Route;

use super::facts::Facts;
use super::sample::Sample;

/// The action of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Key {
    /// Select the previous node.
    Before,
    /// Select the next node.
    Next,
    /// Sort processes by the other column.
    Sort,
    /// Only redraw.
    Redraw,
    /// Quit.
    Quit,
}

/// The sort order of processes, descending.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Order {
    #[default]
    Memory,
    Time,
}

/// The complete state to draw.
#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) nodes: Vec<NodeView>,
    /// Index of the node that is shown in full.
    pub(super) selected: usize,
    pub(super) order: Order,
    pub(super) log: Vec<String>,
    /// Facts of the selected node.
    pub(super) facts: Facts,
}

/// One node. Data it has not sent is `None`.
#[derive(Debug, Default)]
pub(super) struct NodeView {
    pub(super) name: String,
    pub(super) version: Option<String>,
    /// Error of a node that does not answer.
    pub(super) error: Option<String>,
    /// Share of processor time used since the last sample, 0 to 1.
    pub(super) cpu: Option<f64>,
    pub(super) memory: Option<api::MemInfo>,
    pub(super) load: Option<[f64; 3]>,
    pub(super) processes: Vec<api::ProcessInfo>,
    pub(super) links: Vec<Link>,
    /// Counters of the last sample.
    pub(super) times: Option<api::CpuStat>,
    pub(super) counters: Vec<api::NetDev>,
}

/// A link, and the bytes transferred since the last sample.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Link {
    pub(super) name: String,
    pub(super) received: u64,
    pub(super) sent: u64,
    pub(super) errors: u64,
}

impl State {
    pub(super) fn new(routes: &[Route]) -> State {
        let mut nodes = Vec::new();
        for route in routes {
            let asked = route.session.as_ref().map(|session| &session.nodes);
            match asked {
                Ok(asked) if !asked.is_empty() => {
                    nodes.extend(asked.iter().map(|(name, _)| NodeView::new(name)));
                }
                _ => nodes.push(NodeView::new(&route.name)),
            }
        }
        State {
            nodes,
            ..State::default()
        }
    }

    /// Takes new routes. The data stays unless the nodes differ: without `-n` the node is the
    /// endpoint that was reached.
    pub(super) fn follow(&mut self, routes: &[Route]) {
        let new = State::new(routes);
        let names = |state: &State| -> Vec<String> {
            let names = state.nodes.iter().map(|node| node.name.clone());
            names.collect()
        };
        if names(&new) != names(self) {
            *self = State {
                order: self.order,
                ..new
            };
        }
    }

    /// The name of the node that is shown in full.
    pub(super) fn chosen(&self) -> String {
        self.node()
            .map(|node| node.name.clone())
            .unwrap_or_default()
    }

    pub(super) fn node(&self) -> Option<&NodeView> {
        self.nodes.get(self.selected)
    }

    pub(super) fn press(&mut self, key: Key) {
        let count = self.nodes.len().max(1);
        match key {
            Key::Next => self.selected = (self.selected + 1) % count,
            Key::Before => self.selected = (self.selected + count - 1) % count,
            Key::Sort => {
                self.order = match self.order {
                    Order::Memory => Order::Time,
                    Order::Time => Order::Memory,
                }
            }
            Key::Redraw | Key::Quit => return,
        }
        if key != Key::Sort {
            // Log and facts belong to another node.
            self.log.clear();
            self.facts = Facts::default();
        }
        self.sort();
    }

    pub(super) fn take(&mut self, sample: Sample) {
        let failed = sample.versions.failed;
        for node in &mut self.nodes {
            let why = failed.iter().find(|(name, _)| *name == node.name);
            node.error = why.map(|(_, why)| why.clone());
        }
        for (name, answer) in sample.versions.good {
            if let Some(node) = self.find(&name) {
                node.version = answer.version.map(|info| info.tag);
            }
        }
        self.each(sample.stats, |node, answer| node.times(answer));
        self.each(sample.memory, |node, answer| {
            node.memory = answer.and_then(|answer| answer.meminfo);
        });
        self.each(sample.loads, |node, answer| {
            node.load = answer.map(|load| [load.load1, load.load5, load.load15]);
        });
        self.each(sample.processes, |node, answer| {
            node.processes = answer.map(|answer| answer.processes).unwrap_or_default();
        });
        self.each(sample.networks, |node, answer| node.counters(answer));
        // The selection may have changed since the call.
        if sample.chosen == self.chosen() {
            self.log = sample.log;
            self.facts = sample.facts;
        }
        self.sort();
    }

    fn each<M>(&mut self, answers: Answers<M>, mut set: impl FnMut(&mut NodeView, Option<M>)) {
        for (name, answer) in answers.good {
            if let Some(node) = self.find(&name) {
                set(node, Some(answer));
            }
        }
        for (name, _) in answers.failed {
            if let Some(node) = self.find(&name) {
                set(node, None);
            }
        }
    }

    fn find(&mut self, name: &str) -> Option<&mut NodeView> {
        self.nodes.iter_mut().find(|node| node.name == name)
    }

    fn sort(&mut self) {
        for node in &mut self.nodes {
            match self.order {
                Order::Memory => node
                    .processes
                    .sort_by_key(|process| std::cmp::Reverse(process.resident_memory)),
                Order::Time => node
                    .processes
                    .sort_by(|a, b| b.cpu_time.total_cmp(&a.cpu_time)),
            }
        }
    }
}

impl NodeView {
    pub(super) fn new(name: &str) -> NodeView {
        NodeView {
            name: name.to_owned(),
            ..NodeView::default()
        }
    }

    fn times(&mut self, answer: Option<api::SystemStat>) {
        let now = answer.and_then(|answer| answer.cpu_total);
        self.cpu = match (self.times, now) {
            (Some(before), Some(now)) => used(&before, &now),
            _ => None,
        };
        self.times = now;
    }

    fn counters(&mut self, answer: Option<api::NetworkDeviceStats>) {
        let now = answer.map(|answer| answer.devices).unwrap_or_default();
        self.links = now
            .iter()
            .map(|link| {
                let before = self.counters.iter().find(|before| before.name == link.name);
                // A smaller counter belongs to a new link with the same name.
                let passed = |now: u64, before: Option<u64>| {
                    before.map_or(0, |before| now.saturating_sub(before))
                };
                Link {
                    name: link.name.clone(),
                    received: passed(link.rx_bytes, before.map(|before| before.rx_bytes)),
                    sent: passed(link.tx_bytes, before.map(|before| before.tx_bytes)),
                    errors: link.rx_errors.saturating_add(link.tx_errors),
                }
            })
            .collect();
        self.counters = now;
    }
}

/// The share of time between two samples in which processors were busy. `None` when no time has
/// passed, or the counters are inconsistent.
fn used(before: &api::CpuStat, now: &api::CpuStat) -> Option<f64> {
    let idle = |times: &api::CpuStat| times.idle + times.iowait;
    let all = |times: &api::CpuStat| {
        idle(times)
            + times.user
            + times.nice
            + times.system
            + times.irq
            + times.soft_irq
            + times.steal
    };
    let passed = all(now) - all(before);
    let part = 1.0 - (idle(now) - idle(before)) / passed;
    (passed > 0.0 && part.is_finite()).then(|| part.clamp(0.0, 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(user: f64, idle: f64) -> api::CpuStat {
        api::CpuStat {
            user,
            idle,
            ..Default::default()
        }
    }

    fn good<M>(node: &str, message: M) -> Answers<M> {
        Answers {
            good: vec![(node.to_owned(), message)],
            failed: Vec::new(),
        }
    }

    fn state() -> State {
        State {
            nodes: vec![NodeView::new("a"), NodeView::new("b")],
            ..State::default()
        }
    }

    #[test]
    fn cpu_usage_is_that_of_the_time_between_two_samples() {
        assert_eq!(used(&times(10.0, 90.0), &times(60.0, 140.0)), Some(0.5));
        assert_eq!(used(&times(10.0, 90.0), &times(10.0, 90.0)), None);
        assert_eq!(used(&times(0.0, 0.0), &times(f64::NAN, 1.0)), None);
        assert_eq!(used(&times(9.0, 9.0), &times(1.0, 1.0)), None);
        assert_eq!(used(&times(0.0, 9.0), &times(100.0, 0.0)), Some(1.0));
    }

    #[test]
    fn byte_rates_are_counted_between_two_samples() {
        let look = |rx_bytes| {
            let link = api::NetDev {
                name: "eth0".into(),
                rx_bytes,
                ..Default::default()
            };
            Some(api::NetworkDeviceStats {
                devices: vec![link],
                ..Default::default()
            })
        };
        let mut node = NodeView::new("a");
        for (counter, passed) in [(1000, 0), (5000, 4000), (10, 0)] {
            node.counters(look(counter));
            assert_eq!(node.links[0].received, passed);
        }
        node.counters(None);
        assert!(node.links.is_empty());
    }

    #[test]
    fn log_is_shown_for_its_own_node_only() {
        let mut state = state();
        let of = |chosen: &str| Sample {
            chosen: chosen.to_owned(),
            log: vec![format!("a line of {chosen}")],
            ..Sample::default()
        };
        state.take(of("a"));
        assert_eq!(state.log, ["a line of a"]);
        state.press(Key::Next);
        state.take(of("a"));
        assert!(state.log.is_empty(), "{:?}", state.log);
        state.take(of("b"));
        assert_eq!(state.log, ["a line of b"]);
    }

    #[test]
    fn selection_survives_the_same_endpoints_and_resets_for_others() {
        let route = |name: &str| Route {
            name: name.to_owned(),
            session: Err("lost".to_owned()),
        };
        let mut state = State::new(&[route("a"), route("b")]);
        state.press(Key::Next);
        state.follow(&[route("a"), route("b")]);
        assert_eq!(state.chosen(), "b");
        state.follow(&[route("c")]);
        assert_eq!(state.chosen(), "c");
    }

    #[test]
    fn keys_select_nodes_and_failures_stay_per_node() {
        let mut state = state();
        state.press(Key::Before);
        assert_eq!(state.chosen(), "b");
        state.press(Key::Next);
        assert_eq!(state.chosen(), "a");
        let process = |pid, resident_memory, cpu_time| api::ProcessInfo {
            pid,
            resident_memory,
            cpu_time,
            ..Default::default()
        };
        let processes = api::Process {
            metadata: None,
            processes: vec![process(1, 10, 5.0), process(2, 20, 1.0)],
        };
        let versions = Answers {
            good: vec![("a".to_owned(), api::Version::default())],
            failed: vec![("b".to_owned(), "no route".to_owned())],
        };
        state.take(Sample {
            versions,
            processes: good("a", processes),
            ..Sample::default()
        });
        assert_eq!(state.nodes[0].processes[0].pid, 2);
        assert_eq!(state.nodes[0].error, None);
        assert_eq!(state.nodes[1].error.as_deref(), Some("no route"));
        state.press(Key::Sort);
        assert_eq!(state.nodes[0].processes[0].pid, 1);
        // An unknown node changes nothing.
        state.take(Sample {
            memory: good("stranger", api::Memory::default()),
            ..Sample::default()
        });
        assert_eq!(state.nodes.len(), 2);
    }
}
