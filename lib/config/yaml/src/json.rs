//! Converts a tree to JSON by YAML's core schema (yaml.org, YAML 1.2.2, section 10.3.2). A number with a leading zero is
//! octal as in YAML 1.1, because file modes in manifests of Kubernetes have this form.

use serde_json::{Number, Value as Json};

use crate::tree::{Content, Node, reads_as_text};

/// Converts a tree. Values that JSON lacks (infinity, NaN, hexadecimal numbers above 64 bits) become text; null would
/// mean absent.
#[must_use]
pub fn of(node: &Node) -> Json {
    match &node.content {
        _ if node.is_null() => Json::Null,
        Content::Scalar { text, plain: true } if !reads_as_text(text) => scalar(text),
        Content::Scalar { text, .. } => Json::String(text.clone()),
        Content::List(items) => Json::Array(items.iter().map(of).collect()),
        Content::Map(entries) => {
            let entries = entries.iter();
            let entries = entries.map(|(key, value)| (key.name.clone(), of(value)));
            Json::Object(entries.collect())
        }
    }
}

fn scalar(text: &str) -> Json {
    let radix = |prefix: &str, radix: u32| {
        let digits = text.strip_prefix(prefix)?;
        u64::from_str_radix(digits, radix).ok()
    };
    if let "true" | "True" | "TRUE" = text {
        return Json::Bool(true);
    }
    if let "false" | "False" | "FALSE" = text {
        return Json::Bool(false);
    }
    let octal = radix("0o", 8).or_else(|| radix("0", 8));
    if let Some(number) = radix("0x", 16).or(octal) {
        return Json::from(number);
    }
    if let Ok(number) = text.parse::<i64>() {
        return Json::from(number);
    }
    if let Ok(number) = text.parse::<u64>() {
        return Json::from(number);
    }
    let number = text.parse().ok().and_then(Number::from_f64);
    number.map_or_else(|| Json::from(text), Json::Number)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::problem::Notes;

    fn read(text: &str) -> Json {
        let mut notes = Notes::default();
        let trees = crate::tree::read(text, &mut notes);
        assert!(notes.is_empty(), "{text}");
        trees[0].as_ref().map_or(Json::Null, of)
    }

    #[test]
    fn scalars_resolve_by_the_yaml_core_schema() {
        for (text, value) in [
            ("{a: true, b: False}", json!({"a": true, "b": false})),
            ("[0, 1, -2, +3, 0x1f, 0o17]", json!([0, 1, -2, 3, 31, 15])),
            ("[0400, 0644, 089]", json!([0o400, 0o644, 89])),
            ("[18446744073709551615]", json!([u64::MAX])),
            ("[1.5, 1e3, .5, 10.]", json!([1.5, 1000.0, 0.5, 10.0])),
            (
                "[~, null, '', .inf, -.nan, 1e999]",
                json!([null, null, "", ".inf", "-.nan", "1e999"]),
            ),
            (
                "['1', \"true\", yes, 1.2.3]",
                json!(["1", "true", "yes", "1.2.3"]),
            ),
            ("[0xfffffffffffffffff]", json!(["0xfffffffffffffffff"])),
        ] {
            assert_eq!(read(text), value, "{text}");
        }
    }
}
