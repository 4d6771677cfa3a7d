//! Promise: the documentation has no broken link, its commands and files exist, and its index lists
//! every page.
#![expect(clippy::unwrap_used, reason = "a failing step is a failing test")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use tests::{docs, workspace};

fn all(wrong: &[String]) {
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_link_leads_to_a_file_and_a_heading() {
    all(&docs::broken(&docs::pages()));
}

#[test]
fn every_page_is_in_the_index() {
    let pages = docs::pages();
    let sections = docs::sections(&pages);
    let listed: BTreeSet<PathBuf> = sections.into_iter().flat_map(|part| part.pages).collect();
    let missing: Vec<String> = pages
        .iter()
        .filter(|page| page.path != Path::new(docs::INDEX) && !listed.contains(&page.path))
        .map(|page| format!("{}: list it in {}", page.path.display(), docs::INDEX))
        .collect();
    all(&missing);
}

/// The verbs of the Makefile.
fn verbs() -> BTreeSet<String> {
    let makefile = fs::read_to_string(workspace::root().join("Makefile")).unwrap();
    makefile
        .lines()
        .filter(|line| line.contains("## "))
        .filter_map(|line| line.split_once(':'))
        .map(|(verb, _)| verb.to_owned())
        .collect()
}

/// The targets that a command line passes to `make`.
fn made(line: &str) -> Vec<&str> {
    // Variables may precede the program.
    let mut words = line
        .split_whitespace()
        .skip_while(|word| word.contains('='));
    if words.next() != Some("make") {
        return Vec::new();
    }
    words
        .take_while(|word| !word.starts_with(['#', '|', ';', '&']))
        .filter(|word| !word.contains('=') && !word.starts_with('-'))
        .collect()
}

#[test]
fn every_make_command_of_the_documentation_exists() {
    let verbs = verbs();
    let mut wrong = Vec::new();
    let mut seen = 0;
    for page in docs::pages() {
        for line in page.code() {
            for verb in made(&line) {
                seen += 1;
                if !verbs.contains(verb) {
                    wrong.push(format!("{}: {line}: no such verb", page.path.display()));
                }
            }
        }
    }
    all(&wrong);
    assert!(seen >= 30, "only {seen} found");
    assert_eq!(made("A=1 make image OUTPUTS=raw # x"), ["image"]);
    assert!(made("cargo make run").is_empty());
}

/// The file of the repository that a code span names, if any: a path from the root, optionally with
/// the name of a test.
fn file(span: &str, tops: &BTreeSet<String>) -> Option<PathBuf> {
    let path = span.split("::").next()?.trim_end_matches('/');
    let is_path = |c: char| c.is_ascii_alphanumeric() || "/._-".contains(c);
    let top = path.split_once('/')?.0;
    (tops.contains(top) && path.chars().all(is_path)).then(|| PathBuf::from(path))
}

#[test]
fn every_file_that_the_documentation_names_exists() {
    let tracked = workspace::tracked();
    let tops: BTreeSet<String> = tracked
        .iter()
        .filter(|path| path.components().count() > 1)
        .filter_map(|path| Some(path.iter().next()?.to_str()?.to_owned()))
        .collect();
    let mut wrong = Vec::new();
    let mut seen = 0;
    for page in docs::pages() {
        for span in page.code() {
            let Some(file) = file(&span, &tops) else {
                continue;
            };
            seen += 1;
            if !tracked.iter().any(|path| path.starts_with(&file)) {
                wrong.push(format!("{}: {span}: no such file", page.path.display()));
            }
        }
    }
    all(&wrong);
    assert!(seen >= 100, "only {seen} found");
    let tops = BTreeSet::from(["tests".to_owned()]);
    assert_eq!(file("tests/a.rs::b", &tops), Some("tests/a.rs".into()));
    assert_eq!(file("tests/*.rs", &tops), None);
    assert_eq!(file("other/a.rs", &tops), None);
}
