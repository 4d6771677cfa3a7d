//! `docs/bench.md`: an introduction, and sections with separate measurements.

use std::fmt::Write as _;

/// A section of the document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Section {
    /// Its title, unique in the document.
    pub title: String,
    /// The text after the title, without surrounding empty lines.
    pub text: String,
}

/// The sections of a text, without the part before the first title.
pub fn sections(text: &str) -> Vec<Section> {
    let mut found: Vec<Section> = Vec::new();
    for line in text.lines() {
        if let Some(title) = line.strip_prefix("## ") {
            found.push(Section {
                title: title.to_owned(),
                text: String::new(),
            });
        } else if let Some(section) = found.last_mut() {
            section.text.push_str(line);
            section.text.push('\n');
        }
    }
    for section in &mut found {
        section.text = section.text.trim().to_owned();
    }
    found
}

/// The old sections, with those measured again replaced and new ones appended.
pub fn merged(mut old: Vec<Section>, new: Vec<Section>) -> Vec<Section> {
    for section in new {
        match old.iter_mut().find(|other| other.title == section.title) {
            Some(other) => *other = section,
            None => old.push(section),
        }
    }
    old
}

/// The whole document.
pub fn write(introduction: &str, sections: &[Section]) -> String {
    let mut text = format!("# Benchmark\n\n{}\n", introduction.trim());
    for section in sections {
        let _infallible = write!(text, "\n## {}\n\n{}\n", section.title, section.text);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn section(title: &str, text: &str) -> Section {
        Section {
            title: title.to_owned(),
            text: text.to_owned(),
        }
    }

    #[test]
    fn benchmark_page_round_trips() {
        let all = [section("A", "| a |\n|---|\n\nmore"), section("B", "b")];
        let text = write("What it is.", &all);
        assert!(text.starts_with("# Benchmark\n\nWhat it is.\n\n## A\n\n| a |\n"));
        assert_eq!(sections(&text), all);
    }

    #[test]
    fn only_measured_sections_are_replaced() {
        let old = vec![section("A", "1"), section("B", "2")];
        let new = vec![section("C", "4"), section("A", "3")];
        let all = [section("A", "3"), section("B", "2"), section("C", "4")];
        assert_eq!(merged(old, new), all);
    }
}
