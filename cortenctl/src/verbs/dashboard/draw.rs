//! Draws the dashboard: a pure function of its state.

use corten_client::table::printable;
use corten_client::units::size;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Gauge, Paragraph, Row, Table};

use super::state::{NodeView, Order, State};

/// The help line at the bottom.
const KEYS: &str = "left/right: node   s: sort processes   q: quit";

pub(super) fn draw(frame: &mut Frame<'_>, state: &State) {
    let facts = facts(state);
    let rows = u16::try_from(facts.len()).unwrap_or_default();
    let [nodes, about, gauges, middle, log, keys] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(rows),
        Constraint::Length(3),
        Constraint::Fill(3),
        Constraint::Fill(2),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    frame.render_widget(Paragraph::new(names(state)), nodes);
    frame.render_widget(Paragraph::new(facts), about);
    frame.render_widget(Paragraph::new(KEYS), keys);
    lines(frame, log, &state.log);
    let Some(node) = state.node() else {
        return;
    };
    let [cpu, memory, load] = Layout::horizontal([
        Constraint::Fill(1),
        Constraint::Fill(1),
        Constraint::Length(24),
    ])
    .areas(gauges);
    frame.render_widget(processors(node), cpu);
    frame.render_widget(memory_gauge(node), memory);
    frame.render_widget(Paragraph::new(loads(node)).block(titled("LOAD")), load);
    if let Some(why) = &node.error {
        let text = Paragraph::new(printable(why)).block(titled("ERROR"));
        frame.render_widget(text, middle);
        return;
    }
    let [left, right] =
        Layout::horizontal([Constraint::Fill(1), Constraint::Length(36)]).areas(middle);
    processes(frame, left, node, state.order);
    links(frame, right, node);
}

fn titled(title: &str) -> Block<'_> {
    Block::bordered().title(title)
}

/// The names of all nodes, the selected one marked.
fn names(state: &State) -> Line<'static> {
    let mut spans = Vec::new();
    for (index, node) in state.nodes.iter().enumerate() {
        let sign = if node.error.is_some() { "!" } else { "" };
        let style = if index == state.selected {
            Style::new().add_modifier(Modifier::REVERSED)
        } else {
            Style::new()
        };
        spans.push(Span::styled(
            format!(" {sign}{} ", printable(&node.name)),
            style,
        ));
    }
    let version = state.node().and_then(|node| node.version.as_deref());
    spans.push(Span::raw(format!("  {}", printable(version.unwrap_or("")))));
    Line::from(spans)
}

/// A line about the node, and one about Kubernetes, as far as they are known, and one of each diagnostic.
fn facts(state: &State) -> Vec<Line<'static>> {
    let groups = [&state.facts.node, &state.facts.kubernetes];
    let line = |group: &Vec<(&'static str, String)>| {
        let title = Style::new().add_modifier(Modifier::BOLD);
        let spans = group.iter().flat_map(|(name, value)| {
            let value = format!(" {}  ", printable(value));
            [Span::raw(" "), Span::styled(*name, title), Span::raw(value)]
        });
        Line::from(spans.collect::<Vec<_>>())
    };
    let known = groups.into_iter().filter(|group| !group.is_empty());
    let diagnostic = |text: &String| {
        let text = format!(" DIAGNOSTIC {}", printable(text));
        Line::styled(text, Style::new().fg(Color::Red))
    };
    let diagnostics = state.facts.diagnostics.iter().map(diagnostic);
    known.map(line).chain(diagnostics).collect()
}

/// A gauge of a share from 0 to 1; empty if the share is unknown.
fn gauge(title: &'static str, part: Option<f64>, label: String) -> Gauge<'static> {
    let part = part.filter(|part| part.is_finite());
    Gauge::default()
        .block(titled(title))
        .ratio(part.unwrap_or(0.0).clamp(0.0, 1.0))
        .label(label)
}

fn processors(node: &NodeView) -> Gauge<'static> {
    let label = node.cpu.map(|part| format!("{:.0}%", part * 100.0));
    gauge("CPU", node.cpu, label.unwrap_or_else(|| "n/a".to_owned()))
}

fn memory_gauge(node: &NodeView) -> Gauge<'static> {
    let known = node.memory.filter(|memory| memory.memtotal > 0);
    let Some(memory) = known else {
        return gauge("MEMORY", None, "n/a".to_owned());
    };
    let bytes = |kilobytes: u64| size(kilobytes.saturating_mul(1024));
    let used = memory.memtotal.saturating_sub(memory.memavailable);
    let part = used as f64 / memory.memtotal as f64;
    gauge(
        "MEMORY",
        Some(part),
        format!("{} of {}", bytes(used), bytes(memory.memtotal)),
    )
}

fn loads(node: &NodeView) -> String {
    match node.load {
        Some(loads) => loads.map(|load| format!("{load:.2}")).join("  "),
        None => "n/a".to_owned(),
    }
}

fn processes(frame: &mut Frame<'_>, area: Rect, node: &NodeView, order: Order) {
    let title = match order {
        Order::Memory => "PROCESSES by memory",
        Order::Time => "PROCESSES by time",
    };
    let shown = usize::from(area.height);
    let rows = node.processes.iter().take(shown).map(|process| {
        Row::new([
            process.pid.to_string(),
            format!("{:.2}", process.cpu_time),
            size(process.resident_memory),
            printable(&process.command),
        ])
    });
    let widths = [
        Constraint::Length(7),
        Constraint::Length(9),
        Constraint::Length(7),
        Constraint::Fill(1),
    ];
    let header = Row::new(["PID", "CPU-TIME", "RESMEM", "COMMAND"]);
    let table = Table::new(rows, widths)
        .header(header.style(Style::new().add_modifier(Modifier::BOLD)))
        .block(titled(title));
    frame.render_widget(table, area);
}

fn links(frame: &mut Frame<'_>, area: Rect, node: &NodeView) {
    let shown = usize::from(area.height);
    let rows = node.links.iter().take(shown).map(|link| {
        Row::new([
            printable(&link.name),
            size(link.received),
            size(link.sent),
            link.errors.to_string(),
        ])
    });
    let widths = [
        Constraint::Fill(1),
        Constraint::Length(7),
        Constraint::Length(7),
        Constraint::Length(6),
    ];
    let header = Row::new(["LINK", "IN", "OUT", "ERRORS"]);
    let table = Table::new(rows, widths)
        .header(header.style(Style::new().add_modifier(Modifier::BOLD)))
        .block(titled("NETWORK since the last poll"));
    frame.render_widget(table, area);
}

/// The end of the log.
fn lines(frame: &mut Frame<'_>, area: Rect, log: &[String]) {
    let shown = usize::from(area.height.saturating_sub(2));
    let first = log.len().saturating_sub(shown);
    let text: Vec<Line<'_>> = log
        .iter()
        .skip(first)
        .map(|line| Line::from(printable(line)))
        .collect();
    frame.render_widget(Paragraph::new(text).block(titled("LOG of machined")), area);
}

#[cfg(test)]
mod tests {
    use corten_api::machine as api;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::super::state::Link;
    use super::*;

    fn drawn(state: &State, width: u16, height: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(frame, state)).unwrap();
        let cells = terminal.backend().buffer().content();
        let rows = cells.chunks(usize::from(width));
        let line = |row: &[ratatui::buffer::Cell]| {
            let text: String = row.iter().map(ratatui::buffer::Cell::symbol).collect();
            text.trim_end().to_owned()
        };
        rows.map(line).collect::<Vec<_>>().join("\n")
    }

    fn node() -> NodeView {
        let process = |pid, command: &str| api::ProcessInfo {
            pid,
            cpu_time: 1.5,
            resident_memory: 12_000_000,
            command: command.to_owned(),
            ..Default::default()
        };
        NodeView {
            version: Some("v1.14.0".to_owned()),
            cpu: Some(0.5),
            memory: Some(api::MemInfo {
                memtotal: 1_000_000,
                memavailable: 750_000,
                ..Default::default()
            }),
            load: Some([0.5, 1.0, 1.25]),
            processes: vec![process(1, "machined"), process(77, "ap\u{1b}[2Jid")],
            links: vec![Link {
                name: "eth0".to_owned(),
                received: 4000,
                sent: 123,
                errors: 0,
            }],
            ..NodeView::new("node1")
        }
    }

    #[test]
    fn dashboard_draws_a_node_in_full() {
        let lost = NodeView {
            error: Some("no route".to_owned()),
            ..NodeView::new("node2")
        };
        let state = State {
            nodes: vec![node(), lost],
            log: (0..50).map(|n| format!("line {n}")).collect(),
            ..State::default()
        };
        let expected = "\
 node1  !node2   v1.14.0
┌CPU────────────────────────┐┌MEMORY─────────────────────┐┌LOAD──────────────────┐
│████████████50%            ││█████256 MB of 1.0 GB      ││0.50  1.00  1.25      │
└───────────────────────────┘└───────────────────────────┘└──────────────────────┘
┌PROCESSES by memory─────────────────────────┐┌NETWORK since the last poll───────┐
│PID     CPU-TIME  RESMEM  COMMAND           ││LINK        IN      OUT     ERRORS│
│1       1.50      12 MB   machined          ││eth0        4.0 kB  123 B   0     │
│77      1.50      12 MB   ap?[2Jid          ││                                  │
└────────────────────────────────────────────┘└──────────────────────────────────┘
┌LOG of machined─────────────────────────────────────────────────────────────────┐
│line 48                                                                         │
│line 49                                                                         │
└────────────────────────────────────────────────────────────────────────────────┘
left/right: node   s: sort processes   q: quit";
        let found = drawn(&state, 82, 14);
        assert_eq!(found.trim_start(), expected, "{found}");
    }

    #[test]
    fn cluster_and_kubernetes_are_drawn_when_they_are_known() {
        let mut state = State {
            nodes: vec![node()],
            ..State::default()
        };
        state.facts.node = vec![
            ("CLUSTER", "demo (3 machines)".to_owned()),
            ("STAGE", "run\u{1b}ning".to_owned()),
        ];
        state.facts.kubernetes = vec![("KUBELET", "healthy".to_owned())];
        let text = drawn(&state, 82, 16);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[1], " CLUSTER demo (3 machines)   STAGE run?ning");
        assert_eq!(lines[2], " KUBELET healthy");
    }

    #[test]
    fn each_diagnostic_of_the_node_is_drawn_in_a_line_until_it_is_gone() {
        let mut state = State {
            nodes: vec![node()],
            ..State::default()
        };
        let without = drawn(&state, 82, 16);
        state.facts.diagnostics = vec![
            "address-overlap: no addr\u{1b}ess".to_owned(),
            "kubelet-csr: no certificate".to_owned(),
        ];
        let text = drawn(&state, 82, 16);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[1], " DIAGNOSTIC address-overlap: no addr?ess");
        assert_eq!(lines[2], " DIAGNOSTIC kubelet-csr: no certificate");
        assert!(lines[3].starts_with("┌CPU"), "{text}");
        state.facts.diagnostics.clear();
        assert_eq!(drawn(&state, 82, 16), without);
    }

    #[test]
    fn silent_or_nonsensical_node_is_drawn_in_any_size() {
        let mut wild = node();
        wild.cpu = Some(f64::NAN);
        wild.load = Some([f64::INFINITY, -1.0, f64::NAN]);
        wild.memory = Some(api::MemInfo {
            memtotal: 1,
            memavailable: u64::MAX,
            ..Default::default()
        });
        wild.name = "x".repeat(10_000);
        let lost = NodeView {
            error: Some("gone\u{7}".to_owned()),
            ..NodeView::new("b")
        };
        let mut state = State {
            nodes: vec![NodeView::new("a"), wild, lost],
            log: vec!["\u{1b}]0;x".to_owned(), "y".repeat(10_000)],
            ..State::default()
        };
        for selected in 0..4 {
            state.selected = selected;
            for (width, height) in [(1, 1), (10, 3), (80, 24), (300, 100)] {
                let text = drawn(&state, width, height);
                assert!(!text.contains(['\u{1b}', '\u{7}']));
            }
        }
        state.selected = 0;
        assert!(drawn(&state, 80, 24).contains("n/a"));
        state.selected = 2;
        assert!(drawn(&state, 80, 24).contains("gone?"));
    }
}
