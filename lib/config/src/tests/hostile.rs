//! Hostile documents: each must end in a clear error. An endless one shows as a test that never ends; benchmarks
//! measure the time.

use corten_yaml::MAX_SIZE;
use proptest::prelude::*;

use super::{EXAMPLES, bare, bomb, fragments, problems, read};
use crate::Document;

/// Small invalid documents.
const WRONG: &[(&str, &str)] = &[
    ("machine: [", "not YAML"),
    ("", "the config is empty"),
    ("# only a comment\n", "the config is empty"),
    ("---\n---\n...\n", "the config is empty"),
    ("a: 1\na: 2\n", "\"a\" is given twice"),
    ("a: &a [*a]\n", "an alias to a node that contains it"),
    ("a: *b\n", "not YAML"),
    ("a: &a {b: 1}\nc: {<<: *a}\n", "merge keys"),
    ("a: !!binary aGk=\n", "YAML tags"),
    ("!evil {a: 1}\n", "YAML tags"),
    ("machine:\n\ttype: worker\n", "not YAML"),
    ("machine:\0 x\n", "not YAML"),
    ("- a\n- b\n", "must be a map of fields"),
    ("hello", "must be a map of fields"),
    ("{a: 1}: 2\n", "a field's name must be text"),
    ("\"a\\e[2Jb\": 1\n", "unknown field: a?[2Jb"),
];

/// Documents that are large, or expand to be large.
fn large() -> Vec<(String, &'static str)> {
    let wide = |n: usize| (0..n).map(|i| format!("k{i}: 1\n")).collect::<String>();
    let long = "x".repeat(MAX_SIZE / 2);
    vec![
        ("[".repeat(100_000), "deep"),
        ("{a: ".repeat(50_000), "deep"),
        ((0..500).map(|i| " ".repeat(i) + "a:\n").collect(), "deep"),
        ("- ".repeat(50_000), "deep"),
        ("? ".repeat(50_000), "deep"),
        (bomb(10, "x, x, x, x"), "more than"),
        (bomb(6, &"y".repeat(100_000)), "take more than"),
        (wide(50_000), "more problems"),
        ("---\na: 1\n".repeat(50_000), "more problems"),
        (format!("a: [{}]", "1,".repeat(300_000)), "more than"),
        (format!("version: {long}\n"), "version must be v1alpha1"),
        (format!("? {long}\n: 1\n"), "unknown field"),
        (format!("kind: {}\n", "k".repeat(1000)), "unknown kind"),
        (" ".repeat(MAX_SIZE + 1), "larger than 8 MiB"),
    ]
}

#[test]
fn hostile_documents_end_in_a_clear_error() {
    let small = WRONG
        .iter()
        .map(|(text, expected)| ((*text).to_owned(), *expected));
    for (text, expected) in small.chain(large()) {
        let name: String = text.chars().take(40).collect();
        let found = problems(&text);
        assert!(
            found.iter().any(|p| p.contains(expected)),
            "{name}: {:?}",
            &found.first()
        );
        assert!(found.len() <= 101, "{name}: {} problems", found.len());
        assert!(found.iter().all(|p| p.len() < 600), "{name}");
    }
    let refusal = Document::parse(b"version: v1alpha1\nmachine: \xff\xfe")
        .unwrap_err()
        .to_string();
    assert_eq!(refusal, "line 2, column 1: not UTF-8 text");
}

#[test]
fn corpus_samples_are_valid_configs() {
    for sample in corten_corpus::samples("config") {
        let document = Document::parse(&sample.bytes);
        assert!(document.is_ok(), "{}: {document:?}", sample.name);
    }
}

proptest! {
    #[test]
    fn hostile_bytes_never_panic(bytes in corten_corpus::hostile("config")) {
        let _ = Document::parse(&bytes);
    }

    #[test]
    fn hostile_yaml_never_panics(text in "[a-z:{}\\[\\]&*!|>'\"#\\-\n ,%@?$]{0,200}") {
        let _ = Document::parse(text.as_bytes());
    }

    #[test]
    fn fragments_of_documents_never_panic(text in fragments()) {
        let _ = read(&text);
    }

    #[test]
    fn a_damaged_config_never_panics(at in 0usize..8000, with in any::<u8>()) {
        let mut bytes = format!("{}---\n{EXAMPLES}", bare("controlplane")).into_bytes();
        let at = at % bytes.len();
        bytes[at] = with;
        if let Ok(document) = Document::read(&bytes, true) {
            let _ = document.redacted();
        }
    }
}
