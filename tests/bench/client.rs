//! The time from the start of cortenctl to the first byte of its help, and of the help of every verb.

use std::fmt::Write as _;
use std::io::Read as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use ::tests::workspace;
use anyhow::{Context as _, ensure};

use crate::document::Section;
use crate::report::{median, verdict};

/// Limit of the first byte in milliseconds: an operator notices no delay.
const LIMIT_MS: f64 = 20.0;
/// Calls of each verb. The slowest of a hundred medians would show the load of the host if there were few.
const CALLS: usize = 21;

/// A verb, as the words of its command line, and its median in milliseconds.
struct Verb {
    words: Vec<String>,
    milliseconds: f64,
}

/// Measures the client that `make host-tools` builds.
pub fn measure() -> anyhow::Result<Section> {
    let program = workspace::cortenctl();
    let mut verbs = vec![Vec::new()];
    // Each verb appends the verbs below it.
    let mut measured = Vec::new();
    while let Some(words) = verbs.pop() {
        let mut times = Vec::new();
        let mut help = String::new();
        for _call in 0..CALLS {
            let (milliseconds, text) = first_byte(program, &words)?;
            times.push(milliseconds);
            help = text;
        }
        for verb in below(&help) {
            verbs.push([words.as_slice(), &[verb.to_owned()]].concat());
        }
        let milliseconds = median(&times).context("no call was measured")?;
        measured.push(Verb {
            words,
            milliseconds,
        });
    }
    Ok(Section {
        title: "The help of the client".to_owned(),
        text: table(&measured)?,
    })
}

/// Prints the help of a verb; returns the milliseconds until its first byte, and the help.
fn first_byte(program: &Path, words: &[String]) -> anyhow::Result<(f64, String)> {
    let begin = Instant::now();
    let mut child = Command::new(program)
        .args(words)
        .arg("--help")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("run {}", program.display()))?;
    let mut output = child.stdout.take().context("no pipe to the client")?;
    let mut help = vec![0];
    let read = output.read_exact(&mut help);
    let milliseconds = begin.elapsed().as_secs_f64() * 1000.0;
    output.read_to_end(&mut help)?;
    let status = child.wait()?;
    ensure!(
        read.is_ok() && status.success(),
        "cortenctl {} --help printed nothing, or failed ({status})",
        words.join(" ")
    );
    Ok((milliseconds, String::from_utf8(help)?))
}

/// The verbs that a help lists, except `help` itself.
fn below(help: &str) -> Vec<&str> {
    help.lines()
        .skip_while(|line| *line != "Commands:")
        .skip(1)
        .take_while(|line| !line.is_empty())
        // A continued description is indented further.
        .filter_map(|line| {
            line.strip_prefix("  ")
                .filter(|line| !line.starts_with(' '))
        })
        .filter_map(|line| line.split(' ').next())
        .filter(|verb| *verb != "help")
        .collect()
}

fn table(measured: &[Verb]) -> anyhow::Result<String> {
    let (program, verbs): (Vec<&Verb>, Vec<&Verb>) =
        measured.iter().partition(|verb| verb.words.is_empty());
    let program = program.first().context("the program was not measured")?;
    let slowest = verbs
        .iter()
        .max_by(|one, other| one.milliseconds.total_cmp(&other.milliseconds))
        .context("the help lists no verb")?;
    let times: Vec<f64> = verbs.iter().map(|verb| verb.milliseconds).collect();
    let mut text = format!(
        "The time from the start of the program to the first byte of its help. It is the program of \
         `make host-tools`, which\nis not optimised. Medians of {CALLS} calls.\n\n\
         | help | first byte | limit | |\n|---|---|---|---|\n",
    );
    let mut row = |name: &str, milliseconds: f64, is_limited: bool| {
        let (limit, kept) = match is_limited {
            true => (
                format!("{LIMIT_MS} ms"),
                verdict(milliseconds, LIMIT_MS).to_owned(),
            ),
            false => Default::default(),
        };
        let _infallible = writeln!(text, "| {name} | {milliseconds:.1} ms | {limit} | {kept} |");
    };
    row("`cortenctl --help`", program.milliseconds, true);
    let middle = median(&times).unwrap_or_default();
    row(&format!("a verb, median of {}", times.len()), middle, false);
    let name = format!("the slowest verb, `{}`", slowest.words.join(" "));
    row(&name, slowest.milliseconds, true);
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verbs_are_read_from_the_help() {
        let help = "The client\n\nCommands:\n  get    Resources\n         of a node\n  etcd   Members\n  \
                    help   Print this\n\nOptions:\n  -h, --help\n";
        assert_eq!(below(help), ["get", "etcd"]);
        assert!(below("Resources\n\nUsage: cortenctl get\n").is_empty());
    }

    #[test]
    fn help_without_output_is_an_error() {
        let words = |all: &[&str]| {
            all.iter()
                .map(|word| (*word).to_owned())
                .collect::<Vec<_>>()
        };
        let (milliseconds, help) = first_byte(Path::new("/bin/echo"), &words(&["get"])).unwrap();
        assert_eq!(help, "get --help\n");
        assert!(milliseconds > 0.0);
        let error = first_byte(Path::new("/bin/sh"), &words(&["-c", "exit 0"])).unwrap_err();
        assert!(
            error
                .to_string()
                .contains("-c exit 0 --help printed nothing"),
            "{error}"
        );
    }

    #[test]
    fn slow_verb_is_reported_by_name() {
        let verb = |words: &[&str], milliseconds| Verb {
            words: words.iter().map(|word| (*word).to_owned()).collect(),
            milliseconds,
        };
        let all = [
            verb(&[], 11.0),
            verb(&["get"], 12.0),
            verb(&["etcd", "status"], 20.5),
        ];
        let text = table(&all).unwrap();
        assert!(
            text.contains("| `cortenctl --help` | 11.0 ms | 20 ms | kept |"),
            "{text}"
        );
        assert!(
            text.contains("| the slowest verb, `etcd status` | 20.5 ms | 20 ms | NOT KEPT |"),
            "{text}"
        );
    }
}
