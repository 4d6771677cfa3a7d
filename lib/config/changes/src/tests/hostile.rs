//! Hostile patches and configs: each must end in a clear error.

use corten_config::testing::{EXAMPLES, bare, bomb, good, lines, read};
use proptest::prelude::*;

use crate::{Patch, diff, patch, plan};

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

/// Pieces of real documents in random order, which reach deep into the parser.
fn fragments() -> impl Strategy<Value = String> {
    prop::collection::vec(prop::sample::select(lines()), 0..30).prop_map(|lines| lines.concat())
}

proptest! {
    #[test]
    fn hostile_bytes_never_panic(bytes in corten_corpus::hostile("config")) {
        let _ = Patch::parse(&bytes);
    }

    #[test]
    fn hostile_yaml_never_panics(text in "[a-z:{}\\[\\]&*!|>'\"#\\-\n ,%@?$]{0,200}") {
        if let Ok(change) = Patch::parse(text.as_bytes()) {
            let _ = patch(good().as_bytes(), &[change]);
        }
    }

    #[test]
    fn fragments_of_documents_never_panic(change in fragments()) {
        if let Ok(change) = Patch::parse(change.as_bytes())
            && let Ok(text) = patch(good().as_bytes(), &[change])
        {
            // The result of a patch can be parsed again, valid or not.
            let again = read(&text);
            let syntax = again.err().is_some_and(|problems| problems.to_string().contains("not YAML"));
            prop_assert!(!syntax, "{text}");
        }
    }

    #[test]
    fn a_damaged_config_never_panics(at in 0usize..8000, with in any::<u8>()) {
        let mut bytes = format!("{}---\n{EXAMPLES}", bare("controlplane")).into_bytes();
        let at = at % bytes.len();
        bytes[at] = with;
        let text = String::from_utf8(bytes).unwrap_or_default();
        if let Ok(document) = read(&text) {
            let _ = plan(Some(&document), &document, &["a"]);
            prop_assert_eq!(diff(Some(&document), &document), None);
        }
    }
}
