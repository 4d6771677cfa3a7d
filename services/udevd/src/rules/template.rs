//! Values with substitutions: `disk/by-id/$env{ID_BUS}-$env{ID_SERIAL}-part%n`. No I/O.

use std::borrow::Cow;

/// A value, split into text and substitutions.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Template {
    pieces: Box<[Piece]>,
}

/// A piece of a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    /// Literal text.
    Text(Box<str>),
    /// `$kernel`, `%k`: kernel name of the device.
    Kernel,
    /// `$number`, `%n`: number at the end of the kernel name.
    Number,
    /// `$devpath`, `%p`: path of the device below `/sys`.
    Devpath,
    /// `$id`, `%b`: kernel name of the parent that the rule selected.
    Id,
    /// `$driver`, `%d`: driver of that parent.
    Driver,
    /// `$attr{file}`, `%s{file}`: attribute of the device, else of that parent.
    Attribute(Box<str>),
    /// `$env{key}`, `%E{key}`: a property.
    Env(Box<str>),
    /// `$major`, `%M`: major number of the node.
    Major,
    /// `$minor`, `%m`: minor number of the node.
    Minor,
    /// `$result`, `%c`: output of a program. Always empty.
    Result,
    /// `$parent`, `%P`: node of the parent.
    Parent,
    /// `$name`, `%D`: new name of the interface, or name of the node.
    Name,
    /// `$links`, `%L`: links assigned so far.
    Links,
    /// `$root`, `%r`: `/dev`.
    Root,
    /// `$sys`, `%S`: `/sys`.
    Sys,
    /// `$devnode`, `%N`: absolute path of the node.
    Devnode,
}

/// Long name, letter and kind. The first match wins, so a longer name comes before its prefixes.
static NAMES: [(&str, char, Kind); 20] = [
    ("devnode", 'N', Kind::Piece(Piece::Devnode)),
    ("tempnode", 'N', Kind::Piece(Piece::Devnode)),
    ("devpath", 'p', Kind::Piece(Piece::Devpath)),
    ("driver", 'd', Kind::Piece(Piece::Driver)),
    ("attr", 's', Kind::Attribute),
    ("sysfs", 's', Kind::Attribute),
    ("env", 'E', Kind::Env),
    ("kernel", 'k', Kind::Piece(Piece::Kernel)),
    ("number", 'n', Kind::Piece(Piece::Number)),
    ("id", 'b', Kind::Piece(Piece::Id)),
    ("major", 'M', Kind::Piece(Piece::Major)),
    ("minor", 'm', Kind::Piece(Piece::Minor)),
    ("result", 'c', Kind::Result),
    ("parent", 'P', Kind::Piece(Piece::Parent)),
    ("name", 'D', Kind::Piece(Piece::Name)),
    ("links", 'L', Kind::Piece(Piece::Links)),
    ("root", 'r', Kind::Piece(Piece::Root)),
    ("sys", 'S', Kind::Piece(Piece::Sys)),
    ("$", '$', Kind::Dollar),
    ("%", '%', Kind::Percent),
];

enum Kind {
    Piece(Piece),
    Attribute,
    Env,
    Result,
    Dollar,
    Percent,
}

impl Template {
    /// Parses a value.
    ///
    /// # Errors
    /// A description of the mistake.
    pub fn new(text: &str) -> Result<Self, String> {
        let (mut pieces, mut plain) = (Vec::new(), String::new());
        let mut rest = text;
        while let Some(at) = rest.find(['$', '%']) {
            let (before, sign) = rest.split_at(at);
            plain.push_str(before);
            let (piece, after) = substitution(sign)?;
            rest = after;
            match piece {
                Piece::Text(text) => plain.push_str(&text),
                piece => {
                    if !plain.is_empty() {
                        pieces.push(Piece::Text(std::mem::take(&mut plain).into()));
                    }
                    pieces.push(piece);
                }
            }
        }
        plain.push_str(rest);
        if !plain.is_empty() {
            pieces.push(Piece::Text(plain.into()));
        }
        let pieces = pieces.into();
        Ok(Self { pieces })
    }

    /// The value, if it has no substitutions.
    pub fn plain(&self) -> Option<&str> {
        match &*self.pieces {
            [] => Some(""),
            [Piece::Text(text)] => Some(text),
            _ => None,
        }
    }

    /// Replaces each substitution by its `value`.
    pub fn expand<'a>(&'a self, value: impl Fn(&'a Piece) -> Cow<'a, str>) -> Cow<'a, str> {
        if let Some(plain) = self.plain() {
            return Cow::Borrowed(plain);
        }
        let piece = |piece: &'a Piece| match piece {
            Piece::Text(text) => Cow::Borrowed(&**text),
            piece => value(piece),
        };
        Cow::Owned(self.pieces.iter().map(piece).collect())
    }
}

/// Parses the substitution at the start of `text`. Also returns the rest.
fn substitution(text: &str) -> Result<(Piece, &str), String> {
    let mut chars = text.chars();
    let long = chars.next() == Some('$');
    let body = chars.as_str();
    let found = NAMES.iter().find_map(|(name, letter, kind)| {
        let rest = match long {
            true => body.strip_prefix(name),
            false => body.strip_prefix(*letter),
        }?;
        // `$%` and `%$` are not substitutions.
        Some((kind, rest))
    });
    let word = |c: char| !c.is_ascii_alphanumeric();
    let Some((kind, rest)) = found else {
        let name = body.split(word).next().unwrap_or_default();
        let sign = if long { '$' } else { '%' };
        return Err(format!(
            "{sign}{name} is not a substitution (write {sign}{sign} for {sign})"
        ));
    };
    let braces = rest
        .strip_prefix('{')
        .map(|rest| rest.split_once('}').ok_or("a closing brace is missing"))
        .transpose()?;
    let named = || {
        braces
            .filter(|(name, _)| !name.is_empty())
            .ok_or("$attr and $env need a name in braces")
    };
    Ok(match kind {
        Kind::Piece(piece) => (piece.clone(), rest),
        Kind::Attribute => named().map(|(name, rest)| (Piece::Attribute(name.into()), rest))?,
        Kind::Env => named().map(|(name, rest)| (Piece::Env(name.into()), rest))?,
        Kind::Result => (Piece::Result, braces.map_or(rest, |(_, rest)| rest)),
        Kind::Dollar => (Piece::Text("$".into()), rest),
        Kind::Percent => (Piece::Text("%".into()), rest),
    })
}

#[cfg(test)]
mod tests {
    use super::Template;
    use proptest::prelude::proptest;
    use std::borrow::Cow;

    fn shown(text: &str) -> String {
        let template = Template::new(text).unwrap();
        template
            .expand(|piece| Cow::Owned(format!("<{piece:?}>")))
            .into_owned()
    }

    #[test]
    fn substitutions_have_long_and_short_names() {
        assert_eq!(
            shown("nvme-$env{A B}-part%n"),
            "nvme-<Env(\"A B\")>-part<Number>"
        );
        assert_eq!(
            shown("%b$driver%s{x/y}"),
            "<Id><Driver><Attribute(\"x/y\")>"
        );
        assert_eq!(
            shown("$sys$devpath $sysfs{a}"),
            "<Sys><Devpath> <Attribute(\"a\")>"
        );
        assert_eq!(shown("$$x %%d %nD"), "$x %d <Number>D");
        assert_eq!(shown("%c{2+}%c"), "<Result><Result>");
        assert_eq!(Template::new("plain").unwrap().plain(), Some("plain"));
        assert_eq!(Template::new("").unwrap().plain(), Some(""));
        assert_eq!(Template::new("%k").unwrap().plain(), None);
    }

    #[test]
    fn malformed_substitutions_are_refused() {
        for (text, reason) in [
            ("$foo", "$foo is not a substitution"),
            ("50%", "% is not a substitution (write %%"),
            ("$attr", "need a name in braces"),
            ("$env{}", "need a name in braces"),
            ("$attr{a", "closing brace"),
        ] {
            let error = Template::new(text).unwrap_err();
            assert!(error.contains(reason), "{text}: {error}");
        }
    }

    proptest! {
        #[test]
        fn hostile_values_never_panic(text: String, more in "[$%a-z{}]{0,12}") {
            let _ = Template::new(&text);
            let _ = Template::new(&more);
        }
    }
}
