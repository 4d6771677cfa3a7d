//! The commands that the documentation shows are commands of this client.

use std::path::{Path, PathBuf};

use clap::error::ErrorKind;

use super::{command, read};

const PROGRAM: &str = "cortenctl";

/// The pages: the repository's own and those of `docs`.
fn pages() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut found = Vec::new();
    for name in ["README.md", "CONTRIBUTING.md", "SECURITY.md"] {
        found.push(root.join(name));
    }
    let mut folders = vec![root.join("docs")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|it| it == "md") {
                found.push(path);
            }
        }
    }
    found
}

/// A command line as a shell splits it: quotes group words, a comment, pipe or redirection ends it.
fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word = String::new();
    let mut quote = None;
    for c in line.chars().chain([' ']) {
        match (quote, c) {
            (None, '"' | '\'') => quote = Some(c),
            (Some(open), _) if open == c => quote = None,
            (None, '|' | ';' | '&' | '>' | '<' | '#') => break,
            (None, ' ' | '\t') if word.is_empty() => {}
            (None, ' ' | '\t') => words.push(std::mem::take(&mut word)),
            _ => word.push(c),
        }
    }
    words
}

/// Lines of code blocks, with their continuations, and spans of code in the text.
fn code(page: &str) -> (Vec<String>, Vec<String>) {
    let (mut lines, mut spans) = (Vec::new(), Vec::new());
    for (number, part) in page.split("```").enumerate() {
        if number % 2 == 1 {
            // A picture is no command.
            if part.starts_with("text\n") {
                continue;
            }
            let whole = part.replace("\\\n", " ");
            lines.extend(whole.lines().map(|line| line.trim().to_owned()));
            continue;
        }
        for paragraph in part.split("\n\n") {
            let flat = paragraph.replace('\n', " ");
            spans.extend(flat.split('`').skip(1).step_by(2).map(str::to_owned));
        }
    }
    (lines, spans)
}

/// The client's verdict on a command line of the documentation; in a sentence it may leave arguments out.
fn check(line: &str, is_whole: bool) -> Result<(), String> {
    let mut words = words(line.trim_start_matches("$ "));
    let is_ours = |word: &String| word.rsplit('/').next() == Some(PROGRAM);
    if !words.first().is_some_and(is_ours) {
        return Ok(());
    }
    if words.len() == 1 && !is_whole {
        return Ok(());
    }
    words[0] = PROGRAM.to_owned();
    match command().try_get_matches_from(words) {
        Ok(matches) => read(&matches)
            .map(|_| ())
            .map_err(|failure| format!("{line}: {failure:?}")),
        Err(error) => match error.kind() {
            ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => Ok(()),
            ErrorKind::MissingRequiredArgument
            | ErrorKind::MissingSubcommand
            | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
                if !is_whole =>
            {
                Ok(())
            }
            _ => Err(format!("{line}: {error}")),
        },
    }
}

#[test]
fn every_documented_command_line_parses() {
    let mut wrong = Vec::new();
    let mut seen = 0;
    for path in pages() {
        let page = std::fs::read_to_string(&path).unwrap();
        let (lines, spans) = code(&page);
        let all = lines.iter().map(|line| (line, true));
        for (line, is_whole) in all.chain(spans.iter().map(|span| (span, false))) {
            seen += usize::from(line.contains(PROGRAM));
            if let Err(error) = check(line, is_whole) {
                wrong.push(format!("{}: {error}", path.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(seen >= 100, "only {seen} command lines found");
}

#[test]
fn invalid_command_line_is_found() {
    for good in [
        "$ cortenctl -n 10.0.0.1 get members  # a comment",
        "target/debug/cortenctl gen config a https://b:6443 --config-patch 'a: {b: c}' | cat",
        "make run",
    ] {
        assert_eq!(check(good, true), Ok(()));
    }
    assert_eq!(check("cortenctl wipe disk", false), Ok(()));
    for wrong in [
        "cortenctl wipe disk",
        "cortenctl nothing",
        "cortenctl version --nothing",
        "cortenctl image talos-bundle",
    ] {
        check(wrong, true).unwrap_err();
    }
    let (lines, spans) = code("a `b\nc`\n\n```sh\nd \\\n  e\n```\n`f`\n");
    assert!(lines.contains(&"d    e".to_owned()), "{lines:?}");
    assert_eq!(spans, ["b c", "f"]);
}
