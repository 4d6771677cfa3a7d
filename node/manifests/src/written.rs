//! User manifests: YAML documents, each an object or a list of objects.

use serde_json::Value;

use crate::object::{Identity, Invalid};

/// Size limit of a manifest in bytes. It is far above etcd's limit for an object, because a manifest may contain many.
const MOST: usize = 16 << 20;

/// An unreadable manifest.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    /// The text is too large.
    #[error("it has {0} bytes; the limit is {MOST} bytes")]
    Large(usize),
    /// The text is not YAML.
    #[error("it is not YAML: {0}")]
    Yaml(String),
    /// A document is not a Kubernetes object.
    #[error("object {number}: {invalid}")]
    Object {
        /// Number of the document, counted from 1.
        number: usize,
        /// Defect of the document.
        invalid: Invalid,
    },
}

/// Parses a manifest. Empty documents are left out; lists of objects are flattened.
///
/// # Errors
/// [`Unreadable`] if any document is not an object: a manifest is applied whole or not at all.
pub fn read(text: &str) -> Result<Vec<Value>, Unreadable> {
    if text.len() > MOST {
        return Err(Unreadable::Large(text.len()));
    }
    // As for clients of Kubernetes: `defaultMode: 0400` is octal.
    let options = serde_saphyr::options! { legacy_octal_numbers: true };
    let documents: Vec<Value> = serde_saphyr::from_multiple_with_options(text, options)
        .map_err(|error| Unreadable::Yaml(error.without_snippet().to_string()))?;
    let mut objects = Vec::new();
    for document in documents {
        match list(document) {
            Ok(items) => objects.extend(items),
            Err(document) if is_empty(&document) => {}
            Err(document) => objects.push(document),
        }
    }
    for (index, object) in objects.iter().enumerate() {
        let number = index + 1;
        Identity::of(object).map_err(|invalid| Unreadable::Object { number, invalid })?;
    }
    Ok(objects)
}

fn is_empty(document: &Value) -> bool {
    match document {
        Value::Null => true,
        Value::Object(fields) => fields.is_empty(),
        _ => false,
    }
}

/// Items of a list such as `kind: List`; returns the document itself if it is not a list.
fn list(mut document: Value) -> Result<Vec<Value>, Value> {
    let kind = document.get("kind").and_then(Value::as_str);
    if !kind.is_some_and(|kind| kind.ends_with("List")) {
        return Err(document);
    }
    match document.get_mut("items").map(Value::take) {
        Some(Value::Array(items)) => Ok(items),
        _ => Err(document),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TWO: &str = "# a comment\n---\napiVersion: v1\nkind: Namespace\nmetadata: {name: a}\n---\n---\n\
                       apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: ConfigMap\n  \
                       metadata: {name: b}\n  data: {x: \"1\"}\n";

    #[test]
    fn documents_and_items_of_lists_are_objects() {
        let objects = read(TWO).unwrap();
        let names: Vec<&Value> = objects
            .iter()
            .map(|object| &object["metadata"]["name"])
            .collect();
        assert_eq!(names, ["a", "b"]);
        assert_eq!(objects[1]["data"]["x"], "1");
    }

    #[test]
    fn number_with_a_leading_zero_is_octal() {
        let text = "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {mode: 0400, other: 0644, text: '0400'}\n";
        let spec = &read(text).unwrap()[0]["spec"];
        assert_eq!(spec["mode"], 0o400);
        assert_eq!(spec["other"], 0o644);
        assert_eq!(spec["text"], "0400");
    }

    #[test]
    fn text_without_objects_has_no_objects() {
        for text in ["", "# nothing\n", "---\n---\n", "{}"] {
            assert_eq!(read(text), Ok(Vec::new()), "{text:?}");
        }
    }

    #[test]
    fn invalid_manifest_is_refused_as_a_whole() {
        for (text, part) in [
            ("a: [", "not YAML"),
            ("just text", "object 1: apiVersion"),
            ("- a\n- b\n", "object 1: apiVersion"),
            (
                "apiVersion: v1\nkind: ConfigMap\n",
                "object 1: metadata.name",
            ),
            (
                "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n---\nkind: X\n",
                "object 2",
            ),
            ("a: 1\na: 2\n", "not YAML"),
        ] {
            let error = read(text).unwrap_err().to_string();
            assert!(error.contains(part), "{text:?}: {error}");
        }
    }

    #[test]
    fn an_error_does_not_show_the_text() {
        let error = read("password: hunter2\n\t: [").unwrap_err().to_string();
        assert!(!error.contains("hunter2"), "{error}");
    }

    proptest! {
        #[test]
        fn manifest_reader_never_panics(text in "\\PC{0,200}") {
            let _ = read(&text);
        }
    }
}
