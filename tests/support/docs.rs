//! The documentation: its pages, their links, and the site of `make docs`.
//!
//! `docs/README.md` is the index. The site's navigation consists of the pages that it links to, and
//! those that the indexes of folders link to.

mod html;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Component, Path, PathBuf};

use pulldown_cmark::{CodeBlockKind, Event, Options, Parser, Tag, TagEnd};

use crate::workspace;

pub use html::write;

/// The index of all pages.
pub const INDEX: &str = "docs/README.md";
/// File name of a folder's index page.
const FOLDER: &str = "README.md";

/// A page: its path in the repository, and its text.
#[derive(Debug, Clone)]
pub struct Page {
    /// Path relative to the repository.
    pub path: PathBuf,
    /// Text in Markdown.
    pub text: String,
}

/// The target of a link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// Outside the repository.
    Elsewhere,
    /// A file of the repository, and optionally a heading in it.
    Here(PathBuf, Option<String>),
}

/// The pages of the repository: those at its root, and all below `docs`.
///
/// # Panics
/// A page cannot be read.
#[must_use]
pub fn pages() -> Vec<Page> {
    let is_page = |path: &PathBuf| {
        let is_markdown = path.extension().is_some_and(|extension| extension == "md");
        is_markdown && (path.components().count() == 1 || path.starts_with("docs"))
    };
    let read = |path: PathBuf| {
        let text = fs::read_to_string(workspace::root().join(&path)).expect("a page");
        Page { path, text }
    };
    let tracked = workspace::tracked();
    tracked.into_iter().filter(is_page).map(read).collect()
}

impl Page {
    fn events(&self) -> Vec<Event<'_>> {
        let options = Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH;
        Parser::new_ext(&self.text, options).collect()
    }

    /// The first heading, or the name of the file if there is none.
    #[must_use]
    pub fn title(&self) -> String {
        let first = headings(&self.events()).into_iter().next();
        first.map_or_else(|| self.path.display().to_string(), |heading| heading.text)
    }

    /// The anchors of the headings.
    #[must_use]
    pub fn anchors(&self) -> BTreeSet<String> {
        let headings = headings(&self.events());
        headings.into_iter().map(|heading| heading.anchor).collect()
    }

    /// The links as written.
    #[must_use]
    pub fn links(&self) -> Vec<String> {
        let link = |event| match event {
            Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                Some(dest_url.to_string())
            }
            _ => None,
        };
        self.events().into_iter().filter_map(link).collect()
    }

    /// Code spans, and the command lines of code blocks.
    #[must_use]
    pub fn code(&self) -> Vec<String> {
        let mut found = Vec::new();
        let mut is_picture = None;
        for event in self.events() {
            match event {
                Event::Code(span) => found.push(span.to_string()),
                Event::Start(Tag::CodeBlock(kind)) => {
                    let text = CodeBlockKind::Fenced("text".into());
                    is_picture = Some(kind == text);
                }
                Event::End(TagEnd::CodeBlock) => is_picture = None,
                Event::Text(lines) if is_picture == Some(false) => {
                    let lines = lines.lines().map(|line| line.trim_start_matches("$ "));
                    found.extend(lines.map(str::to_owned));
                }
                _ => {}
            }
        }
        found
    }

    /// The target of a link on this page.
    #[must_use]
    pub fn target(&self, link: &str) -> Target {
        if link.contains("://") || link.starts_with("mailto:") {
            return Target::Elsewhere;
        }
        let (path, anchor) = match link.split_once('#') {
            Some((path, anchor)) => (path, Some(anchor.to_owned())),
            None => (link, None),
        };
        let file = match path {
            "" => self.path.clone(),
            _ => normal(&self.path.with_file_name(path)),
        };
        // A link to a folder means its index page.
        match workspace::root().join(&file).is_dir() {
            true => Target::Here(file.join(FOLDER), anchor),
            false => Target::Here(file, anchor),
        }
    }
}

/// A path without `.` and `..`; one that leaves the repository keeps its `..`.
fn normal(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir if normal.file_name().is_some() => {
                normal.pop();
            }
            _ => normal.push(part),
        }
    }
    normal
}

/// A heading of a page.
struct Heading {
    /// Index of its first event.
    event: usize,
    text: String,
    anchor: String,
}

/// Headings with the anchors of code hosts: lower case, dashes for blanks, no punctuation, and a
/// number for a duplicate.
fn headings(events: &[Event<'_>]) -> Vec<Heading> {
    let mut found = Vec::new();
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for (number, event) in events.iter().enumerate() {
        let Event::Start(Tag::Heading { .. }) = event else {
            continue;
        };
        let inside = events.iter().skip(number + 1);
        let text: String = inside
            .take_while(|event| !matches!(event, Event::End(TagEnd::Heading(_))))
            .filter_map(|event| match event {
                Event::Text(text) | Event::Code(text) => Some(&**text),
                _ => None,
            })
            .collect();
        let kept = |c: char| c.is_alphanumeric() || c == '-' || c == '_' || c == ' ';
        let lower = text.to_lowercase();
        let slug: String = lower.chars().filter(|c| kept(*c)).collect();
        let slug = slug.replace(' ', "-");
        let count = counts.entry(slug.clone()).or_default();
        let anchor = match *count {
            0 => slug,
            again => format!("{slug}-{again}"),
        };
        *count += 1;
        found.push(Heading {
            event: number,
            text,
            anchor,
        });
    }
    found
}

/// The broken links of these pages, each with its page.
#[must_use]
pub fn broken(pages: &[Page]) -> Vec<String> {
    let anchors: BTreeMap<&Path, BTreeSet<String>> = pages
        .iter()
        .map(|page| (page.path.as_path(), page.anchors()))
        .collect();
    let tracked: BTreeSet<PathBuf> = workspace::tracked().into_iter().collect();
    let mut wrong = Vec::new();
    for page in pages {
        for link in page.links() {
            let Target::Here(file, anchor) = page.target(&link) else {
                continue;
            };
            let place = page.path.display();
            if !tracked.contains(&file) && !anchors.contains_key(file.as_path()) {
                wrong.push(format!(
                    "{place}: {link}: the repository has no file {}",
                    file.display()
                ));
            } else if let Some(anchor) = anchor
                && !anchors
                    .get(file.as_path())
                    .is_some_and(|all| all.contains(&anchor))
            {
                wrong.push(format!("{place}: {link}: no heading has this anchor"));
            }
        }
    }
    wrong
}

/// A part of the navigation: a heading of the index and the pages below it.
#[derive(Debug)]
pub struct Section {
    /// The heading.
    pub title: String,
    /// Pages in their order.
    pub pages: Vec<PathBuf>,
}

/// The navigation: the sections of the index. The index of a folder adds the pages that it links
/// to.
#[must_use]
pub fn sections(pages: &[Page]) -> Vec<Section> {
    let by_path = |path: &Path| pages.iter().find(|page| page.path == path);
    let mut sections: Vec<Section> = Vec::new();
    let mut seen = BTreeSet::from([PathBuf::from(INDEX)]);
    let Some(index) = by_path(Path::new(INDEX)) else {
        return sections;
    };
    let events = index.events();
    let mut titles = headings(&events).into_iter().peekable();
    for (number, event) in events.iter().enumerate() {
        while let Some(heading) = titles.next_if(|heading| heading.event <= number) {
            sections.push(Section {
                title: heading.text,
                pages: Vec::new(),
            });
        }
        let Event::Start(Tag::Link { dest_url, .. }) = event else {
            continue;
        };
        let (Target::Here(file, _), Some(section)) = (index.target(dest_url), sections.last_mut())
        else {
            continue;
        };
        let below = by_path(&file)
            .filter(|page| page.path.ends_with(FOLDER) && page.path != Path::new(FOLDER));
        let more = below.into_iter().flat_map(|page| {
            let targets = page.links().into_iter().map(|link| page.target(&link));
            let within = page.path.with_file_name("");
            targets.filter_map(move |target| match target {
                Target::Here(file, _) if file.starts_with(&within) => Some(file),
                _ => None,
            })
        });
        for file in std::iter::once(file.clone()).chain(more) {
            if by_path(&file).is_some() && seen.insert(file.clone()) {
                section.pages.push(file);
            }
        }
    }
    sections.retain(|section| !section.pages.is_empty());
    sections
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(path: &str, text: &str) -> Page {
        Page {
            path: path.into(),
            text: text.to_owned(),
        }
    }

    #[test]
    fn anchors_follow_the_rules_of_code_hosts() {
        let page = page(
            "docs/a.md",
            "# A `b`, c!\n\n## Twice\n\n## Twice\n\n## a_b-c\n",
        );
        let anchors: Vec<String> = page.anchors().into_iter().collect();
        assert_eq!(anchors, ["a-b-c", "a_b-c", "twice", "twice-1"]);
        assert_eq!(page.title(), "A b, c!");
    }

    #[test]
    fn links_are_followed_from_their_page() {
        let page = page("docs/decisions/x.md", "");
        let here =
            |path: &str, anchor: Option<&str>| Target::Here(path.into(), anchor.map(str::to_owned));
        assert_eq!(page.target("../api.md#a"), here("docs/api.md", Some("a")));
        assert_eq!(page.target("#b"), here("docs/decisions/x.md", Some("b")));
        assert_eq!(page.target("../../docs/"), here("docs/README.md", None));
        assert_eq!(page.target("../../../x"), here("../x", None));
        assert_eq!(page.target("https://example.org/#c"), Target::Elsewhere);
    }

    #[test]
    fn broken_links_are_found() {
        let good = page(
            "docs/zz.md",
            "# Here\n[a](#here) [b](../Makefile) [c](https://x.example)",
        );
        let bad = page(
            "docs/zy.md",
            "[a](zz.md#there) [b](../no-such-file) [c](zz.md)",
        );
        let wrong = broken(&[good, bad]);
        assert_eq!(wrong.len(), 2, "{wrong:?}");
        assert!(wrong[0].contains("zz.md#there"), "{wrong:?}");
        assert!(wrong[1].contains("no-such-file"), "{wrong:?}");
    }

    #[test]
    fn index_sections_have_the_pages_of_folders_and_not_of_the_readme() {
        let pages = [
            page(
                INDEX,
                "# I\n\n## A\n\n[r](../README.md) [b](decisions/)\n\n## C\n\n[c](c.md)\n",
            ),
            page("README.md", "[c](docs/c.md)"),
            page("docs/decisions/README.md", "[x](x.md) [c](../c.md)"),
            page("docs/decisions/x.md", "# X"),
            page("docs/c.md", "# C"),
        ];
        let found: Vec<(String, Vec<String>)> = sections(&pages)
            .into_iter()
            .map(|section| {
                let names = section.pages.iter().map(|path| path.display().to_string());
                (section.title.clone(), names.collect())
            })
            .collect();
        let a = [
            "README.md",
            "docs/decisions/README.md",
            "docs/decisions/x.md",
        ];
        let expected = [
            ("A".to_owned(), a.map(str::to_owned).to_vec()),
            ("C".to_owned(), vec!["docs/c.md".to_owned()]),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn commands_are_read_from_code_and_not_from_text_blocks() {
        let text = "`make a`\n\n```console\n$ make b\n```\n\n```text\nmake c\n```\n";
        assert_eq!(page("docs/a.md", text).code(), ["make a", "make b"]);
    }
}
