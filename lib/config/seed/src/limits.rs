//! Limits of a text: its bytes, its documents, its entries.

use std::collections::{BTreeMap, BTreeSet};

use corten_yaml::problem::{Mark, Notes, Problems, printable};
use corten_yaml::read::Reader;
use corten_yaml::stream;
use corten_yaml::tree::Node;

/// Limit of the text in bytes; real ones have a few thousand.
pub const LARGEST: usize = 256 * 1024;
/// Limit of links, addresses, routes, servers and so on, each: a faulty generator must not keep a node busy for hours.
const MOST: usize = 256;

/// The only document of a text; `None` for an empty text.
pub(crate) fn only(bytes: &[u8], notes: &mut Notes) -> Result<Option<Node>, Problems> {
    if bytes.len() > LARGEST {
        let message = format!("larger than {} KiB", LARGEST / 1024);
        return Err(Problems::one(Mark::default(), message));
    }
    let (_, trees) = stream::read(bytes, notes)?;
    if let [_, second, ..] = trees.as_slice() {
        notes.add(second.mark, "", "a second document: there can be one only");
    }
    Ok(trees.into_iter().next())
}

/// The number of entries of each type, and the dependencies between links.
pub(crate) struct Size<'a> {
    pub(crate) counts: Vec<(&'static str, usize)>,
    pub(crate) needs: BTreeMap<&'a str, Vec<&'a str>>,
}

impl Size<'_> {
    /// Reports too many entries, and a link that depends on itself, directly or through other links.
    pub(crate) fn check(self, node: &Node, reader: &mut Reader<'_>) {
        for what in self.problems() {
            reader.wrong(node.mark, &what);
        }
    }

    pub(crate) fn problems(mut self) -> Vec<String> {
        let large = self.counts.iter().filter(|(_, count)| *count > MOST);
        let mut problems: Vec<String> = large
            .map(|(what, _)| format!("must have at most {MOST} {what}"))
            .collect();
        if !problems.is_empty() {
            return problems;
        }
        // A link that needs no remaining link, or that no link needs, is not part of a cycle.
        loop {
            let before = self.needs.len();
            let left: BTreeSet<&str> = self.needs.keys().copied().collect();
            let needed: BTreeSet<&str> = self.needs.values().flatten().copied().collect();
            self.needs.retain(|name, needs| {
                needed.contains(name) && needs.iter().any(|name| left.contains(name))
            });
            if self.needs.len() == before {
                break;
            }
        }
        if let Some(name) = self.needs.keys().next() {
            let name = printable(name);
            problems.push(format!(
                "has the link {name:?}, which is on or part of itself"
            ));
        }
        problems
    }
}
