//! Compares `docs/configuration.md` with the tables.

use std::fmt::Write as _;
use std::path::Path;

use corten_yaml::read::Section as _;
use corten_yaml::table::{self, Field, Shape, Support};

use super::{EXAMPLES, bare, least, problems};
use crate::kinds::{KINDS, KNOWN};
use crate::v1alpha1::V1Alpha1;

/// This test writes the page below this line.
const MARKER: &str =
    "<!-- Below: written from the tables by `UPDATE=1 cargo test -p corten-config page`. -->\n";

/// Parts of the examples that a node does not support yet, and their replacement on the page.
const NOT_YET: &[(&str, &str)] = &[
    (
        "      protocol: dot\n      tlsServerName: dns.example.org\n",
        "",
    ),
    (
        "provisioning:\n    diskSelector: {match: disk.transport == \"nvme\"}\n    grow: true\n    minSize: 4GiB\n    \
         maxSize: 80%\nencryption:",
        "encryption:",
    ),
    ("          lockToState: true\n", ""),
    ("type: ext4, ", ""),
    ("trim: {enabled: true, interval: 168h}\n", ""),
    ("reboot: true\n", ""),
];
/// Prefix of the secrets in the examples.
const HIDDEN: &str = "HIDDEN";

/// The example of a kind, for the page.
fn example(kind: &str) -> String {
    let line = format!("kind: {kind}");
    let mut examples = EXAMPLES.split("---\n");
    let found = examples.find(|example| example.lines().any(|it| it == line));
    let mut text = found.expect("an example of each kind").to_owned();
    for (from, to) in NOT_YET {
        text = text.replace(from, to);
    }
    let mut parts = text.split(HIDDEN);
    let mut shown = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let rest = part.trim_start_matches(|c: char| c.is_ascii_uppercase());
        shown.push_str("secret");
        shown.push_str(rest);
    }
    format!("{}\n", shown.trim_end())
}

fn support(support: Support) -> &'static str {
    match support {
        Support::Acted => "yes",
        Support::Held => "kept",
        Support::Later => "not yet",
    }
}

fn holds(shape: Shape) -> String {
    match shape {
        Shape::Text(what) | Shape::Plain(what) => what.to_owned(),
        Shape::Choice(words) => words
            .iter()
            .map(|w| format!("`{w}`"))
            .collect::<Vec<_>>()
            .join(", "),
        Shape::Secret => "a secret".to_owned(),
        Shape::Object => "anything".to_owned(),
        Shape::Arguments => "map: a text, or a list of texts".to_owned(),
        Shape::Fields(_) => "fields".to_owned(),
        Shape::List(inner) => format!("list: {}", holds(*inner)),
        Shape::Map(inner) => format!("map: {}", holds(*inner)),
    }
}

/// A row for each field; fields within an unsupported one are left out.
fn rows(fields: &'static [Field], path: &str, around: Support, out: &mut String) {
    for field in table::fields(fields) {
        let here = format!("{path}{}", field.name);
        let required = if field.required { ", required" } else { "" };
        let what = holds(field.shape);
        // A field of a refused kind is refused with it.
        let own = least(around, field.support);
        let (acted, doc) = (support(own), field.doc);
        writeln!(out, "| `{here}` | {what}{required} | {acted} | {doc} |").unwrap();
        let inner = match field.shape {
            Shape::Fields(inner) => Some((inner, ".")),
            Shape::List(Shape::Fields(inner)) => Some((*inner, "[].")),
            Shape::Map(Shape::Fields(inner)) => Some((*inner, ".*.")),
            _ => None,
        };
        if let Some((inner, step)) = inner.filter(|_| own != Support::Later) {
            rows(inner, &format!("{here}{step}"), own, out);
        }
    }
}

fn generated() -> String {
    let mut out = String::new();
    let header = "| field | holds | acted on | description |\n|---|---|---|---|\n";
    writeln!(out, "\n## The document without a kind\n\n{header}").unwrap();
    out.truncate(out.len() - 1);
    rows(V1Alpha1::TABLE, "", Support::Acted, &mut out);
    for (wanted, title) in [
        (Support::Acted, "Kinds acted on"),
        (Support::Held, "Kinds kept for later versions"),
        (Support::Later, "Kinds refused as not supported yet"),
    ] {
        writeln!(out, "\n## {title}").unwrap();
        for kind in KINDS.iter().filter(|kind| kind.support == wanted) {
            let many = if kind.named {
                "One document for each `name`."
            } else {
                "At most one document."
            };
            let what = sentence(kind.doc);
            writeln!(out, "\n### {}\n\n{what} {many}\n", kind.name).unwrap();
            if wanted != Support::Later {
                writeln!(out, "```yaml\n{}```\n", example(kind.name)).unwrap();
            }
            out.push_str(header);
            rows(kind.table, "", wanted, &mut out);
        }
    }
    let known: Vec<String> = KNOWN
        .iter()
        .map(|kind| format!("`{}`", kind.name))
        .collect();
    writeln!(out, "\n### Known by name only\n\n{}.", known.join(", ")).unwrap();
    out
}

fn sentence(doc: &str) -> String {
    let doc = doc.trim();
    if doc.ends_with('.') {
        doc.to_owned()
    } else {
        format!("{doc}.")
    }
}

#[test]
fn configuration_page_matches_the_field_tables() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/configuration.md");
    let page = std::fs::read_to_string(&path).unwrap();
    let (intro, old) = page.split_once(MARKER).expect("the page has its marker");
    let new = generated();
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&path, format!("{intro}{MARKER}{new}")).unwrap();
    } else {
        let hint =
            "docs/configuration.md is behind the tables: UPDATE=1 cargo test -p corten-config page";
        assert!(old == new, "{hint}");
    }
}

#[test]
fn configuration_page_has_no_example_that_a_node_refuses() {
    for kind in KINDS.iter().filter(|kind| kind.support != Support::Later) {
        let example = example(kind.name);
        let found = problems(&format!("{}---\n{example}", bare("controlplane")));
        let wrong: Vec<_> = found
            .iter()
            .filter(|problem| problem.contains("not supported yet"))
            .collect();
        assert!(wrong.is_empty(), "{example}: {wrong:?}");
        assert!(!example.contains(HIDDEN), "{example}");
    }
    assert!(example("RegistryAuthConfig").contains("password: secret\n"));
    // Each entry still occurs in an example.
    for (from, _) in NOT_YET {
        assert!(EXAMPLES.contains(from), "{from}");
    }
}
