//! Converts a tree to structs, and reports every problem on the way.
//!
//! [`section!`](crate::section!) declares a struct and its table in one block, with a line per field: `SUPPORT "name" field: Type =
//! "Description", flag, flag;`. SUPPORT is a variant of `Support`, and a flag is a function of `Field`.

use std::collections::BTreeMap;

use crate::problem::{Mark, Notes, printable};
use crate::table::{self, Field, Shape, Support};
use crate::tree::{Content, Node};

/// State of a conversion: the position and the problems.
#[derive(Debug)]
pub struct Reader<'a> {
    /// The problems so far.
    pub notes: &'a mut Notes,
    path: String,
    /// Whether unsupported fields are accepted too.
    all: bool,
}

impl<'a> Reader<'a> {
    /// A reader at the root of a document. `all`: unsupported fields are accepted too.
    pub fn new(notes: &'a mut Notes, all: bool) -> Reader<'a> {
        Reader {
            notes,
            path: String::new(),
            all,
        }
    }

    /// Whether a field with this support is read.
    #[must_use]
    pub fn reads(&self, support: Support) -> bool {
        self.all || support != Support::Later
    }

    /// Runs `read` with one more step in the path.
    pub fn within<T>(&mut self, step: &str, read: impl FnOnce(&mut Self) -> T) -> T {
        let length = self.path.len();
        if length > 0 && !step.starts_with('[') {
            self.path.push('.');
        }
        self.path.push_str(step);
        let value = read(self);
        self.path.truncate(length);
        value
    }

    /// Reports a problem at this path: `PATH WHAT`, such as "machine.type must be ...".
    pub fn wrong(&mut self, mark: Mark, what: &str) {
        let path = if self.path.is_empty() {
            "the document".to_owned()
        } else {
            printable(&self.path)
        };
        self.notes.add(mark, &self.path, format!("{path} {what}"));
    }

    /// Reports a setting at this path that has no effect; `false`: the document may not have such.
    pub fn leave_out(&mut self, mark: Mark, why: &str) -> bool {
        let text = format!("{} {why}", printable(&self.path));
        self.notes.leave_out(mark, &text)
    }

    /// Reports a field of the section `node` that has no effect.
    pub fn leave_out_in(&mut self, node: &Node, field: &str, why: &str) {
        let mark = node.entry(field).map_or(node.mark, |value| value.mark);
        self.within(field, |reader| reader.leave_out(mark, why));
    }

    /// Reports a problem of a field of the section `node`, whether the field exists or not.
    pub fn wrong_in(&mut self, node: &Node, field: &str, what: &str) {
        let mark = node.entry(field).map_or(node.mark, |value| value.mark);
        self.within(field, |reader| reader.wrong(mark, what));
    }
}

/// A field's value. `read` returns `None` after it has reported a problem.
pub trait Value: Sized {
    /// Its content, for the table.
    const SHAPE: Shape;
    /// Reads the value.
    fn read(node: &Node, reader: &mut Reader<'_>) -> Option<Self>;
}

/// A map with a table; [`section!`](crate::section!) implements it.
pub trait Section: Default {
    /// Description in one line.
    const DOC: &'static str;
    /// Its fields.
    const TABLE: &'static [Field];
    /// Reads one field; `false` when the table does not have it.
    fn set(&mut self, name: &str, value: &Node, reader: &mut Reader<'_>) -> bool;
    /// Checks conditions between fields.
    fn check(&self, node: &Node, reader: &mut Reader<'_>);
}

/// Reads a section from a map. Names in `skip` belong to another reader.
pub fn read_section<S: Section>(node: &Node, skip: &[&str], reader: &mut Reader<'_>) -> Option<S> {
    let Content::Map(entries) = &node.content else {
        reader.wrong(node.mark, "must be a map of fields");
        return None;
    };
    let mut section = S::default();
    for (key, value) in entries
        .iter()
        .filter(|(key, _)| !skip.contains(&key.name.as_str()))
    {
        reader.within(&key.name, |reader| {
            let Some(field) = table::find(S::TABLE, &key.name) else {
                return unknown(key.mark, &key.name, S::TABLE, reader);
            };
            if value.is_null() || (value.is_empty() && !field.even_empty) {
                // An empty value is ignored.
            } else if reader.reads(field.support) {
                section.set(&key.name, value, reader);
            } else if !reader.leave_out(key.mark, LEFT_OUT) {
                let path = reader.path.clone();
                let text = format!("not supported yet: {path}{}", field.remedy);
                reader.notes.add(key.mark, &path, text);
            }
        });
    }
    for field in table::fields(S::TABLE).filter(|field| field.required) {
        if !node.given(field.name) {
            reader.wrong_in(node, field.name, "is required");
        }
    }
    section.check(node, reader);
    Some(section)
}

fn unknown(mark: Mark, name: &str, known: &'static [Field], reader: &mut Reader<'_>) {
    let hint = if reader.notes.is_full() {
        None
    } else {
        table::nearest(name, table::fields(known).map(|field| field.name))
    };
    let hint = hint.map_or_else(String::new, |name| format!("; did you mean {name:?}?"));
    let path = reader.path.clone();
    reader.notes.add(
        mark,
        &path,
        format!("unknown field: {}{hint}", printable(&path)),
    );
}

/// A scalar that `parse` accepts; otherwise reports "must be WHAT".
pub fn scalar<T>(
    node: &Node,
    reader: &mut Reader<'_>,
    what: &str,
    parse: impl FnOnce(&str) -> Option<T>,
) -> Option<T> {
    let value = node.text().and_then(parse);
    if value.is_none() {
        reader.wrong(node.mark, &format!("must be {what}"));
    }
    value
}

impl<T: Value> Value for Option<T> {
    const SHAPE: Shape = T::SHAPE;
    fn read(node: &Node, reader: &mut Reader<'_>) -> Option<Self> {
        T::read(node, reader).map(Some)
    }
}

impl<T: Value> Value for Vec<T> {
    const SHAPE: Shape = Shape::List(&T::SHAPE);
    fn read(node: &Node, reader: &mut Reader<'_>) -> Option<Self> {
        let Content::List(items) = &node.content else {
            reader.wrong(node.mark, "must be a list");
            return None;
        };
        let mut values = Vec::new();
        for (index, item) in items.iter().enumerate() {
            let value = reader.within(&format!("[{index}]"), |reader| T::read(item, reader));
            values.extend(value);
        }
        Some(values)
    }
}

impl<T: Value + Default> Value for BTreeMap<String, T> {
    const SHAPE: Shape = Shape::Map(&T::SHAPE);
    fn read(node: &Node, reader: &mut Reader<'_>) -> Option<Self> {
        let Content::Map(entries) = &node.content else {
            reader.wrong(node.mark, "must be a map");
            return None;
        };
        let mut values = BTreeMap::new();
        for (key, item) in entries {
            let value = if item.is_empty() {
                Some(T::default())
            } else {
                reader.within(&key.name, |reader| T::read(item, reader))
            };
            values.extend(value.map(|value| (key.name.clone(), value)));
        }
        Some(values)
    }
}

/// Message of an unsupported setting that is left out.
pub const LEFT_OUT: &str = "is not supported yet, and is left out";

/// Declares a struct and its table (see the module documentation). `[f]` after the name: `f(&section, &node, &mut
/// reader)` reports fields that contradict each other.
#[macro_export]
macro_rules! section {
    (
        $(#[doc = $about:literal])*
        pub struct $name:ident $([$check:path])? {
            $( $support:ident $key:literal $field:ident : $kind:ty = $doc:literal $(, $flag:ident $(($argument:expr))? )* ; )*
            $( .. $embedded:ident : $inner:ty = $inner_doc:literal ; )?
        }
    ) => {
        $(#[doc = $about])*
        #[derive(Debug, Clone, Default, PartialEq)]
        pub struct $name {
            $( #[doc = $doc] pub $field: $kind, )*
            $( #[doc = $inner_doc] pub $embedded: $inner, )?
        }

        impl $crate::read::Section for $name {
            const DOC: &'static str = concat!($($about),*);
            const TABLE: &'static [$crate::table::Field] = &[
                $( $crate::table::Field::new(
                    $key, $doc, <$kind as $crate::read::Value>::SHAPE,
                    $crate::table::Support::$support,
                )$( .$flag($($argument)?) )*, )*
                $( $crate::table::Field::embedded(
                    <$inner as $crate::read::Section>::TABLE,
                ), )?
            ];

            fn set(
                &mut self,
                name: &str,
                value: &$crate::tree::Node,
                reader: &mut $crate::read::Reader<'_>,
            ) -> bool {
                let _ = (&value, &mut *reader);
                #[allow(clippy::match_single_binding, reason = "a section may have no field")]
                match name {
                    $( $key => {
                        if let Some(value) = $crate::read::Value::read(value, reader) {
                            self.$field = value;
                        }
                        true
                    } )*
                    $( _ if self.$embedded.set(name, value, reader) => true, )?
                    _ => false,
                }
            }

            fn check(&self, node: &$crate::tree::Node, reader: &mut $crate::read::Reader<'_>) {
                let _ = (node, &mut *reader);
                $( self.$embedded.check(node, reader); )?
                $( $check(self, node, reader); )?
            }
        }

        impl $crate::read::Value for $name {
            const SHAPE: $crate::table::Shape =
                $crate::table::Shape::Fields(<$name as $crate::read::Section>::TABLE);
            fn read(
                node: &$crate::tree::Node,
                reader: &mut $crate::read::Reader<'_>,
            ) -> Option<Self> {
                $crate::read::read_section(node, &[], reader)
            }
        }
    };
}

/// An enum whose variants are words.
pub trait Word: Copy + 'static {
    /// All variants.
    const ALL: &'static [Self];
    /// The word in a document.
    fn word(self) -> &'static str;
    /// The variant with this word.
    fn from_word(word: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|one| one.word() == word)
    }
}

/// Declares an enum and the words of its variants; the first variant is the default.
#[macro_export]
macro_rules! choices {
    (
        $(#[$attribute:meta])*
        pub enum $name:ident { $first:ident = $first_word:literal, $( $variant:ident = $word:literal, )* }
    ) => {
        $(#[$attribute])*
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
        pub enum $name {
            #[doc = concat!("`", $first_word, "`.")]
            #[default]
            $first,
            $( #[doc = concat!("`", $word, "`.")] $variant, )*
        }

        impl $crate::read::Word for $name {
            const ALL: &'static [$name] = &[$name::$first, $( $name::$variant, )*];
            fn word(self) -> &'static str {
                match self {
                    $name::$first => $first_word,
                    $( $name::$variant => $word, )*
                }
            }
        }

        impl $crate::read::Value for $name {
            const SHAPE: $crate::table::Shape =
                $crate::table::Shape::Choice(&[$first_word, $($word),*]);
            fn read(
                node: &$crate::tree::Node,
                reader: &mut $crate::read::Reader<'_>,
            ) -> Option<Self> {
                let words: &[&str] = &[$first_word, $($word),*];
                let what = format!("one of {}", words.join(", "));
                $crate::read::scalar(node, reader, &what, |text| match text {
                    $first_word => Some($name::$first),
                    $( $word => Some($name::$variant), )*
                    _ => None,
                })
            }
        }
    };
}
