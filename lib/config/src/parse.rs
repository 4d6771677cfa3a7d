//! Parsing and checking of a config.

use std::borrow::Cow;

use corten_yaml::problem::{Notes, Problems, printable};
use corten_yaml::read::{Reader, Value};
use corten_yaml::stream;
use corten_yaml::table::{self, Support};
use corten_yaml::tree::Node;

use crate::carried;
use crate::conflicts;
use crate::document::Document;
use crate::forms;
use crate::identity::identity;
use crate::kinds::{self, AnyKind};
use crate::registries;
use crate::v1alpha1::V1Alpha1;

impl Document {
    /// Parses and checks a document, or a stream of them.
    ///
    /// # Errors
    /// All problems, with line and column.
    pub fn parse(bytes: &[u8]) -> Result<Document, Problems> {
        Document::read(bytes, false)
    }

    /// `all`: fields that are known but not supported yet are accepted too.
    pub(crate) fn read(bytes: &[u8], all: bool) -> Result<Document, Problems> {
        let mut notes = Notes::default();
        let (text, trees) = stream::read_some(bytes, &mut notes)?;
        let mut root = None;
        let mut found = Vec::new();
        let carried = carried::documents(&trees, &mut notes);
        let every: Cow<'_, [Node]> = match carried.is_empty() {
            true => Cow::Borrowed(&trees),
            false => trees.iter().chain(&carried).cloned().collect(),
        };
        for node in every.iter() {
            let mut reader = Reader::new(&mut notes, all);
            match node.get("kind").and_then(Node::text) {
                None if root.is_none() => {
                    root = Some(V1Alpha1::read(node, &mut reader).unwrap_or_default());
                }
                None => notes.add(node.mark, "", "a second document without a kind"),
                Some(kind) => {
                    // Lines are counted in the whole stream, which a client may have assembled from parts.
                    let which = printable(&identity(node).to_string());
                    reader.notes.subject = format!("{which}: ");
                    found.extend(read_kind(kind, node, &mut reader));
                    reader.notes.subject.clear();
                }
            }
        }
        conflicts::check(&every, &mut notes);
        registries::check(&trees, &mut notes);
        kinds::check_hardware(&trees, &mut notes);
        if root.is_none() && notes.is_empty() {
            let message = "no v1alpha1 document (the one with version and machine)";
            return Err(Problems::one(Default::default(), message));
        }
        let root = root.unwrap_or_default();
        let document = Document::new(root, found, text.to_owned(), trees);
        forms::check(&document, &mut notes);
        notes.into_result(document)
    }
}

fn read_kind(kind: &str, node: &Node, reader: &mut Reader<'_>) -> Option<AnyKind> {
    let mark = node.get("kind").map_or(node.mark, |kind| kind.mark);
    let Some(info) = kinds::kind(kind) else {
        let names = kinds::KINDS
            .iter()
            .chain(kinds::KNOWN)
            .map(|info| info.name);
        let hint = table::nearest(kind, names)
            .map_or_else(String::new, |name| format!("; did you mean {name:?}?"));
        let message = format!("unknown kind: {}{hint}", printable(kind));
        reader.notes.add(mark, "kind", message);
        return None;
    };
    if node.get("apiVersion").and_then(Node::text) != Some("v1alpha1") {
        reader.wrong_in(node, "apiVersion", "must be v1alpha1");
    }
    let read = kinds::KINDS.iter().any(|known| known.name == info.name);
    if info.support == Support::Later && !(read && reader.reads(Support::Later)) {
        let message = format!("not supported yet: documents of kind {}", info.name);
        reader.notes.add(mark, "kind", message);
        return None;
    }
    kinds::read_kind(info.name, node, reader)
}
