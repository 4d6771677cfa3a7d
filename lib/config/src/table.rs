//! The form of the tables that say which fields there are, what they hold, and
//! whether we act on them. The tables themselves are the `section!` blocks of
//! `v1alpha1` and `kinds`; a struct and its table come from the same lines.

/// Whether the node does what a field says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Support {
    /// It does.
    Acted,
    /// It keeps it for a part that comes later (crate documentation).
    Held,
    /// It refuses it.
    Later,
}

/// What a field may hold.
#[derive(Debug, Clone, Copy)]
pub enum Shape {
    /// A scalar, described in a few words ("an IP address").
    Text(&'static str),
    /// One of these words.
    Choice(&'static [&'static str]),
    /// A number or a truth, described: written without quotes.
    Plain(&'static str),
    /// A scalar that must never be shown.
    Secret,
    /// Whatever its reader understands.
    Object,
    /// A map with these fields.
    Fields(&'static [Field]),
    /// A list of one shape.
    List(&'static Shape),
    /// A map from free names to one shape.
    Map(&'static Shape),
}

/// How a patch's list meets the config's (`patch`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Merge {
    /// Items are added at the end; maps are merged.
    Append,
    /// The patch's value stands instead of the old one.
    Replace,
    /// Items with the same value of the first of these keys they have are merged.
    By(&'static [&'static str]),
}

/// A field of a map.
#[derive(Debug, Clone, Copy)]
pub struct Field {
    /// Its name in the document. Empty: the fields of `shape` stand here.
    pub name: &'static str,
    /// What it is for.
    pub doc: &'static str,
    /// What it holds.
    pub shape: Shape,
    /// Whether we act on it.
    pub support: Support,
    /// Whether it, or anything in it, must never be shown.
    pub secret: bool,
    /// Whether it must be there.
    pub required: bool,
    /// Whether `{}` asks for something.
    pub even_empty: bool,
    /// How a patch changes it.
    pub merge: Merge,
}

impl Field {
    /// A field with nothing special about it.
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
        }
    }

    /// A field we know by name only.
    #[must_use]
    pub const fn known(name: &'static str) -> Field {
        Field::new(name, "", Shape::Object, Support::Later)
    }

    /// The fields of another table, standing in this one.
    pub(crate) const fn embedded(fields: &'static [Field]) -> Field {
        Field::new("", "", Shape::Fields(fields), Support::Acted)
    }

    pub(crate) const fn secret(mut self) -> Field {
        self.secret = true;
        self
    }

    pub(crate) const fn required(mut self) -> Field {
        self.required = true;
        self
    }

    pub(crate) const fn even_empty(mut self) -> Field {
        self.even_empty = true;
        self
    }

    pub(crate) const fn replace(mut self) -> Field {
        self.merge = Merge::Replace;
        self
    }

    pub(crate) const fn by(mut self, keys: &'static [&'static str]) -> Field {
        self.merge = Merge::By(keys);
        self
    }
}

/// The fields of a table, embedded ones among them.
pub fn fields(table: &'static [Field]) -> impl Iterator<Item = &'static Field> {
    let embedded = |field: &'static Field| match field.shape {
        Shape::Fields(inner) if field.name.is_empty() => inner,
        _ => std::slice::from_ref(field),
    };
    table.iter().flat_map(embedded)
}

/// The field of a name.
#[must_use]
pub fn find(table: &'static [Field], name: &str) -> Option<&'static Field> {
    fields(table).find(|field| field.name == name)
}

/// A known name one or two slips away.
pub(crate) fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
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
