//! Pages as HTML: one file each in the repository's layout, readable by a browser from a disk.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use pulldown_cmark::{CowStr, Event, Tag};

use super::{FOLDER, INDEX, Page, Target, headings, sections};
use crate::workspace;

const STYLE: &str = "\
:root { color-scheme: light dark; --line: #8884; --soft: #8882; }
body { margin: 0; font: 16px/1.55 system-ui, sans-serif; display: flex; }
nav { flex: 0 0 17rem; height: 100vh; overflow: auto; position: sticky; top: 0; padding: 1rem; box-sizing: border-box;
  border-right: 1px solid var(--line); font-size: 14px; }
nav p { margin: 1rem 0 .2rem; font-weight: 600; }
nav ul { list-style: none; margin: 0; padding: 0; }
nav a { display: block; padding: .1rem .4rem; border-radius: .3rem; text-decoration: none; color: inherit; }
nav a[aria-current] { background: var(--soft); font-weight: 600; }
main { flex: 1; min-width: 0; padding: 1rem 2.5rem 4rem; max-width: 60rem; }
table { border-collapse: collapse; display: block; overflow-x: auto; margin: 1rem 0; }
th, td { border: 1px solid var(--line); padding: .3rem .6rem; text-align: left; vertical-align: top; }
pre { background: var(--soft); padding: .8rem 1rem; overflow-x: auto; border-radius: .4rem; line-height: 1.35; }
code { font: .9em ui-monospace, monospace; background: var(--soft); padding: .1em .25em; border-radius: .2rem; }
pre code { background: none; padding: 0; }
@media (max-width: 50rem) { body { display: block; } nav { position: static; height: auto; } main { padding: 1rem; } }
";

/// The path of a page in the site.
fn place(page: &Path) -> PathBuf {
    match page.ends_with(FOLDER) {
        true => page.with_file_name("index.html"),
        false => page.with_extension("html"),
    }
}

/// The relative URL from a page to a file of the site.
fn way(from: &Path, to: &Path) -> String {
    let folder = from.parent().unwrap_or(Path::new(""));
    let common = folder
        .components()
        .zip(to.components())
        .take_while(|(a, b)| a == b)
        .count();
    let up = "../".repeat(folder.components().count() - common);
    let down: PathBuf = to.components().skip(common).collect();
    format!("{up}{}", down.display())
}

/// A text with HTML's special characters escaped.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

/// A page's content as HTML; adds linked files that are no pages to `files`.
fn body(page: &Page, pages: &[Page], files: &mut Vec<PathBuf>) -> String {
    let mut events = page.events();
    for heading in headings(&page.events()) {
        if let Some(Event::Start(Tag::Heading { id, .. })) = events.get_mut(heading.event) {
            *id = Some(CowStr::from(heading.anchor));
        }
    }
    let is_page = |path: &Path| pages.iter().any(|page| page.path == path);
    let mut lead = |link: &CowStr<'_>| {
        let Target::Here(file, anchor) = page.target(link) else {
            return link.to_string();
        };
        let to = match is_page(&file) {
            true => place(&file),
            false => {
                files.push(file.clone());
                file
            }
        };
        let anchor = anchor.map_or_else(String::new, |anchor| format!("#{anchor}"));
        format!("{}{anchor}", way(&page.path, &to))
    };
    for event in &mut events {
        if let Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) = event {
            *dest_url = CowStr::from(lead(dest_url));
        }
    }
    let mut html = String::new();
    pulldown_cmark::html::push_html(&mut html, events.into_iter());
    html
}

/// The navigation as a page shows it.
fn navigation(page: &Page, pages: &[Page]) -> String {
    let mut html = String::new();
    let entry = |path: &Path| {
        let title = pages
            .iter()
            .find(|page| page.path == path)
            .map_or_else(String::new, Page::title);
        let current = if path == page.path {
            " aria-current=\"page\""
        } else {
            ""
        };
        let href = way(&page.path, &place(path));
        format!(
            "<li><a href=\"{href}\"{current}>{}</a></li>",
            escaped(&title)
        )
    };
    html.push_str(&format!("<ul>{}</ul>", entry(Path::new(INDEX))));
    for section in sections(pages) {
        let entries: String = section.pages.iter().map(|path| entry(path)).collect();
        html.push_str(&format!(
            "<p>{}</p><ul>{entries}</ul>",
            escaped(&section.title)
        ));
    }
    html
}

/// Writes the site: each page, and each linked file. Returns the number of pages.
///
/// # Errors
/// A file cannot be written or read.
pub fn write(pages: &[Page], out: &Path) -> io::Result<usize> {
    let mut files = Vec::new();
    for page in pages {
        let title = escaped(&page.title());
        let html = format!(
            "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
             <title>{title}</title><style>{STYLE}</style></head>\n<body><nav>{}</nav>\n<main>\n{}</main></body></html>\n",
            navigation(page, pages),
            body(page, pages, &mut files),
        );
        put(&out.join(place(&page.path)), html.as_bytes())?;
    }
    files.sort();
    files.dedup();
    for file in files {
        put(&out.join(&file), &fs::read(workspace::root().join(&file))?)?;
    }
    Ok(pages.len())
}

fn put(path: &Path, bytes: &[u8]) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::write(path, bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_lead_from_file_to_file() {
        let way = |from: &str, to: &str| way(Path::new(from), Path::new(to));
        assert_eq!(way("README.md", "docs/index.html"), "docs/index.html");
        assert_eq!(way("docs/how-to/a.md", "docs/api.html"), "../api.html");
        assert_eq!(way("docs/a.md", "index.html"), "../index.html");
        assert_eq!(way("docs/a.md", "docs/b/index.html"), "b/index.html");
    }

    #[test]
    fn page_has_anchors_and_links_of_the_site() {
        let page = |path: &str, text: &str| Page {
            path: path.into(),
            text: text.to_owned(),
        };
        let pages = [
            page(INDEX, "# Index\n\n## Part <1>\n\n[a](a.md)\n"),
            page(
                "docs/a.md",
                "# A\n\n[b](../Makefile) [c](#a) [d](README.md)\n",
            ),
        ];
        let out = tempfile::tempdir().unwrap();
        assert_eq!(write(&pages, out.path()).unwrap(), 2);
        let html = fs::read_to_string(out.path().join("docs/a.html")).unwrap();
        for part in [
            "<h1 id=\"a\">A</h1>",
            "href=\"../Makefile\"",
            "href=\"a.html#a\"",
            "<p>Part &lt;1&gt;</p>",
            "<a href=\"a.html\" aria-current=\"page\">A</a>",
            "<a href=\"index.html\">d</a>",
        ] {
            assert!(html.contains(part), "{part}: {html}");
        }
        assert!(out.path().join("Makefile").is_file());
    }
}
