//! What a component says of its licence, and the texts of many components as one file.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::Context as _;
use corten_steps::error::{Failure, Remedy as _, Result};
use spdx::{Expression, ParseMode};

use super::recognise;

/// What a component says of its licence.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Notice {
    /// The declared licence as an SPDX expression; `None` if its files declare none in a known form.
    pub licence: Option<String>,
    /// The texts that its copies must carry.
    pub texts: Vec<String>,
}

/// Beginnings of the names of files with licence texts.
const NAMES: [&str; 7] = [
    "licence",
    "license",
    "unlicense",
    "copying",
    "copyright",
    "notice",
    "patents",
];
/// Name of a directory that holds licence texts alone.
const TEXTS: &str = "LICENSES";
/// Endings of files that are programs or data, or the licence of the documentation.
const OTHER: [&str; 8] = ["docs", "go", "html", "json", "py", "rs", "sh", "yaml"];
/// Directories whose files no program contains.
const LEFT_OUT: [&str; 6] = ["benches", "doc", "docs", "examples", "testdata", "tests"];

/// The notice of a source directory: a Go module or a crate. The licence is that of the texts at its top; those below
/// are of parts that it has from elsewhere.
///
/// # Errors
/// A file cannot be read.
pub fn of_directory(directory: &Path) -> Result<Notice> {
    let mut found = Notice::default();
    let mut declared = BTreeSet::new();
    let is_kept = |entry: &walkdir::DirEntry| {
        let name = entry.file_name().to_string_lossy();
        entry.depth() == 0 || !entry.file_type().is_dir() || !LEFT_OUT.contains(&&*name)
    };
    let entries = walkdir::WalkDir::new(directory).sort_by_file_name();
    for entry in entries.into_iter().filter_entry(is_kept) {
        let entry = entry.with_context(|| format!("listing {}", directory.display()))?;
        if !entry.file_type().is_file() || !is_text(entry.path()) {
            continue;
        }
        let content = fs::read(entry.path()).or_fail(
            format!("reading the licence {}", entry.path().display()),
            "remove its directory from the cache and build again",
        )?;
        let text = String::from_utf8_lossy(&content).into_owned();
        if entry.depth() == 1 {
            declared.extend(recognise::licences(&text));
        }
        found.texts.push(text);
    }
    let declared: Vec<&str> = declared.into_iter().collect();
    found.licence = (!declared.is_empty()).then(|| declared.join(" AND "));
    Ok(found)
}

/// Whether a file holds a licence text by its name.
fn is_text(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let name = name.to_ascii_lowercase();
    let end = name.rsplit('.').next().unwrap_or_default();
    let parent = path.parent().and_then(Path::file_name);
    let is_named = NAMES.iter().any(|start| name.starts_with(start)) || end == "license";
    (is_named || parent.is_some_and(|name| name == TEXTS)) && !OTHER.contains(&end)
}

/// An expression in SPDX's own form: crates also write `MIT/Apache-2.0`.
///
/// # Errors
/// It is no SPDX expression.
pub fn canonical(expression: &str) -> Result<String> {
    let wrong = || format!("the licence {expression:?} is not an SPDX expression");
    let remedy = "name the licence in rootfs/licences.toml";
    let changed = Expression::canonicalize(expression).or_fail(wrong(), remedy)?;
    let text = changed.unwrap_or_else(|| expression.to_owned());
    Expression::parse(&text).or_fail(wrong(), remedy)?;
    Ok(text)
}

/// SPDX's own texts of an expression, for a component without a text of its own.
///
/// # Errors
/// It is no SPDX expression, or names no licence that SPDX lists.
pub fn standard(expression: &str) -> Result<Vec<String>> {
    let parsed = Expression::parse_mode(expression, ParseMode::LAX).or_fail(
        format!("the licence {expression:?} is not an SPDX expression"),
        "name the licence in rootfs/licences.toml",
    )?;
    let mut texts = Vec::new();
    for one in parsed.requirements() {
        texts.extend(one.req.license.id().map(|id| id.text().to_owned()));
        let addition = one.req.addition.as_ref().and_then(|one| one.id());
        texts.extend(addition.map(|id| id.text().to_owned()));
    }
    if texts.is_empty() {
        return Err(Failure::new(
            format!("SPDX has no text of the licence {expression:?}"),
            "the component must bring its text",
        ));
    }
    Ok(texts)
}

/// Lists components with their licences, then each text once with the components it applies to. The components are
/// pairs of a name and a notice; their order does not matter.
pub fn document<'a>(
    title: &str,
    components: impl IntoIterator<Item = (&'a str, &'a Notice)>,
) -> String {
    let components: BTreeMap<&str, &Notice> = components.into_iter().collect();
    let mut texts: BTreeMap<String, (Vec<&str>, String)> = BTreeMap::new();
    let mut out = format!("{title}\n\n");
    for (name, notice) in &components {
        let licence = notice.licence.as_deref().unwrap_or_default();
        // Writing to a String cannot fail.
        let _ = writeln!(out, "{name}: {licence}");
        for text in &notice.texts {
            let words: Vec<&str> = text.split_whitespace().collect();
            let same = texts.entry(words.join(" "));
            let (users, _) = same.or_insert_with(|| (Vec::new(), tidy(text)));
            if users.last() != Some(name) {
                users.push(name);
            }
        }
    }
    let mut texts: Vec<_> = texts.into_values().collect();
    texts.sort();
    for (users, text) in texts {
        let line = "=".repeat(78);
        let _ = write!(out, "\n{line}\n{}\n\n{text}", users.join("\n"));
    }
    out
}

/// The text with Unix line ends, without space at the end of lines and without empty lines around it.
fn tidy(text: &str) -> String {
    let lines = text.trim_end().lines().map(str::trim_end);
    let lines: Vec<&str> = lines.skip_while(|line| line.is_empty()).collect();
    lines.join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn notice(texts: &[&str]) -> Notice {
        Notice {
            licence: Some("MIT".to_owned()),
            texts: texts.iter().map(|text| (*text).to_owned()).collect(),
        }
    }

    fn write(directory: &Path, path: &str, content: &str) {
        let path = directory.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    #[test]
    fn directory_declares_the_licences_at_its_top_and_carries_those_below() {
        let module = tempfile::tempdir().unwrap();
        let [mit, isc, zlib] = ["MIT", "ISC", "Zlib"].map(|name| {
            let id = spdx::license_id(name).unwrap();
            id.text()
        });
        write(module.path(), "LICENSE", mit);
        write(module.path(), "LICENSE.libyaml", isc);
        write(module.path(), "NOTICE", "Ours.");
        write(module.path(), "license.go", "package main");
        write(module.path(), "LICENSE.docs", "Documentation.");
        write(module.path(), "forked/COPYING.md", zlib);
        write(module.path(), "LICENSES/Any.txt", "Any.");
        write(module.path(), "testdata/LICENSE", "Test.");
        write(module.path(), "main.go", "package main");
        let found = of_directory(module.path()).unwrap();
        assert_eq!(found.licence.as_deref(), Some("ISC AND MIT"));
        let texts = found.texts.iter().map(String::as_str);
        let texts: BTreeSet<&str> = texts.collect();
        assert_eq!(texts, [mit, isc, zlib, "Ours.", "Any."].into());
    }

    #[test]
    fn directory_without_a_known_text_declares_nothing() {
        let module = tempfile::tempdir().unwrap();
        assert_eq!(of_directory(module.path()).unwrap(), Notice::default());
        write(module.path(), "LICENSE", "Do as you are told.");
        assert_eq!(of_directory(module.path()).unwrap().licence, None);
    }

    #[test]
    fn expressions_of_crates_become_those_of_spdx() {
        for (given, wanted) in [
            ("MIT/Apache-2.0", "MIT OR Apache-2.0"),
            ("Apache-2.0 / MIT", "Apache-2.0 OR MIT"),
            (
                "(MIT OR Apache-2.0) AND Zlib",
                "(MIT OR Apache-2.0) AND Zlib",
            ),
        ] {
            assert_eq!(canonical(given).unwrap(), wanted);
        }
        let error = canonical("Mine").unwrap_err().to_string();
        assert!(error.contains("\"Mine\" is not an SPDX"), "{error}");
    }

    #[test]
    fn standard_texts_include_the_exception() {
        let texts = standard("GPL-2.0-only WITH Linux-syscall-note").unwrap();
        assert!(texts[0].contains("Version 2, June 1991"), "{}", texts[0]);
        assert!(texts[1].contains("system calls"), "{}", texts[1]);
        assert_eq!(standard("MIT OR Apache-2.0").unwrap().len(), 2);
        standard("LicenseRef-mine").unwrap_err();
    }

    #[test]
    fn document_has_each_text_once_and_names_every_component_of_it() {
        let one = notice(&["\r\n A text\r\nof two lines  \r\n"]);
        let two = notice(&["A text of\ntwo lines", "B text"]);
        let components = [("b 1", &two), ("a 1", &one)];
        let text = document("Licences of x", components);
        assert_eq!(text.matches("A text").count(), 1, "{text}");
        let wanted = "=\na 1\nb 1\n\n A text\nof two lines\n\n=";
        assert!(
            text.starts_with("Licences of x\n\na 1: MIT\nb 1: MIT\n"),
            "{text}"
        );
        assert!(text.contains(wanted), "{text}");
        assert!(text.ends_with("=\nb 1\n\nB text\n"), "{text}");
        let [first, second] = components;
        assert_eq!(text, document("Licences of x", [second, first]));
    }
}
