//! Changes to a config: documents to merge into it, or JSON patches (RFC 6902).

mod json;
mod merge;

use corten_yaml::emit;
use corten_yaml::problem::{Notes, Problems};
use corten_yaml::stream;
use corten_yaml::tree::{Content, Node};

/// A parsed patch.
pub struct Patch(Form);

enum Form {
    /// Documents to merge, each into the one of its kind and name.
    Merge(Vec<Node>),
    /// Operations on a config of a single document.
    Json(Vec<json::Operation>),
}

impl std::fmt::Debug for Patch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self.0 {
            Form::Merge(_) => "Patch (merge)",
            Form::Json(_) => "Patch (JSON)",
        })
    }
}

impl Patch {
    /// Parses a patch: a list is a JSON patch (in JSON or YAML), anything else is a stream of documents to merge.
    ///
    /// # Errors
    /// All problems of its form, with line and column.
    pub fn parse(bytes: &[u8]) -> Result<Patch, Problems> {
        let mut notes = Notes::default();
        let (_, trees) = stream::read_some(bytes, &mut notes)?;
        let form = match trees.as_slice() {
            [
                Node {
                    content: Content::List(items),
                    ..
                },
            ] => Form::Json(
                items
                    .iter()
                    .filter_map(|item| json::operation(item, &mut notes))
                    .collect(),
            ),
            _ => {
                for tree in &trees {
                    merge::check(tree, &mut notes);
                }
                Form::Merge(trees)
            }
        };
        notes.into_result(Patch(form))
    }
}

/// Applies patches in order. It does not validate the result; use [`corten_config::Document::parse`] for that. Comments are
/// dropped.
///
/// # Errors
/// The problems of the config's form, or the reason why a patch does not apply.
pub fn patch(config: &[u8], patches: &[Patch]) -> Result<String, Problems> {
    let mut notes = Notes::default();
    let (text, mut trees) = stream::read_some(config, &mut notes)?;
    let text = text.to_owned();
    notes.into_result(())?;
    if patches.is_empty() {
        return Ok(text);
    }
    for patch in patches {
        let mut notes = Notes::default();
        match &patch.0 {
            Form::Merge(documents) => {
                for document in documents {
                    merge::document(&mut trees, document);
                }
            }
            Form::Json(operations) => match trees.as_mut_slice() {
                [tree] => json::apply(tree, operations, &mut notes),
                _ => notes.add(
                    Default::default(),
                    "",
                    "a JSON patch needs a config of one document; use a patch to merge",
                ),
            },
        }
        notes.into_result(())?;
    }
    Ok(emit::stream(&trees))
}
