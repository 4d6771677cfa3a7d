//! Hostile documents: each must end in a clear error. An endless one shows as a test that never ends; benchmarks
//! measure the time.

use corten_yaml::MAX_SIZE;
use proptest::prelude::*;

use super::{EXAMPLES, bare, good, problems};
use crate::{Document, Patch, patch};

fn bomb(levels: usize, item: &str) -> String {
    let mut text = format!("a0: &a0 [{item}]\n");
    for level in 1..levels {
        let previous = vec![format!("*a{}", level - 1); 10].join(", ");
        text.push_str(&format!("a{level}: &a{level} [{previous}]\n"));
    }
    text
}

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
fn patch_is_bounded_like_a_config() {
    for text in [
        bomb(10, "x, x, x, x"),
        "[".repeat(100_000),
        "- {op: add}\n".repeat(10_000),
    ] {
        Patch::parse(text.as_bytes()).unwrap_err();
    }
    // Repeatedly copying a value into itself must not grow without bound.
    for (base, step, why) in [
        (
            "l: [a]\n",
            "- {op: copy, from: /l, path: /l/-}\n",
            "more than",
        ),
        (
            "l: [a]\n",
            "- {op: copy, from: /l, path: /l/0}\n- {op: copy, from: /l/0, path: /l/-}\n",
            "more than",
        ),
        (
            "m: {a: b}\n",
            "- {op: copy, from: /m, path: /m/x}\n",
            "deep",
        ),
    ] {
        let patches = [Patch::parse(step.repeat(200).as_bytes()).unwrap()];
        let refusal = patch(base.as_bytes(), &patches).unwrap_err().to_string();
        assert!(refusal.contains(why), "{refusal}");
    }
    let wide = format!(
        "- {{op: add, path: /l, value: [{}]}}\n",
        "1,".repeat(50_000)
    );
    let many = format!(
        "{wide}{}",
        (0..9)
            .map(|i| format!("- {{op: copy, from: /l, path: /k{i}}}\n"))
            .collect::<String>()
    );
    let refusal = patch(b"a: b\n", &[Patch::parse(many.as_bytes()).unwrap()])
        .unwrap_err()
        .to_string();
    assert!(refusal.contains("more than 200000 values"), "{refusal}");
}

#[test]
fn corpus_samples_are_valid_configs() {
    for sample in corten_corpus::samples("config") {
        let document = Document::parse(&sample.bytes);
        assert!(document.is_ok(), "{}: {document:?}", sample.name);
    }
}

/// Pieces of real documents in random order, which reach deep into the parser.
fn fragments() -> impl Strategy<Value = String> {
    let lines: Vec<String> = good()
        .lines()
        .chain(EXAMPLES.lines())
        .map(|line| format!("{line}\n"))
        .collect();
    prop::collection::vec(prop::sample::select(lines), 0..30).prop_map(|lines| lines.concat())
}

proptest! {
    #[test]
    fn hostile_bytes_never_panic(bytes in corten_corpus::hostile("config")) {
        let _ = Document::parse(&bytes);
        let _ = Patch::parse(&bytes);
    }

    #[test]
    fn hostile_yaml_never_panics(text in "[a-z:{}\\[\\]&*!|>'\"#\\-\n ,%@?$]{0,200}") {
        let _ = Document::parse(text.as_bytes());
        if let Ok(change) = Patch::parse(text.as_bytes()) {
            let _ = patch(good().as_bytes(), &[change]);
        }
    }

    #[test]
    fn fragments_of_documents_never_panic(text in fragments(), change in fragments()) {
        let _ = Document::read(text.as_bytes(), true);
        if let Ok(change) = Patch::parse(change.as_bytes())
            && let Ok(text) = patch(good().as_bytes(), &[change])
        {
            // The result of a patch can be parsed again, valid or not.
            let again = Document::read(text.as_bytes(), true);
            let syntax = again.err().is_some_and(|problems| problems.to_string().contains("not YAML"));
            prop_assert!(!syntax, "{text}");
        }
    }

    #[test]
    fn a_damaged_config_never_panics(at in 0usize..8000, with in any::<u8>()) {
        let mut bytes = format!("{}---\n{EXAMPLES}", bare("controlplane")).into_bytes();
        let at = at % bytes.len();
        bytes[at] = with;
        if let Ok(document) = Document::read(&bytes, true) {
            let _ = document.redacted();
            let _ = crate::plan(Some(&document), &document, &["a"]);
            prop_assert_eq!(crate::diff(Some(&document), &document), None);
        }
    }
}
