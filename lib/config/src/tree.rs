//! YAML as a tree that remembers where everything stood.
//!
//! Built from the parser's events, not through serde: all problems are wanted
//! at once, and a scalar's own text (`0123`, `yes`, `1.10`) must survive.

use std::collections::HashMap;

use serde_saphyr::granit_parser::{Event, Parser, ScalarStyle, Span};

use crate::problem::{Mark, Notes};

/// Nesting beyond this is refused: the deepest real field is below 12.
const MAX_DEPTH: usize = 64;
/// Nodes beyond this are refused, which also bounds what aliases can unfold.
const MAX_NODES: usize = 200_000;

/// A value with its place.
#[derive(Debug, Clone)]
pub(crate) struct Node {
    pub(crate) mark: Mark,
    pub(crate) kind: Kind,
}

#[derive(Debug, Clone)]
pub(crate) enum Kind {
    /// `plain` when written without quotes.
    Scalar {
        text: String,
        plain: bool,
    },
    List(Vec<Node>),
    Map(Vec<(Key, Node)>),
}

#[derive(Debug, Clone)]
pub(crate) struct Key {
    pub(crate) mark: Mark,
    pub(crate) name: String,
}

impl Node {
    /// The value under a key, when this is a map that has it and it is not null.
    pub(crate) fn get(&self, name: &str) -> Option<&Node> {
        let Kind::Map(entries) = &self.kind else {
            return None;
        };
        entries
            .iter()
            .find(|(key, _)| key.name == name)
            .map(|(_, v)| v)
            .filter(|v| !v.is_null())
    }

    /// The value at a dotted path.
    pub(crate) fn at(&self, path: &str) -> Option<&Node> {
        path.split('.').try_fold(self, |node, name| node.get(name))
    }

    /// A scalar's text.
    pub(crate) fn text(&self) -> Option<&str> {
        match &self.kind {
            Kind::Scalar { text, .. } if !self.is_null() => Some(text),
            _ => None,
        }
    }

    /// The texts of a list of scalars.
    pub(crate) fn texts(&self) -> Vec<(&str, Mark)> {
        let Kind::List(items) = &self.kind else {
            return Vec::new();
        };
        items
            .iter()
            .filter_map(|item| Some((item.text()?, item.mark)))
            .collect()
    }

    pub(crate) fn is_null(&self) -> bool {
        matches!(&self.kind, Kind::Scalar { text, plain: true }
            if matches!(text.as_str(), "" | "~" | "null" | "Null" | "NULL"))
    }

    /// Whether the value asks for nothing: null, `""`, `[]`, `{}`.
    pub(crate) fn is_empty(&self) -> bool {
        match &self.kind {
            Kind::Scalar { text, .. } => text.is_empty() || self.is_null(),
            Kind::List(items) => items.is_empty(),
            Kind::Map(entries) => entries.is_empty(),
        }
    }

    fn size(&self) -> usize {
        1 + match &self.kind {
            Kind::Scalar { .. } => 0,
            Kind::List(items) => items.iter().map(Node::size).sum(),
            Kind::Map(entries) => entries.iter().map(|(_, v)| 1 + v.size()).sum(),
        }
    }
}

/// A container whose end has not been read.
struct Open {
    node: Node,
    /// The key that waits for its value.
    key: Option<Key>,
    anchor: usize,
}

/// Reads every document of a stream. `None` for a document that is empty. A
/// syntax error ends the reading and is in `notes`.
pub(crate) fn read(text: &str, notes: &mut Notes) -> Vec<Option<Node>> {
    let mut builder = Builder::default();
    for event in Parser::new_from_str(text) {
        let outcome = match event {
            Ok((event, span)) => builder.take(event, &span, notes),
            Err(error) => {
                let at = error.marker();
                Err((
                    Mark {
                        line: at.line(),
                        column: at.col() + 1,
                    },
                    error.to_string(),
                ))
            }
        };
        if let Err((mark, message)) = outcome {
            notes.add(mark, "", message);
            break;
        }
    }
    builder.documents
}

#[derive(Default)]
struct Builder {
    documents: Vec<Option<Node>>,
    open: Vec<Open>,
    anchors: HashMap<usize, Node>,
    nodes: usize,
}

type Refusal = (Mark, String);

impl Builder {
    fn take(&mut self, event: Event<'_>, span: &Span, notes: &mut Notes) -> Result<(), Refusal> {
        let mark = Mark {
            line: span.start.line(),
            column: span.start.col() + 1,
        };
        match event {
            Event::DocumentStart(..) => {
                self.documents.push(None);
                self.anchors.clear();
            }
            Event::Scalar(text, style, anchor, _) => {
                let plain = style == ScalarStyle::Plain;
                let node = Node {
                    mark,
                    kind: Kind::Scalar {
                        text: text.into_owned(),
                        plain,
                    },
                };
                self.count(1, mark)?;
                self.place(node, anchor, notes)?;
            }
            Event::SequenceStart(_, anchor, _) => self.begin(mark, Kind::List(vec![]), anchor)?,
            Event::MappingStart(_, anchor, _) => self.begin(mark, Kind::Map(vec![]), anchor)?,
            Event::SequenceEnd | Event::MappingEnd => {
                if let Some(open) = self.open.pop() {
                    self.place(open.node, open.anchor, notes)?;
                }
            }
            Event::Alias(anchor) => {
                let unfinished = || (mark, "an alias to what contains it".to_owned());
                let node = self.anchors.get(&anchor).cloned().ok_or_else(unfinished)?;
                self.count(node.size(), mark)?;
                self.place(node, 0, notes)?;
            }
            _ => {}
        }
        Ok(())
    }

    fn count(&mut self, more: usize, mark: Mark) -> Result<(), Refusal> {
        self.nodes = self.nodes.saturating_add(more);
        if self.nodes > MAX_NODES {
            return Err((mark, format!("more than {MAX_NODES} values")));
        }
        Ok(())
    }

    fn begin(&mut self, mark: Mark, kind: Kind, anchor: usize) -> Result<(), Refusal> {
        self.count(1, mark)?;
        if self.open.len() >= MAX_DEPTH {
            return Err((mark, format!("nested more than {MAX_DEPTH} deep")));
        }
        self.open.push(Open {
            node: Node { mark, kind },
            key: None,
            anchor,
        });
        Ok(())
    }

    /// Puts a finished node where it belongs.
    fn place(&mut self, node: Node, anchor: usize, notes: &mut Notes) -> Result<(), Refusal> {
        if anchor != 0 {
            self.anchors.insert(anchor, node.clone());
            self.count(node.size(), node.mark)?;
        }
        let Some(parent) = self.open.last_mut() else {
            if let Some(document) = self.documents.last_mut() {
                *document = (!node.is_null()).then_some(node);
            }
            return Ok(());
        };
        match (&mut parent.node.kind, parent.key.take()) {
            (Kind::List(items), _) => items.push(node),
            (Kind::Map(entries), Some(key)) => {
                if entries.iter().any(|(known, _)| known.name == key.name) {
                    notes.add(
                        key.mark,
                        "",
                        format!("the field {:?} stands twice", key.name),
                    );
                } else {
                    entries.push((key, node));
                }
            }
            (Kind::Map(_), None) => match node.kind {
                Kind::Scalar { text, .. } => {
                    parent.key = Some(Key {
                        mark: node.mark,
                        name: text,
                    });
                }
                _ => return Err((node.mark, "a field's name must be text".to_owned())),
            },
            (Kind::Scalar { .. }, _) => {}
        }
        Ok(())
    }
}
