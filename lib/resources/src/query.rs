//! Which resources of a kind are meant.

use std::sync::Arc;

use regex_lite::Regex;

use crate::error::StoreError;
use crate::metadata::Tags;
use crate::resource::Resource;

/// How a term compares a label's value. The last four compare with the first of the term's values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operator {
    /// The label is there.
    Exists,
    /// Its value is the first of the term's.
    Equal,
    /// The label is not there.
    NotExists,
    /// Its value is one of the term's.
    In,
    /// It sorts before, byte by byte.
    Less,
    /// It sorts before or is the same.
    LessOrEqual,
    /// Both are whole numbers, and it is smaller.
    LessNumeric,
    /// Both are whole numbers, and it is not bigger.
    LessOrEqualNumeric,
}

/// One condition on one label.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LabelTerm {
    /// The label.
    pub key: String,
    /// The comparison.
    pub operator: Operator,
    /// What is compared with.
    pub values: Vec<String>,
    /// Turns the answer around. A comparison with a label that is missing, or that is no number where one
    /// is needed, is false before it is turned.
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

/// An expression that must match somewhere in the id (`^` and `$` make it the whole).
#[derive(Debug, Clone)]
pub struct IdQuery(Regex);

impl IdQuery {
    /// Compiles the expression.
    ///
    /// # Errors
    /// [`StoreError::InvalidExpression`].
    pub fn new(expression: &str) -> Result<IdQuery, StoreError> {
        Regex::new(expression)
            .map(IdQuery)
            .map_err(|error| StoreError::InvalidExpression {
                expression: expression.to_owned(),
                reason: error.to_string(),
            })
    }
}

/// Which resources of a kind are meant; the default means all.
#[derive(Debug, Clone, Default)]
pub struct Query {
    /// One of these must hold, if there are any.
    pub labels: Vec<LabelQuery>,
    /// This must hold, if there is one.
    pub id: Option<IdQuery>,
}

impl Query {
    /// Whether the resource is meant.
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

    pub(crate) fn is_all(&self) -> bool {
        self.labels.is_empty() && self.id.is_none()
    }

    /// Those of `resources` that are meant.
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
    fn every_operator_of_the_wire() {
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
    fn a_missing_label_compares_with_nothing() {
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
}
