//! `processes`: the running processes.

use std::io::{IsTerminal as _, stdout};
use std::time::Duration;

use anyhow::Context as _;
use corten_api::machine::{Process, ProcessInfo};
use corten_client::answers::{Answers, ask};
use corten_client::clients::Machine;
use corten_client::connect::{Route, reopened, routes};
use corten_client::failure::Failure;
use corten_client::flags::Global;
use corten_client::output::show;
use corten_client::table::Table;
use corten_client::units;
use crossterm::cursor::MoveTo;
use crossterm::execute;
use crossterm::terminal::{Clear, ClearType};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::cli::{Processes, Sort};

const HEADER: &[&str] = &[
    "NODE", "PID", "STATE", "THREADS", "CPU-TIME", "VIRTMEM", "RESMEM", "LABEL", "COMMAND",
];

/// Interval of --watch.
const PAUSE: Duration = Duration::from_secs(1);

pub(crate) async fn run(global: &Global, args: &Processes) -> Result<(), Failure> {
    let mut opened = routes(global).await?;
    if !args.watch {
        return tell(look(opened, args).await?, args);
    }
    loop {
        let answers = look(opened.clone(), args).await?;
        let nobody = answers.good.is_empty();
        // The previous output stays on the screen during the calls.
        if stdout().is_terminal() {
            let begun = execute!(stdout(), Clear(ClearType::All), MoveTo(0, 0));
            begun.context("the terminal")?;
        }
        match tell(answers, args) {
            // A failed node may answer the next time.
            Ok(()) | Err(Failure::Told) => {}
            ended => return ended,
        }
        sleep(PAUSE).await;
        if nobody {
            opened = reopened(opened, async || routes(global).await).await?;
        }
    }
}

/// Calls the nodes once, and sorts.
async fn look(routes: Vec<Route>, args: &Processes) -> Result<Answers<Process>, Failure> {
    let mut answers = ask(routes, (), |mut client: Machine, request| async move {
        client.processes(request).await
    })
    .await?;
    for (_, message) in &mut answers.good {
        sort(&mut message.processes, args.sort);
    }
    Ok(answers)
}

fn tell(answers: Answers<Process>, args: &Processes) -> Result<(), Failure> {
    show(
        answers,
        &args.output.output,
        |all| table(all).render(),
        fields,
    )
}

/// Sorts in descending order.
fn sort(processes: &mut [ProcessInfo], by: Sort) {
    match by {
        Sort::Rss => processes.sort_by_key(|p| std::cmp::Reverse(p.resident_memory)),
        Sort::Cpu => processes.sort_by(|a, b| b.cpu_time.total_cmp(&a.cpu_time)),
    }
}

pub(super) fn table(messages: &[(String, Process)]) -> Table {
    let mut table = Table::new(HEADER);
    for (node, message) in messages {
        for process in &message.processes {
            table.row([
                node.clone(),
                process.pid.to_string(),
                process.state.clone(),
                process.threads.to_string(),
                format!("{:.2}", process.cpu_time),
                units::size(process.virtual_memory),
                units::size(process.resident_memory),
                process.label.clone(),
                command(process),
            ]);
        }
    }
    table
}

/// The arguments, with the first one replaced by the executable's full path if it is only the name.
/// A kernel thread has only a name.
fn command(process: &ProcessInfo) -> String {
    if process.executable.is_empty() {
        return process.command.clone();
    }
    let name = process.executable.rsplit('/').next().unwrap_or_default();
    match process.args.strip_prefix(name) {
        _ if process.args.is_empty() => process.executable.clone(),
        Some(rest) if rest.is_empty() || rest.starts_with(' ') => {
            format!("{}{rest}", process.executable)
        }
        _ => process.args.clone(),
    }
}

fn fields(message: &Process) -> Value {
    let processes = message.processes.iter().map(|process| {
        json!({
            "pid": process.pid,
            "ppid": process.ppid,
            "state": process.state,
            "threads": process.threads,
            "cpuTime": process.cpu_time,
            "virtualMemory": process.virtual_memory,
            "residentMemory": process.resident_memory,
            "label": process.label,
            "command": process.command,
            "executable": process.executable,
            "args": process.args,
        })
    });
    json!({ "processes": processes.collect::<Vec<_>>() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(pid: i32, cpu_time: f64, resident_memory: u64, what: [&str; 3]) -> ProcessInfo {
        let [command, executable, args] = what.map(str::to_owned);
        ProcessInfo {
            pid,
            state: "S".into(),
            threads: 3,
            cpu_time,
            virtual_memory: 1_900_000_000,
            resident_memory,
            command,
            executable,
            args,
            ..Default::default()
        }
    }

    fn processes() -> Vec<ProcessInfo> {
        vec![
            process(2, 7.5, 0, ["kthreadd", "", ""]),
            process(1, 2.571, 140_000_000, ["init", "/usr/bin/init", "init"]),
            process(
                9,
                0.1,
                9_400_000,
                ["x", "/usr/bin/containerd", "containerd --root /var"],
            ),
        ]
    }

    #[test]
    fn processes_are_sorted_by_memory_or_time_largest_first() {
        let mut list = processes();
        sort(&mut list, Sort::Cpu);
        assert_eq!(list.iter().map(|p| p.pid).collect::<Vec<_>>(), [2, 1, 9]);
        sort(&mut list, Sort::Rss);
        let messages = [(
            "n".to_owned(),
            Process {
                metadata: None,
                processes: list,
            },
        )];
        let expected = "\
NODE   PID   STATE   THREADS   CPU-TIME   VIRTMEM   RESMEM   LABEL   COMMAND
n      1     S       3         2.57       1.9 GB    140 MB           /usr/bin/init
n      9     S       3         0.10       1.9 GB    9.4 MB           /usr/bin/containerd --root /var
n      2     S       3         7.50       1.9 GB    0 B              kthreadd
";
        assert_eq!(table(&messages).render(), expected);
    }

    #[test]
    fn process_title_set_by_the_process_is_shown() {
        assert_eq!(
            command(&process(1, 0.0, 0, ["a", "/b/nginx", "nginx: worker"])),
            "nginx: worker"
        );
        assert_eq!(
            command(&process(1, 0.0, 0, ["a", "/b/x", "/b/x -v"])),
            "/b/x -v"
        );
        assert_eq!(command(&process(1, 0.0, 0, ["a", "/b/x", ""])), "/b/x");
    }
}
