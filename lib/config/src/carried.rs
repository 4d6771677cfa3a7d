//! Documents of kinds that the reference does not have, in the files of an `ExtensionServiceConfig` named `corten`.
//!
//! The reference's client refuses a config with an unknown kind, so it could change no config that has one. The files
//! of that document it keeps unread.

use corten_yaml::problem::{Mark, Notes};
use corten_yaml::stream;
use corten_yaml::tree::{Content, Node};

/// Kind of the documents that carry others.
const CARRIER: &str = "ExtensionServiceConfig";
/// Name of the service in a carrier.
const SERVICE: &str = "corten";
/// Kinds that the reference does not have.
const OWN: &[&str] = &["ForwardingConfig", "UpgradeConfig"];

/// The documents inside all carriers of a config. Their places are those of the texts that hold them.
pub(crate) fn documents(trees: &[Node], notes: &mut Notes) -> Vec<Node> {
    let text = |node: &Node, field| node.get(field).and_then(Node::text).map(str::to_owned);
    let is_carrier = |node: &&Node| {
        text(node, "kind").as_deref() == Some(CARRIER)
            && text(node, "name").as_deref() == Some(SERVICE)
    };
    let carriers = trees.iter().filter(is_carrier);
    let files =
        carriers.flat_map(|node| node.get("configFiles").map(Node::items).unwrap_or_default());
    let contents = files.filter_map(|file| file.get("content"));
    let mut found = Vec::new();
    for content in contents {
        let mut inner = Notes::default();
        match stream::read(content.text().unwrap_or_default().as_bytes(), &mut inner) {
            Ok((_, trees)) => found.extend(trees.into_iter().map(|tree| at(tree, content.mark))),
            Err(problems) => say(notes, content.mark, &problems.to_string()),
        }
        if let Err(problems) = inner.into_result(()) {
            say(notes, content.mark, &problems.to_string());
        }
    }
    let is_own = |tree: &Node| text(tree, "kind").is_some_and(|kind| OWN.contains(&kind.as_str()));
    for tree in found.iter().filter(|tree| !is_own(tree)) {
        let why = format!(
            "only documents of the kinds {} belong there; write all others beside it",
            OWN.join(" and ")
        );
        say(notes, tree.mark, &why);
    }
    found.retain(is_own);
    found
}

fn say(notes: &mut Notes, mark: Mark, why: &str) {
    let message = format!("{CARRIER} {SERVICE}: in the content of a file: {why}");
    notes.add(mark, "configFiles", message);
}

/// The tree with this place instead of places in a text of its own.
fn at(tree: Node, mark: Mark) -> Node {
    let content = match tree.content {
        Content::List(items) => {
            Content::List(items.into_iter().map(|item| at(item, mark)).collect())
        }
        Content::Map(entries) => {
            let entries = entries.into_iter().map(|(mut key, value)| {
                key.mark = mark;
                (key, at(value, mark))
            });
            Content::Map(entries.collect())
        }
        scalar @ Content::Scalar { .. } => scalar,
    };
    Node { mark, content }
}
