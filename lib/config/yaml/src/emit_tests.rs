use proptest::prelude::*;

use crate::emit;
use crate::problem::{Mark, Notes};
use crate::tree::{self, Content, Key, Node};

fn scalar(text: &str, plain: bool) -> Node {
    Node::new(Content::Scalar {
        text: text.to_owned(),
        plain,
    })
}

fn read(text: &str) -> Node {
    let mut notes = Notes::default();
    let mut trees = tree::read(text, &mut notes);
    assert!(notes.is_empty(), "{text}\n{:?}", notes.into_problems());
    assert_eq!(trees.len(), 1, "{text}");
    trees.remove(0).unwrap()
}

/// Texts of all sorts, and plain scalars that are not texts.
fn scalars() -> impl Strategy<Value = Node> {
    let odd = prop::sample::select(vec![
        "",
        "null",
        "true",
        "yes",
        "0123",
        "1.10",
        "0x1f",
        "1e3",
        "-",
        "- a",
        "a: b",
        "a #b",
        "#",
        "'",
        "\"",
        "a\nb",
        "a\n\nb\n",
        "\na",
        " a\nb",
        "a \nb\n",
        "a\n\n\n",
        "\t",
        "a\tb\nc",
        "---",
        "...",
        "ümlaut",
        "\u{85}",
        "\u{2028}",
        "\u{feff}a",
        "\r\n",
        "<<",
        "1:30",
        "[",
        "{}",
        "*a",
        "&a",
        "!a",
        "%a",
        "@a",
        "`a",
        "a:",
        "? a",
        "=",
        "|",
        "|\n a",
        ">",
        "~",
        ".inf",
        "+.5",
        "a\n---\nb",
        "a\n#b\n",
        "a\n  b\n c\n",
    ]);
    prop_oneof![
        odd.prop_map(|text| scalar(text, false)),
        "\\PC{0,20}".prop_map(|text| scalar(&text, false)),
        "[ -~\n]{0,30}".prop_map(|text| scalar(&text, false)),
        prop::sample::select(vec![
            "null", "true", "False", "42", "-1", "1.5", "0x1F", "~"
        ])
        .prop_map(|text| scalar(text, true)),
    ]
}

fn nodes() -> impl Strategy<Value = Node> {
    scalars().prop_recursive(4, 40, 5, |inner| {
        let key = prop_oneof![
            "[a-z]{1,5}",
            "[ -~]{0,8}",
            Just("null".to_owned()),
            Just("1".to_owned())
        ];
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4)
                .prop_map(|items| Node::new(Content::List(items))),
            prop::collection::btree_map(key, inner, 0..4).prop_map(|entries| {
                let entry = |(name, value)| {
                    (
                        Key {
                            mark: Mark::default(),
                            name,
                        },
                        value,
                    )
                };
                Node::new(Content::Map(entries.into_iter().map(entry).collect()))
            }),
        ]
    })
}

proptest! {
    #[test]
    fn emitted_yaml_round_trips(node in nodes()) {
        // At the root and deeply nested.
        let wrapped = Node::new(Content::List(vec![Node::new(Content::Map(vec![
            (Key { mark: Mark::default(), name: "key".to_owned() }, node.clone()),
            (Key { mark: Mark::default(), name: "next".to_owned() }, node),
        ]))]));
        let text = emit::document(&wrapped);
        prop_assert!(read(&text) == wrapped, "{text}");
    }
}

#[test]
fn emitted_yaml_looks_handwritten() {
    let text = "a: 1
b: \"1\"
list:
    - x
    - name: z
      values:
        - 1
text: |
    one

    two
address: 10.0.0.1/24
empty: {}
";
    let text = text.replace(
        "      values:\n        - 1\n",
        "      values:\n          - 1\n",
    );
    assert_eq!(emit::document(&read(&text)), text);
}
