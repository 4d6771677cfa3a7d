//! Shell patterns with alternatives: `sd*|vd?|nvme[0-9]*`. No I/O.
//!
//! Like fnmatch(3) without flags: `*` and `?` also match `/` and a leading dot; `\` escapes the next character.

/// One or more alternatives, one of which must match.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pattern {
    alternatives: Box<[Alternative]>,
    /// Whether ASCII case is ignored.
    fold: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Alternative {
    Plain(Box<str>),
    Glob(Box<[Part]>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    One(char),
    Any,
    Many,
    Class {
        negated: bool,
        ranges: Box<[(char, char)]>,
    },
}

/// The named POSIX classes as ranges of ASCII.
const NAMED: [(&str, &[(char, char)]); 7] = [
    ("alnum", &[('0', '9'), ('A', 'Z'), ('a', 'z')]),
    ("alpha", &[('A', 'Z'), ('a', 'z')]),
    ("digit", &[('0', '9')]),
    ("lower", &[('a', 'z')]),
    ("space", &[('\t', '\r'), (' ', ' ')]),
    ("upper", &[('A', 'Z')]),
    ("xdigit", &[('0', '9'), ('A', 'F'), ('a', 'f')]),
];

impl Pattern {
    /// Parses alternatives separated by `|`. An empty one matches the empty text.
    pub fn new(text: &str, fold: bool) -> Self {
        let fitted = if fold {
            text.to_ascii_lowercase()
        } else {
            text.to_owned()
        };
        let alternative = |text: &str| match text.contains(['*', '?', '[']) {
            true => Alternative::Glob(parts(text)),
            false => Alternative::Plain(text.into()),
        };
        Self {
            alternatives: fitted.split('|').map(alternative).collect(),
            fold,
        }
    }

    /// Whether an alternative matches all of `text`.
    pub fn matches(&self, text: &str) -> bool {
        let lower = self.fold.then(|| text.to_ascii_lowercase());
        let text = lower.as_deref().unwrap_or(text);
        self.alternatives
            .iter()
            .any(|alternative| match alternative {
                Alternative::Plain(plain) => **plain == *text,
                Alternative::Glob(parts) => fits(parts, text),
            })
    }

    /// Whether an alternative ends in white space, so that trailing white space of a value counts.
    pub fn ends_in_space(&self) -> bool {
        self.alternatives
            .iter()
            .any(|alternative| match alternative {
                Alternative::Plain(plain) => plain.ends_with(char::is_whitespace),
                Alternative::Glob(parts) => {
                    matches!(parts.last(), Some(Part::One(c)) if c.is_whitespace())
                }
            })
    }
}

fn parts(text: &str) -> Box<[Part]> {
    let mut parts = Vec::new();
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        rest = rest.get(c.len_utf8()..).unwrap_or_default();
        match c {
            // Two consecutive stars match the same as one.
            '*' if parts.last() == Some(&Part::Many) => {}
            '*' => parts.push(Part::Many),
            '?' => parts.push(Part::Any),
            '[' => match class(rest) {
                Some((part, after)) => {
                    parts.push(part);
                    rest = after;
                }
                // A bracket without its end is a literal.
                None => parts.push(Part::One('[')),
            },
            '\\' => {
                let next = rest.chars().next().unwrap_or('\\');
                rest = rest.get(next.len_utf8()..).unwrap_or_default();
                parts.push(Part::One(next));
            }
            c => parts.push(Part::One(c)),
        }
    }
    parts.into()
}

/// Parses a class after its `[` up to `]`. Also returns the rest.
fn class(text: &str) -> Option<(Part, &str)> {
    let (negated, mut rest) = match text.strip_prefix(['!', '^']) {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let mut ranges = Vec::new();
    let mut first = true;
    loop {
        if let Some(after) = rest.strip_prefix(']').filter(|_| !first) {
            let ranges = ranges.into();
            return Some((Part::Class { negated, ranges }, after));
        }
        first = false;
        if let Some((name, after)) = rest.strip_prefix("[:").and_then(|r| r.split_once(":]")) {
            ranges.extend(NAMED.iter().find(|(known, _)| *known == name)?.1);
            rest = after;
            continue;
        }
        let (from, after) = literal(rest)?;
        let to = after
            .strip_prefix('-')
            .filter(|after| !after.starts_with(']'));
        let (to, after) = match to {
            Some(after) => literal(after)?,
            None => (from, after),
        };
        ranges.push((from, to));
        rest = after;
    }
}

/// One character of a class, possibly escaped.
fn literal(text: &str) -> Option<(char, &str)> {
    let mut chars = text.chars();
    match chars.next()? {
        '\\' => Some((chars.next()?, chars.as_str())),
        c => Some((c, chars.as_str())),
    }
}

/// Backtracks to the last `*` only, so the time is at most the product of both lengths.
fn fits(parts: &[Part], text: &str) -> bool {
    let (mut at, mut rest) = (0, text);
    let mut retry: Option<(usize, &str)> = None;
    loop {
        let next = rest.chars().next();
        let step = match (parts.get(at), next) {
            (None, None) => return true,
            (Some(Part::Many), _) => {
                retry = Some((at + 1, rest));
                at += 1;
                continue;
            }
            (Some(part), Some(c)) => part.fits(c).then_some(c),
            _ => None,
        };
        if let Some(c) = step {
            at += 1;
            rest = rest.get(c.len_utf8()..).unwrap_or_default();
            continue;
        }
        // The last `*` matches one character more.
        let Some((after, from)) = retry else {
            return false;
        };
        let Some(c) = from.chars().next() else {
            return false;
        };
        let longer = from.get(c.len_utf8()..).unwrap_or_default();
        retry = Some((after, longer));
        (at, rest) = (after, longer);
    }
}

impl Part {
    fn fits(&self, c: char) -> bool {
        match self {
            Self::One(one) => *one == c,
            Self::Any => true,
            Self::Many => false,
            Self::Class { negated, ranges } => {
                ranges.iter().any(|(from, to)| (*from..=*to).contains(&c)) != *negated
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Pattern;
    use proptest::prelude::{prop_assert, prop_assert_eq, proptest};

    fn fits(pattern: &str, text: &str) -> bool {
        Pattern::new(pattern, false).matches(text)
    }

    #[test]
    fn patterns_of_rule_files_match() {
        for (pattern, yes, no) in [
            ("sd*", "sda1", "hda"),
            ("vd*[!0-9]", "vda", "vda1"),
            ("nvme*[0-9]n*[0-9]p*[0-9]", "nvme0n1p12", "nvme0n1"),
            ("?*", "x", ""),
            ("", "", "x"),
            ("a||b", "", "c"),
            ("0|1|", "", "2"),
            ("*/virtual/*", "/devices/virtual/block", "/devices/pci"),
            ("[[:digit:]x-]", "-", "a"),
            ("[]a]", "]", "b"),
            ("a[", "a[", "a"),
            (r"a\*?", "a*b", "ab"),
            ("*:0701??:*", ":ff0000:070102:", ":0701:"),
            ("*a*b", "aabab", "aaba"),
            ("\u{e4}?", "\u{e4}\u{f6}", "\u{e4}"),
        ] {
            assert!(fits(pattern, yes), "{pattern} {yes:?}");
            assert!(!fits(pattern, no), "{pattern} {no:?}");
        }
        assert!(Pattern::new("QEMU*|ata", true).matches("qemu disk"));
        assert!(!fits("QEMU*", "qemu disk"));
        assert!(Pattern::new("a|b ", false).ends_in_space());
    }

    #[test]
    fn patterns_with_many_stars_match_in_bounded_time() {
        let (pattern, text) = ("*a".repeat(200), "a".repeat(4000));
        assert!(fits(&pattern, &text));
        assert!(!fits(&format!("{pattern}b"), &text));
    }

    proptest! {
        #[test]
        fn pattern_matching_agrees_with_a_naive_search(pattern in "[ab*?]{0,8}", text in "[ab]{0,8}") {
            fn slow(pattern: &[u8], text: &[u8]) -> bool {
                match (pattern, text) {
                    ([], []) => true,
                    ([b'*', rest @ ..], _) => {
                        slow(rest, text) || (!text.is_empty() && slow(pattern, &text[1..]))
                    }
                    ([p, ps @ ..], [t, ts @ ..]) => (*p == b'?' || p == t) && slow(ps, ts),
                    _ => false,
                }
            }
            prop_assert_eq!(fits(&pattern, &text), slow(pattern.as_bytes(), text.as_bytes()));
        }

        #[test]
        fn hostile_patterns_never_panic(pattern: String, text: String) {
            let _ = fits(&pattern, &text);
            let plain = text.replace(['|', '*', '?', '['], "_");
            prop_assert!(fits(&plain, &plain));
        }
    }
}
