//! YAML as a tree with the position of every value.
//!
//! It is built from the parser's events instead of serde. All problems must be reported at once, and the text of a
//! scalar (`0123`, `yes`, `1.10`) must survive.

use std::collections::{HashMap, HashSet};

use serde_saphyr::granit_parser::{Event, Parser, ScalarStyle, Span, Tag};

use crate::problem::{Mark, Notes};

/// Limit of the nesting; the deepest real field is below 12.
const MAX_DEPTH: usize = 64;
/// Limit of nodes, which also bounds the expansion of aliases.
const MAX_NODES: usize = 200_000;
/// Limit of the bytes of all scalars, after the expansion of aliases.
const MAX_BYTES: usize = 4 * crate::MAX_SIZE;

/// A value with its position. Equality ignores the position.
#[derive(Clone)]
pub struct Node {
    /// Where it begins.
    pub mark: Mark,
    /// Its value.
    pub content: Content,
}

/// The content of a value.
#[derive(Debug, Clone)]
pub enum Content {
    /// A scalar; `plain` when it has no quotes.
    Scalar {
        /// Its text, without quotes.
        text: String,
        /// Whether it has no quotes.
        plain: bool,
    },
    /// A list.
    List(Vec<Node>),
    /// A map, in the order of the text.
    Map(Vec<(Key, Node)>),
}

/// The name of a field with its position.
#[derive(Debug, Clone)]
pub struct Key {
    /// Where it begins.
    pub mark: Mark,
    /// Its text.
    pub name: String,
}

impl PartialEq for Node {
    fn eq(&self, other: &Node) -> bool {
        match (&self.content, &other.content) {
            (Content::Scalar { text, .. }, Content::Scalar { text: theirs, .. }) => {
                text == theirs && self.is_text() == other.is_text()
            }
            (Content::List(items), Content::List(theirs)) => items == theirs,
            (Content::Map(entries), Content::Map(theirs)) => {
                entries.len() == theirs.len()
                    && entries
                        .iter()
                        .all(|(key, value)| other.entry(&key.name) == Some(value))
            }
            _ => false,
        }
    }
}

/// A config is secret, so not even a panic message may show it.
impl std::fmt::Debug for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Node at {}:{}", self.mark.line, self.mark.column)
    }
}

impl Node {
    /// A value without a position in a text.
    #[must_use]
    pub fn new(content: Content) -> Node {
        Node {
            mark: Mark::default(),
            content,
        }
    }

    /// The value of a key, if this is a map that has it.
    #[must_use]
    pub fn entry(&self, name: &str) -> Option<&Node> {
        let (_, value) = self.entries().iter().find(|(key, _)| key.name == name)?;
        Some(value)
    }

    /// The value of a key, if this is a map that has it and the value is not null.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Node> {
        self.entry(name).filter(|value| !value.is_null())
    }

    /// Whether this is a map with a non-empty value of the key. Empty values count as absent.
    #[must_use]
    pub fn given(&self, name: &str) -> bool {
        self.entry(name).is_some_and(|value| !value.is_empty())
    }

    /// The fields of a map; empty for anything else.
    #[must_use]
    pub fn entries(&self) -> &[(Key, Node)] {
        match &self.content {
            Content::Map(entries) => entries,
            _ => &[],
        }
    }

    /// The items of a list; empty for anything else.
    #[must_use]
    pub fn items(&self) -> &[Node] {
        match &self.content {
            Content::List(items) => items,
            _ => &[],
        }
    }

    /// The text of a scalar.
    #[must_use]
    pub fn text(&self) -> Option<&str> {
        match &self.content {
            Content::Scalar { text, .. } if !self.is_null() => Some(text),
            _ => None,
        }
    }

    /// Whether this is null, in any spelling.
    #[must_use]
    pub fn is_null(&self) -> bool {
        matches!(&self.content, Content::Scalar { text, plain: true }
            if matches!(text.as_str(), "" | "~" | "null" | "Null" | "NULL"))
    }

    /// Whether a scalar is text by YAML's core schema, not a number, a boolean or null.
    fn is_text(&self) -> bool {
        match &self.content {
            Content::Scalar { text, plain } => !plain || reads_as_text(text),
            _ => false,
        }
    }

    /// Whether the value is empty: null, `""`, `[]`, `{}`.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        match &self.content {
            Content::Scalar { text, .. } => text.is_empty() || self.is_null(),
            Content::List(items) => items.is_empty(),
            Content::Map(entries) => entries.is_empty(),
        }
    }

    /// Depth of the tree, including the root.
    fn depth(&self) -> usize {
        let below = match &self.content {
            Content::Scalar { .. } => None,
            Content::List(items) => items.iter().map(Node::depth).max(),
            Content::Map(entries) => entries.iter().map(|(_, value)| value.depth()).max(),
        };
        1 + below.unwrap_or_default()
    }

    /// Number of nodes and bytes in the tree.
    fn size(&self) -> (usize, usize) {
        let sum = |(nodes, bytes): (usize, usize), (n, b): (usize, usize)| (nodes + n, bytes + b);
        match &self.content {
            Content::Scalar { text, .. } => (1, text.len()),
            Content::List(items) => items.iter().map(Node::size).fold((1, 0), sum),
            Content::Map(entries) => entries
                .iter()
                .map(|(key, value)| sum((1, key.name.len()), value.size()))
                .fold((1, 0), sum),
        }
    }
}

/// Whether YAML 1.2's core schema reads a plain scalar as text.
#[must_use]
pub fn reads_as_text(text: &str) -> bool {
    let words = [
        "", "~", "null", "Null", "NULL", "true", "True", "TRUE", "false", "False", "FALSE", ".inf",
        ".Inf", ".INF", ".nan", ".NaN", ".NAN",
    ];
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    let hex = text
        .strip_prefix("0x")
        .is_some_and(|digits| !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_hexdigit()));
    let octal = text.strip_prefix("0o").is_some_and(|digits| {
        !digits.is_empty() && digits.bytes().all(|b| matches!(b, b'0'..=b'7'))
    });
    let numeric = |b: u8| b.is_ascii_digit() || matches!(b, b'.' | b'e' | b'E' | b'+' | b'-');
    let float = unsigned.bytes().all(numeric)
        && unsigned.starts_with(|c: char| c.is_ascii_digit() || c == '.')
        && unsigned.parse::<f64>().is_ok();
    !(words.contains(&text) || words.contains(&unsigned) || hex || octal || float)
}

/// Remaining room of a tree within the limits of parsing.
#[derive(Debug)]
pub struct Budget {
    nodes: usize,
    bytes: usize,
}

impl Default for Budget {
    fn default() -> Budget {
        Budget {
            nodes: MAX_NODES,
            bytes: MAX_BYTES,
        }
    }
}

impl Budget {
    /// Takes the room of a value at depth `depth`.
    ///
    /// # Errors
    /// The limit that the value exceeds.
    pub fn pay(&mut self, value: &Node, depth: usize) -> Result<(), String> {
        if depth + value.depth() > MAX_DEPTH {
            return Err(too_deep());
        }
        let (nodes, bytes) = value.size();
        let rest = self
            .nodes
            .checked_sub(nodes)
            .zip(self.bytes.checked_sub(bytes));
        let (nodes, bytes) = rest.ok_or_else(|| format!("more than {MAX_NODES} values"))?;
        *self = Budget { nodes, bytes };
        Ok(())
    }
}

/// A container that is still being parsed.
struct Open {
    node: Node,
    /// Key without its value.
    key: Option<Key>,
    /// Keys of a map so far.
    seen: HashSet<String>,
    anchor: usize,
}

/// Parses every document of a stream. `None` for an empty document. A syntax error ends the parsing and is in `notes`.
pub fn read(text: &str, notes: &mut Notes) -> Vec<Option<Node>> {
    let mut builder = Builder::default();
    for event in Parser::new_from_str(text) {
        let outcome = match event {
            Ok((event, span)) => builder.take(event, &span, notes),
            Err(error) => {
                let at = error.marker();
                let mark = Mark {
                    line: at.line(),
                    column: at.col() + 1,
                };
                Err((mark, not_yaml(&error.info())))
            }
        };
        if let Err((mark, message)) = outcome {
            notes.add(mark, "", message);
            break;
        }
    }
    builder.documents
}

/// The parser's message, except for its limit of depth, which it checks before ours.
fn not_yaml(info: &str) -> String {
    if info.contains("recursion limit") {
        return too_deep();
    }
    format!("not YAML: {info}")
}

fn too_deep() -> String {
    format!("nested more than {MAX_DEPTH} deep")
}

#[derive(Default)]
struct Builder {
    documents: Vec<Option<Node>>,
    open: Vec<Open>,
    anchors: HashMap<usize, Node>,
    nodes: usize,
    bytes: usize,
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
            Event::Scalar(text, style, anchor, tag) => {
                self.count((1, text.len()), mark)?;
                let quoted = is_string(tag.as_deref(), mark)?;
                let content = Content::Scalar {
                    text: text.into_owned(),
                    plain: style == ScalarStyle::Plain && !quoted,
                };
                self.place(Node { mark, content }, anchor, notes)?;
            }
            Event::SequenceStart(_, anchor, tag) => {
                is_string(tag.as_deref(), mark)?;
                self.begin(mark, Content::List(vec![]), anchor)?;
            }
            Event::MappingStart(_, anchor, tag) => {
                is_string(tag.as_deref(), mark)?;
                self.begin(mark, Content::Map(vec![]), anchor)?;
            }
            Event::SequenceEnd | Event::MappingEnd => {
                if let Some(open) = self.open.pop() {
                    self.place(open.node, open.anchor, notes)?;
                }
            }
            Event::Alias(anchor) => {
                let unfinished = || (mark, "an alias to a node that contains it".to_owned());
                let size = self.anchors.get(&anchor).ok_or_else(unfinished)?.size();
                self.count(size, mark)?;
                if let Some(node) = self.anchors.get(&anchor).cloned() {
                    self.place(node, 0, notes)?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Counts nodes and bytes, before anything is copied.
    fn count(&mut self, (nodes, bytes): (usize, usize), mark: Mark) -> Result<(), Refusal> {
        self.nodes = self.nodes.saturating_add(nodes);
        self.bytes = self.bytes.saturating_add(bytes);
        if self.nodes > MAX_NODES {
            return Err((mark, format!("more than {MAX_NODES} values")));
        }
        if self.bytes > MAX_BYTES {
            let most = MAX_BYTES / 1024 / 1024;
            return Err((mark, format!("its values take more than {most} MiB")));
        }
        Ok(())
    }

    fn begin(&mut self, mark: Mark, content: Content, anchor: usize) -> Result<(), Refusal> {
        self.count((1, 0), mark)?;
        if self.open.len() >= MAX_DEPTH {
            return Err((mark, too_deep()));
        }
        self.open.push(Open {
            node: Node { mark, content },
            key: None,
            seen: HashSet::new(),
            anchor,
        });
        Ok(())
    }

    /// Attaches a finished node to its parent.
    fn place(&mut self, node: Node, anchor: usize, notes: &mut Notes) -> Result<(), Refusal> {
        if anchor != 0 {
            self.count(node.size(), node.mark)?;
            self.anchors.insert(anchor, node.clone());
        }
        let Some(parent) = self.open.last_mut() else {
            if let Some(document) = self.documents.last_mut() {
                *document = (!node.is_null()).then_some(node);
            }
            return Ok(());
        };
        match (&mut parent.node.content, parent.key.take()) {
            (Content::List(items), _) => items.push(node),
            (Content::Map(entries), Some(key)) => {
                if parent.seen.insert(key.name.clone()) {
                    entries.push((key, node));
                } else {
                    let name = crate::problem::printable(&key.name);
                    notes.add(key.mark, "", format!("the field {name:?} is given twice"));
                }
            }
            (Content::Map(_), None) => match node.content {
                Content::Scalar { text, plain: true } if text == "<<" => {
                    return Err((node.mark, "merge keys (<<) are not supported".to_owned()));
                }
                Content::Scalar { text, .. } => {
                    parent.key = Some(Key {
                        mark: node.mark,
                        name: text,
                    });
                }
                _ => return Err((node.mark, "a field's name must be text".to_owned())),
            },
            (Content::Scalar { .. }, _) => {}
        }
        Ok(())
    }
}

/// Whether a tag makes a plain scalar a string. Other tags are refused, because their meaning would be lost.
fn is_string(tag: Option<&Tag>, mark: Mark) -> Result<bool, Refusal> {
    let Some(tag) = tag else { return Ok(false) };
    match (tag.handle(), tag.suffix(), tag.core_suffix()) {
        ("!", "", _) | ("", "!", _) | (_, _, Some("str")) => Ok(true),
        (_, _, Some("int" | "bool" | "float" | "null" | "map" | "seq")) => Ok(false),
        _ => Err((mark, "YAML tags are not supported".to_owned())),
    }
}
