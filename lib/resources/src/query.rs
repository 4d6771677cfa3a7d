//! Queries: selection of resources of a kind.
//!
//! Every reader may query, and a watch keeps its query for as long as it lives. So the cost of a query is limited.

use std::sync::Arc;

use regex_lite::{Regex, RegexBuilder};

use crate::error::StoreError;
use crate::metadata::Tags;
use crate::resource::Resource;

/// Longest expression in bytes; ids are shorter.
const LONGEST_EXPRESSION: usize = 1024;
/// Limit of the compiled expression in bytes; a few hundred letters and classes fit.
const LARGEST_PROGRAM: usize = 16 * 1024;
/// Limit of the terms of one query, over all alternatives, and of the values of one term.
const MOST_TERMS: usize = 64;
/// Limit of all keys and values of one query, in bytes.
const LONGEST_TERMS: usize = 16 * 1024;
/// Number of bytes of a refused expression that the error shows.
const SHOWN: usize = 64;

/// Comparison of a label's value. The last four compare with the first of the term's values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operator {
    /// The label exists.
    Exists,
    /// The value equals the first of the term's values.
    Equal,
    /// The label does not exist.
    NotExists,
    /// The value is one of the term's values.
    In,
    /// The value is smaller, in byte order.
    Less,
    /// The value is smaller or equal, in byte order.
    LessOrEqual,
    /// Both are integers, and the label's is smaller.
    LessNumeric,
    /// Both are integers, and the label's is not larger.
    LessOrEqualNumeric,
}

/// One condition on one label.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LabelTerm {
    /// Key of the label.
    pub key: String,
    /// Comparison.
    pub operator: Operator,
    /// Values to compare with.
    pub values: Vec<String>,
    /// Whether the result is negated. A comparison with a missing label, or with a non-number where a number is needed,
    /// is false before the negation.
    pub invert: bool,
}

impl LabelTerm {
    fn matches(&self, labels: &Tags) -> bool {
        let holds = match (self.operator, labels.get(&self.key)) {
            (Operator::NotExists, label) => label.is_none(),
            (_, None) => false,
            (operator, Some(value)) => self.compare(operator, value),
        };
        holds != self.invert
    }

    fn compare(&self, operator: Operator, value: &str) -> bool {
        if operator == Operator::Exists {
            return true;
        }
        if operator == Operator::In {
            return self.values.iter().any(|other| other == value);
        }
        let Some(other) = self.values.first() else {
            return false;
        };
        let numbers = || Some((value.parse::<i64>().ok()?, other.parse::<i64>().ok()?));
        match operator {
            Operator::Equal => value == other,
            Operator::Less => value < other.as_str(),
            Operator::LessOrEqual => value <= other.as_str(),
            Operator::LessNumeric => numbers().is_some_and(|(ours, other)| ours < other),
            Operator::LessOrEqualNumeric => numbers().is_some_and(|(ours, other)| ours <= other),
            Operator::Exists | Operator::NotExists | Operator::In => false,
        }
    }
}

/// Terms that must all hold.
pub type LabelQuery = Vec<LabelTerm>;

/// A regular expression that must match somewhere in the id (`^` and `$` anchor it).
#[derive(Debug, Clone)]
pub struct IdQuery(Regex);

impl IdQuery {
    /// Compiles an expression of at most 1,024 bytes; the compiled form may have at most 16 KiB.
    ///
    /// # Errors
    /// [`StoreError::InvalidExpression`].
    pub fn new(expression: &str) -> Result<IdQuery, StoreError> {
        let refused = |reason: String| {
            let shown = expression.floor_char_boundary(SHOWN);
            StoreError::InvalidExpression {
                expression: expression.get(..shown).unwrap_or_default().to_owned(),
                reason,
            }
        };
        if expression.len() > LONGEST_EXPRESSION {
            let text = format!("longer than {LONGEST_EXPRESSION} bytes; use a shorter one");
            return Err(refused(text));
        }
        RegexBuilder::new(expression)
            .size_limit(LARGEST_PROGRAM)
            .build()
            .map(IdQuery)
            .map_err(|error| refused(error.to_string()))
    }
}

/// Selection of resources of a kind; the default selects all.
#[derive(Debug, Clone, Default)]
pub struct Query {
    labels: Vec<LabelQuery>,
    id: Option<IdQuery>,
}

impl Query {
    /// A resource matches if one of `labels` holds (or the list is empty), and `id` matches (or is absent). All terms
    /// together are at most 64, with at most 64 values each, and 16 KiB.
    ///
    /// # Errors
    /// [`StoreError::LabelQueryTooLarge`].
    pub fn new(labels: Vec<LabelQuery>, id: Option<IdQuery>) -> Result<Query, StoreError> {
        let refused = |limit: String| Err(StoreError::LabelQueryTooLarge { limit });
        let mut terms = labels.iter().flatten();
        // An alternative without terms always holds, but uses memory too, so it counts.
        if labels.len() > MOST_TERMS || terms.clone().count() > MOST_TERMS {
            return refused(format!("more than {MOST_TERMS} terms"));
        }
        if terms.clone().any(|term| term.values.len() > MOST_TERMS) {
            return refused(format!("more than {MOST_TERMS} values in a term"));
        }
        let bytes = terms.try_fold(0_usize, |sum, term| {
            let values: usize = term.values.iter().map(String::len).sum();
            let sum = sum + term.key.len() + values;
            (sum <= LONGEST_TERMS).then_some(sum)
        });
        if bytes.is_none() {
            return refused(format!(
                "more than {LONGEST_TERMS} bytes of keys and values"
            ));
        }
        Ok(Query { labels, id })
    }

    /// Whether the query selects every resource.
    #[must_use]
    pub fn is_all(&self) -> bool {
        self.labels.is_empty() && self.id.is_none()
    }

    /// Whether the resource matches.
    #[must_use]
    pub fn matches(&self, resource: &Resource) -> bool {
        let labels = &resource.metadata.labels;
        let by_labels = self.labels.is_empty()
            || self
                .labels
                .iter()
                .any(|query| query.iter().all(|term| term.matches(labels)));
        let id = &resource.metadata.pointer.id;
        by_labels && self.id.as_ref().is_none_or(|query| query.0.is_match(id))
    }

    /// The matching ones of `resources`.
    pub(crate) fn select<'a>(
        &self,
        resources: impl Iterator<Item = &'a Arc<Resource>>,
    ) -> Vec<Arc<Resource>> {
        resources
            .filter(|resource| self.matches(resource))
            .cloned()
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holds(operator: Operator, values: &[&str], invert: bool, labels: &[(&str, &str)]) -> bool {
        let labels = labels
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()));
        let term = LabelTerm {
            key: "size".to_owned(),
            operator,
            values: values.iter().map(|value| (*value).to_owned()).collect(),
            invert,
        };
        term.matches(&labels.collect())
    }

    #[test]
    fn every_operator_of_the_wire_format_matches() {
        let ten = &[("size", "10"), ("other", "1")][..];
        for (operator, values, expected) in [
            (Operator::Exists, &[][..], true),
            (Operator::NotExists, &[], false),
            (Operator::Equal, &["10"], true),
            (Operator::Equal, &["1"], false),
            (Operator::Equal, &[], false),
            (Operator::In, &["9", "10"], true),
            (Operator::In, &["9", "11"], false),
            (Operator::Less, &["9"], true),
            (Operator::Less, &["10"], false),
            (Operator::LessOrEqual, &["10"], true),
            (Operator::LessNumeric, &["9"], false),
            (Operator::LessNumeric, &["11"], true),
            (Operator::LessNumeric, &["x"], false),
            (Operator::LessOrEqualNumeric, &["10"], true),
            (Operator::LessOrEqualNumeric, &["-10"], false),
        ] {
            assert_eq!(
                holds(operator, values, false, ten),
                expected,
                "{operator:?} {values:?}"
            );
            assert_eq!(
                holds(operator, values, true, ten),
                !expected,
                "not {operator:?} {values:?}"
            );
        }
    }

    #[test]
    fn missing_label_matches_only_negated_operators() {
        for operator in [
            Operator::Exists,
            Operator::Equal,
            Operator::Less,
            Operator::LessNumeric,
        ] {
            assert!(!holds(operator, &["1"], false, &[]), "{operator:?}");
            assert!(holds(operator, &["1"], true, &[]), "not {operator:?}");
        }
        assert!(holds(Operator::NotExists, &[], false, &[]));
    }

    #[test]
    fn a_bad_expression_is_named() {
        let error = IdQuery::new("a(b").unwrap_err();
        assert!(
            matches!(&error, StoreError::InvalidExpression { expression, .. } if expression == "a(b")
        );
    }

    #[test]
    fn hostile_expressions_are_small_or_refused() {
        for good in ["^eth[0-9]+$", "a|b|c", "^[a-z0-9-]{1,32}$"] {
            IdQuery::new(good).unwrap();
        }
        // The longest accepted expression, and one that is longer.
        IdQuery::new(&"a".repeat(200)).unwrap();
        let longest = "é".repeat(LONGEST_EXPRESSION / 2);
        for bad in [
            format!("{longest}a"),
            "a{9999}".to_owned(),
            "(?:(?:a{99}){99}){99}".to_owned(),
            "(".repeat(LONGEST_EXPRESSION),
            "[a-z]{999}".to_owned(),
        ] {
            let error = IdQuery::new(&bad).unwrap_err();
            let text = error.to_string();
            assert!(text.starts_with("id_query.regexp"), "{text}");
            assert!(text.len() < 300, "{text}");
        }
        // Compiling a billion empty repetitions must terminate.
        let _ = IdQuery::new("(?:){999999999}");
    }

    fn term(key: &str, values: &[String]) -> LabelTerm {
        LabelTerm {
            key: key.to_owned(),
            operator: Operator::In,
            values: values.to_vec(),
            invert: false,
        }
    }

    #[test]
    fn hostile_label_queries_are_refused() {
        let few = vec![vec![term("a", &["b".to_owned()])]; MOST_TERMS];
        assert!(!Query::new(few, None).unwrap().is_all());
        let long = "x".repeat(LONGEST_TERMS);
        for (labels, word) in [
            (vec![Vec::new(); MOST_TERMS + 1], "terms"),
            (vec![vec![term("a", &[]); MOST_TERMS + 1]], "terms"),
            (
                vec![vec![term("a", &[]); 40], vec![term("a", &[]); 40]],
                "terms",
            ),
            (
                vec![vec![term("a", &vec![String::new(); MOST_TERMS + 1])]],
                "values",
            ),
            (vec![vec![term("a", std::slice::from_ref(&long))]], "bytes"),
            (vec![vec![term(&long, &[]), term("a", &[])]], "bytes"),
        ] {
            let error = Query::new(labels, None).unwrap_err().to_string();
            assert!(error.starts_with("label_query: "), "{error}");
            assert!(error.contains(word), "{error}");
        }
    }

    proptest::proptest! {
        #[test]
        fn hostile_text_as_an_expression_never_panics(text in "\\PC*", id in "\\PC*") {
            if let Ok(query) = IdQuery::new(&text) {
                let _ = query.0.is_match(&id);
            }
        }
    }
}
