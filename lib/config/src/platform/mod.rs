//! What a platform says of a machine's network: cloud-init's `network-config` and `meta-data`, as a NoCloud
//! seed has them ([`network`], [`identity`]), and the network that META 0x0a holds ([`PlatformNetwork`]).
//!
//! Both are read like a config: every problem is found at once, with its place, and what the node would not do
//! is refused. Which links are meant is for who knows the links.

mod bridge;
mod cloud;
mod meta;
mod meta_link;
mod model;
mod v1;
mod v2;

pub use cloud::{SeedIdentity, identity, network};
pub use meta::*;
pub use meta_link::*;
pub use model::{SeedDhcp, SeedLink, SeedMatch, SeedNetwork, SeedRoute, SeedRule, SeedShape};

use std::collections::{BTreeMap, BTreeSet};

use crate::problem::{Mark, Notes, Problems, printable};
use crate::read::Reader;
use crate::stream;
use crate::tree::Node;

/// The largest text read here, in bytes; real ones have a few thousand.
pub const LARGEST: usize = 256 * 1024;
/// Links, addresses, routes, servers and so on, of each: a slip of a generator shall not make a node busy for hours.
const MOST: usize = 256;

/// The only document of a text; none of one that is empty.
fn only(bytes: &[u8], notes: &mut Notes) -> Result<Option<Node>, Problems> {
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

/// How much there is of everything, and which links must be there before others.
struct Size<'a> {
    counts: Vec<(&'static str, usize)>,
    needs: BTreeMap<&'a str, Vec<&'a str>>,
}

impl Size<'_> {
    /// Complains of what there is too much of, and of a link that would be on, or part of, itself, be it by others
    /// between.
    fn check(self, node: &Node, reader: &mut Reader<'_>) {
        for what in self.problems() {
            reader.wrong(node.mark, &what);
        }
    }

    fn problems(mut self) -> Vec<String> {
        let large = self.counts.iter().filter(|(_, count)| *count > MOST);
        let mut problems: Vec<String> = large
            .map(|(what, _)| format!("must have at most {MOST} {what}"))
            .collect();
        if !problems.is_empty() {
            return problems;
        }
        // Who needs nobody that is left, or is needed by nobody, is in no circle.
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
