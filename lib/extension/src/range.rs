//! Version ranges in the language of extensions (`>= v1.5.0 < 2.0.0 || 1.4.x`).
//!
//! It differs from cargo's and npm's: a version without an operator matches only itself, and `^` and `~` do not exist.

use semver::Version;

/// Alternatives, each a conjunction of comparators.
///
/// All comparators of an alternative must hold, `||` separates alternatives, and `x` stands for any number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Range(Vec<Vec<Comparator>>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Comparator {
    operator: Operator,
    /// The lowest version of the span.
    low: Version,
    /// Exclusive upper bound of the span; `None`: only `low` itself.
    high: Option<Version>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operator {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

/// Longer operators come first, because the first prefix match wins.
const OPERATORS: [(&str, Operator); 8] = [
    (">=", Operator::GreaterOrEqual),
    ("<=", Operator::LessOrEqual),
    ("!=", Operator::NotEqual),
    ("==", Operator::Equal),
    ("=", Operator::Equal),
    ("!", Operator::NotEqual),
    (">", Operator::Greater),
    ("<", Operator::Less),
];

impl Range {
    /// Parses a range; an empty text matches every version.
    ///
    /// # Errors
    /// The part that cannot be parsed.
    pub(crate) fn parse(text: &str) -> Result<Range, String> {
        if text.trim().is_empty() {
            return Ok(Range(vec![Vec::new()]));
        }
        text.split("||")
            .map(alternative)
            .collect::<Result<_, _>>()
            .map(Range)
    }

    pub(crate) fn contains(&self, version: &Version) -> bool {
        self.0
            .iter()
            .any(|all| all.iter().all(|one| one.holds(version)))
    }
}

fn alternative(text: &str) -> Result<Vec<Comparator>, String> {
    let mut found = Vec::new();
    let mut rest = text.trim();
    while !rest.is_empty() {
        let (operator, after) = OPERATORS
            .iter()
            .find_map(|(sign, operator)| Some((*operator, rest.strip_prefix(sign)?)))
            .unwrap_or((Operator::Equal, rest));
        let after = after.trim_start();
        let end = after
            .find(|c: char| c.is_whitespace() || "<>=!".contains(c))
            .unwrap_or(after.len());
        let (version, after) = after.split_at(end);
        let (low, high) = span(version)?;
        found.push(Comparator {
            operator,
            low,
            high,
        });
        rest = after.trim_start();
    }
    if found.is_empty() {
        return Err(format!("one side of || in {text:?} has no version"));
    }
    Ok(found)
}

/// The span of versions that a text denotes.
fn span(text: &str) -> Result<(Version, Option<Version>), String> {
    let wrong = || format!("{text:?} is not a version");
    let bare = text.strip_prefix('v').unwrap_or(text);
    let parts: Vec<&str> = bare.split('.').collect();
    let number = |part: &str| part.parse::<u64>().ok();
    match parts.as_slice() {
        [major, "x"] | [major, "x", "x"] => {
            let major = number(major).ok_or_else(wrong)?;
            let next = major.checked_add(1).ok_or_else(wrong)?;
            Ok((Version::new(major, 0, 0), Some(Version::new(next, 0, 0))))
        }
        [major, minor, "x"] => {
            let (major, minor) = number(major).zip(number(minor)).ok_or_else(wrong)?;
            let next = minor.checked_add(1).ok_or_else(wrong)?;
            Ok((
                Version::new(major, minor, 0),
                Some(Version::new(major, next, 0)),
            ))
        }
        _ => Ok((Version::parse(bare).map_err(|_| wrong())?, None)),
    }
}

impl Comparator {
    fn holds(&self, version: &Version) -> bool {
        let order = |other: &Version| version.cmp_precedence(other);
        let below = order(&self.low).is_lt();
        let above = match &self.high {
            Some(high) => order(high).is_ge(),
            None => order(&self.low).is_gt(),
        };
        match self.operator {
            Operator::Equal => !below && !above,
            Operator::NotEqual => below || above,
            Operator::Less => below,
            Operator::LessOrEqual => !above,
            Operator::Greater => above,
            Operator::GreaterOrEqual => !below,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holds(range: &str, version: &str) -> bool {
        let version = Version::parse(version).unwrap();
        Range::parse(range).unwrap().contains(&version)
    }

    #[test]
    fn comparators_are_combined_by_and_and_alternatives_by_or() {
        for (range, inside, outside) in [
            (">= v1.5.0", "1.5.0", "1.4.9"),
            (">1.5.0 <2.0.0", "1.9.9", "2.0.0"),
            (">1.5.0<2.0.0", "1.5.1", "1.5.0"),
            ("1.5.0", "1.5.0", "1.5.1"),
            ("!=1.5.0", "1.5.1", "1.5.0"),
            ("!1.5.x", "1.6.0", "1.5.3"),
            ("1.5.x", "1.5.7", "1.6.0"),
            (">1.5.x", "1.6.0", "1.5.9"),
            ("<=1.5.x", "1.5.9", "1.6.0"),
            ("<1.5.x", "1.4.9", "1.5.0"),
            ("1.x", "1.99.0", "2.0.0"),
            ("<1.2.0 || >= v1.4.0", "1.4.0", "1.3.0"),
            (">= 1.5.0-alpha.1", "1.5.0", "1.4.0"),
        ] {
            assert!(holds(range, inside), "{inside} is in {range}");
            assert!(!holds(range, outside), "{outside} is not in {range}");
        }
        assert!(holds("", "0.0.1"));
    }

    #[test]
    fn malformed_ranges_are_errors() {
        for bad in [
            "about",
            "1",
            "1.2",
            ">=",
            "||",
            "1.0.0 ||",
            "^1.0.0",
            "x",
            "1.x.2",
            "1.99999999999999999999.0",
        ] {
            Range::parse(bad).unwrap_err();
        }
    }
}
