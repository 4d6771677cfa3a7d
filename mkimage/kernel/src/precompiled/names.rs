//! The sources to which precompiled headers mean the same as included ones.
//!
//! A source can change the meaning of a header by a macro that it defines before the `#include`. With precompiled
//! headers, the definition comes too late.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use corten_steps::error::Result;
use walkdir::WalkDir;

/// Prefixes of messages. Headers use them in macros, which a source expands after it has defined these. The few messages
/// that a function of a header prints lack the prefix. A file beside a source often defines one only if there is none.
const LATE: [&str; 2] = ["pr_fmt", "dev_fmt"];
/// Directories whose sources are not looked at, and are compiled without: no image has their programs and drivers, and they
/// have half of the source's text.
const OTHERS: [&str; 8] = [
    "Documentation",
    "drivers/gpu/drm/amd",
    "drivers/media",
    "drivers/net/wireless",
    "samples",
    "scripts",
    "sound",
    "tools",
];

/// The options of the configured tree, as `make` writes them.
const OPTIONS: &str = "include/config/auto.conf";

/// The paths in `tree` of the sources that define no name of the `headers` before they include a file.
pub(super) fn unaffected(tree: &Path, headers: &[impl AsRef<Path>]) -> Result<Vec<String>> {
    let options = read(&tree.join(OPTIONS))?;
    let options = options.lines().filter_map(|line| line.split('=').next());
    let mut scan = Scan {
        options: options.map(str::to_owned).collect(),
        ..Scan::default()
    };
    for header in headers {
        let text = without_comments(&read(header.as_ref())?);
        scan.words.extend(words_of(&text).map(str::to_owned));
    }
    let mut found = Vec::new();
    let others = OTHERS.map(|other| tree.join(other));
    let files = WalkDir::new(tree).sort_by_file_name().into_iter();
    for file in files.filter_entry(|entry| !others.iter().any(|other| entry.path() == other)) {
        let file = file?;
        let is_source = file.path().extension().is_some_and(|end| end == "c");
        if is_source && !scan.source_changes_a_header(file.path())? {
            let path = file.path().strip_prefix(tree)?;
            found.push(path.to_string_lossy().into_owned());
        }
    }
    Ok(found)
}

/// The names of the headers, and what is known of files beside sources.
#[derive(Default)]
struct Scan {
    options: HashSet<String>,
    words: HashSet<String>,
    /// Whether a file defines one of the names, itself or by a file beside it.
    beside: HashMap<PathBuf, bool>,
}

impl Scan {
    /// Whether the source defines one of the names before an `#include`.
    fn source_changes_a_header(&mut self, path: &Path) -> Result<bool> {
        let text = read(path)?;
        let is_late = |rest: &str| {
            words_of(rest)
                .next()
                .is_some_and(|name| LATE.contains(&name))
        };
        let is_early = |(kind, rest): &(&str, &str)| *kind != "define" || !is_late(rest);
        let mut directives = live(&text, &self.options);
        directives.retain(is_early);
        let last = directives.iter().rposition(|(kind, _)| *kind == "include");
        let end = last.map_or(0, |last| last.saturating_add(1));
        Ok(self.defines(path, directives.into_iter().take(end)))
    }

    /// Whether one of the directives in the file `path` defines one of the names.
    fn defines<'a>(
        &mut self,
        path: &Path,
        mut directives: impl Iterator<Item = (&'a str, &'a str)>,
    ) -> bool {
        directives.any(|(kind, rest)| match kind {
            "define" | "undef" => {
                let name = words_of(rest).next();
                name.is_some_and(|name| self.words.contains(name))
            }
            "include" => {
                let name = rest
                    .strip_prefix('"')
                    .and_then(|rest| rest.split('"').next());
                name.is_some_and(|name| self.file_defines(&path.with_file_name(name)))
            }
            _ => false,
        })
    }

    /// Whether a file beside a source defines one of the names. A file that is elsewhere is a header of the kernel, which
    /// works in any order.
    fn file_defines(&mut self, path: &Path) -> bool {
        // Two files that include each other by `..` would have ever longer paths.
        let Ok(path) = path.canonicalize() else {
            return false;
        };
        if let Some(known) = self.beside.get(&path) {
            return *known;
        }
        // A file may include itself.
        self.beside.insert(path.clone(), false);
        let text = read(&path).unwrap_or_default();
        let directives = live(&text, &self.options);
        let found = self.defines(&path, directives.into_iter());
        self.beside.insert(path, found);
        found
    }
}

fn read(path: &Path) -> Result<String> {
    let bytes = fs::read(path).with_context(|| format!("reading {}", path.display()))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The directives that do not depend on an option which is off.
fn live<'a>(text: &'a str, options: &HashSet<String>) -> Vec<(&'a str, &'a str)> {
    let is_off = |rest: &str| {
        let name = words_of(rest).next().unwrap_or_default();
        name.starts_with("CONFIG_") && !options.contains(name)
    };
    let (mut depth, mut off_at) = (0_usize, None);
    let mut found = Vec::new();
    for (kind, rest) in text.lines().filter_map(directive) {
        match kind {
            "if" | "ifdef" | "ifndef" => {
                depth = depth.saturating_add(1);
                if off_at.is_none() && kind == "ifdef" && is_off(rest) {
                    off_at = Some(depth);
                }
            }
            "else" | "elif" if off_at == Some(depth) => off_at = None,
            "endif" => {
                off_at = off_at.filter(|at| *at != depth);
                depth = depth.saturating_sub(1);
            }
            _ if off_at.is_none() => found.push((kind, rest)),
            _ => {}
        }
    }
    found
}

/// Kind of a preprocessor directive, and the rest of its line.
fn directive(line: &str) -> Option<(&str, &str)> {
    let line = line.trim_start().strip_prefix('#')?.trim_start();
    let end = line.find(|letter: char| !letter.is_ascii_alphabetic());
    let (kind, rest) = line.split_at(end.unwrap_or(line.len()));
    Some((kind, rest.trim_start()))
}

/// Identifiers, and the letters of other tokens.
fn words_of(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
    words.filter(|word| !word.is_empty())
}

/// The text with each comment replaced by a space. A string with the begin of a comment hides what follows, as far as the
/// next end of one.
fn without_comments(text: &str) -> String {
    let mut kept = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("/*") {
        kept.push_str(before);
        kept.push(' ');
        rest = after.split_once("*/").map_or("", |(_, after)| after);
    }
    kept.push_str(rest);
    let lines = kept
        .lines()
        .map(|line| line.split("//").next().unwrap_or_default());
    lines.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_that_define_a_name_of_the_headers_before_an_include_are_left_out() {
        let dir = tempfile::tempdir().unwrap();
        let tree = dir.path();
        let write = |path: &str, text: &str| {
            let path = tree.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let header = "/* BITS of a COMMENT */\n#ifdef DEBUG // LINE\n#define pr_fmt(fmt) fmt\n#endif\nint page;\n";
        write("include/linux/mm.h", header);
        write(
            "a/plain.c",
            "#include <linux/mm.h>\n#define DEBUG\nint x;\n",
        );
        write(
            "a/format.c",
            "#define pr_fmt(fmt) \"a: \" fmt\n#define BITS 8\n#include <linux/mm.h>\n",
        );
        write("a/early.c", "# define DEBUG 1\n#include <linux/mm.h>\n");
        write("a/undone.c", "#undef\tpage\n#include <linux/mm.h>\n");
        write(
            "a/late.c",
            "#include <linux/mm.h>\n#define DEBUG\n#include <linux/fs.h>\n",
        );
        write("a/beside.c", "#include \"own.h\"\n");
        write("a/maybe.c", "#include \"maybe.h\"\n");
        write(
            "a/maybe.h",
            "#ifndef pr_fmt\n#define pr_fmt(fmt) fmt\n#endif\n",
        );
        write("a/own.h", "#include \"own.h\"\n#include \"inner.h\"\n");
        write("a/inner.h", "#define DEBUG\n");
        write("a/elsewhere.c", "#include \"../b/none.h\"\n");
        write("a/circle.c", "#include \"../b/circle.h\"\n");
        write("b/circle.h", "#include \"../a/circle.h\"\n");
        write("a/circle.h", "#include \"../b/circle.h\"\n");
        write("tools/a.c", "int main;\n");
        write(OPTIONS, "# options\nCONFIG_ON=y\n");
        let debug = |option| {
            format!(
                "#ifdef CONFIG_{option}\n#if 1\n#endif\n#define DEBUG\n#else\n#endif\n#include <a>\n"
            )
        };
        write("a/on.c", &debug("ON"));
        write("a/off.c", &debug("OFF"));
        write(
            "a/other.c",
            &debug("OFF").replace("#else", "#else\n#undef DEBUG"),
        );
        let found = unaffected(tree, &[tree.join("include/linux/mm.h")]).unwrap();
        assert_eq!(
            found,
            [
                "a/circle.c",
                "a/elsewhere.c",
                "a/format.c",
                "a/off.c",
                "a/plain.c"
            ]
        );
    }

    #[test]
    fn comments_are_no_part_of_the_text() {
        assert_eq!(
            without_comments("a /* b\n c */ d // e\nf /* g"),
            "a   d \nf  "
        );
    }
}
