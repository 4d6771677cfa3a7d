//! The types of the tables that define fields, their content and their support. The tables themselves are the
//! [`section!`](crate::section!) blocks of the documents; a struct and its table come from the same lines.

/// Support of a field by the node.
///
/// The tables of fields are the only place that states it, and `docs/configuration.md` is generated from them. A field
/// outside of the tables is an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Support {
    /// The node acts on it.
    Acted,
    /// The node keeps it for a later part.
    Held,
    /// The node refuses it.
    Later,
}

/// The content of a field.
#[derive(Debug, Clone, Copy)]
pub enum Shape {
    /// A scalar, described in a few words ("an IP address").
    Text(&'static str),
    /// One of these words.
    Choice(&'static [&'static str]),
    /// An unquoted number or boolean, with a description.
    Plain(&'static str),
    /// A scalar that must never be shown.
    Secret,
    /// Any value, for another program.
    Object,
    /// A map from arguments to a text, or to a list of texts. A patch replaces an argument as a whole.
    Arguments,
    /// A map with these fields.
    Fields(&'static [Field]),
    /// A list of one shape.
    List(&'static Shape),
    /// A map from free names to one shape.
    Map(&'static Shape),
}

/// Merging of a list with a patch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Merge {
    /// Items are appended; maps are merged.
    Append,
    /// The patch's value replaces the old one.
    Replace,
    /// Items with the same value of a key are merged: the first of these keys that they have.
    By(&'static [&'static str]),
}

/// A field of a map.
#[derive(Debug, Clone, Copy)]
pub struct Field {
    /// Name in the document. Empty: the fields of `shape` are embedded here.
    pub name: &'static str,
    /// Description.
    pub doc: &'static str,
    /// Content.
    pub shape: Shape,
    /// Support by the node.
    pub support: Support,
    /// Whether it, or anything in it, is secret.
    pub secret: bool,
    /// Whether it is required.
    pub required: bool,
    /// Whether `{}` has a meaning.
    pub even_empty: bool,
    /// Merging with a patch.
    pub merge: Merge,
    /// The alternative that a refusal names; empty: none.
    pub remedy: &'static str,
}

impl Field {
    /// A field with the defaults.
    #[must_use]
    pub const fn new(
        name: &'static str,
        doc: &'static str,
        shape: Shape,
        support: Support,
    ) -> Field {
        Field {
            name,
            doc,
            shape,
            support,
            secret: matches!(shape, Shape::Secret),
            required: false,
            even_empty: false,
            merge: Merge::Append,
            remedy: "",
        }
    }

    /// A field known by name only.
    #[must_use]
    pub const fn known(name: &'static str) -> Field {
        Field::new(name, "", Shape::Object, Support::Later)
    }

    /// Embeds the fields of another table.
    #[must_use]
    pub const fn embedded(fields: &'static [Field]) -> Field {
        Field::new("", "", Shape::Fields(fields), Support::Acted)
    }

    /// Makes it, or anything in it, secret.
    #[must_use]
    pub const fn secret(mut self) -> Field {
        self.secret = true;
        self
    }

    /// Makes it required.
    #[must_use]
    pub const fn required(mut self) -> Field {
        self.required = true;
        self
    }

    /// Gives `{}` a meaning.
    #[must_use]
    pub const fn even_empty(mut self) -> Field {
        self.even_empty = true;
        self
    }

    /// Lets a patch replace the whole list.
    #[must_use]
    pub const fn replace(mut self) -> Field {
        self.merge = Merge::Replace;
        self
    }

    /// Lets a patch merge items with the same value of one of these keys.
    #[must_use]
    pub const fn by(mut self, keys: &'static [&'static str]) -> Field {
        self.merge = Merge::By(keys);
        self
    }

    /// Adds an alternative to the refusal of an unsupported field.
    #[must_use]
    pub const fn remedy(mut self, remedy: &'static str) -> Field {
        self.remedy = remedy;
        self
    }
}

/// The fields of a table, including embedded ones.
pub fn fields(table: &'static [Field]) -> impl Iterator<Item = &'static Field> {
    let embedded = |field: &'static Field| match field.shape {
        Shape::Fields(inner) if field.name.is_empty() => inner,
        _ => std::slice::from_ref(field),
    };
    table.iter().flat_map(embedded)
}

/// The field with a name.
#[must_use]
pub fn find(table: &'static [Field], name: &str) -> Option<&'static Field> {
    fields(table).find(|field| field.name == name)
}

/// The closest known name, at most one or two edits away.
#[must_use]
pub fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    if name.len() > 64 {
        return None;
    }
    let near = |candidate: &&str| {
        let limit = if candidate.len() > 4 { 2 } else { 1 };
        candidate.eq_ignore_ascii_case(name) || distance(name, candidate) <= limit
    };
    known.filter(near).min_by_key(|n| distance(name, n))
}

/// Levenshtein distance of two short names.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut next = vec![i + 1];
        for ((j, y), pair) in b.iter().enumerate().zip(row.windows(2)) {
            let [corner, above] = pair else { continue };
            let left = next.get(j).copied().unwrap_or_default();
            next.push((left + 1).min(above + 1).min(corner + usize::from(x != *y)));
        }
        row = next;
    }
    row.last().copied().unwrap_or_default()
}
