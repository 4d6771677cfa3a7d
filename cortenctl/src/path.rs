//! The JSON paths in a type's columns and in `get -o jsonpath=`: `{.a.b}`,
//! `{.list[:]}`, `{.list[?(@.type=="Ready")].status}`. Without their braces they
//! are those of RFC 9535 but for the `$` in front.

use serde_json::Value;
use serde_json_path::JsonPath;

use crate::table::printable;

/// Longer ones are no columns; the parser recurses.
const MAX_LENGTH: usize = 1024;

/// What a node's path selects, as a cell; one that cannot be read selects
/// nothing. Steps that multiply what they are given are refused: a node could
/// keep us busy for ever.
pub(crate) fn column(value: &Value, path: &str) -> String {
    if path.contains("..") || path.contains(',') {
        return String::new();
    }
    parse(path).map_or_else(|_| String::new(), |path| select(&path, value))
}

/// What a path selects, with a blank between two values. Nothing selected is an empty text.
pub(crate) fn select(path: &JsonPath, value: &Value) -> String {
    let cells: Vec<String> = path.query(value).iter().map(|found| cell(found)).collect();
    cells.join(" ")
}

/// Reads a path.
///
/// # Errors
/// A sentence for the user.
pub(crate) fn parse(path: &str) -> Result<JsonPath, String> {
    let inner = path.trim().trim_start_matches('{').trim_end_matches('}');
    let rooted = match inner.strip_prefix('$') {
        Some(rest) => format!("${rest}"),
        None if inner.is_empty() || inner == "." => "$".to_owned(),
        None => format!("${inner}"),
    };
    if rooted.len() > MAX_LENGTH {
        return Err(format!("the path is longer than {MAX_LENGTH} bytes"));
    }
    JsonPath::parse(&rooted)
        .map_err(|error| format!("{path:?} is not a path such as {{.spec.hostname}}: {error}"))
}

fn cell(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => printable(text),
        // Escapes of JSON leave some of them (U+0080 to U+009F).
        other => printable(&other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn paths_of_the_columns() {
        let spec = json!({
            "stage": "running",
            "status": { "ready": true },
            "aliases": ["a", "b"],
            "endpoints": [{ "host": "x" }, { "host": "y" }],
            "conditions": [{ "type": "Ready", "status": "True" }, { "type": "X", "status": "no" }],
        });
        for (path, expected) in [
            ("{.stage}", "running"),
            ("{.status.ready}", "true"),
            ("{.aliases}", r#"["a","b"]"#),
            ("{.aliases[:]}", "a b"),
            ("{.aliases[1]}", "b"),
            ("{.endpoints[*].host}", "x y"),
            ("{.missing}", ""),
            ("{.stage.deeper}", ""),
            (r#"{.conditions[?(@.type=="Ready")].status}"#, "True"),
            ("{.broken[", ""),
        ] {
            assert_eq!(column(&spec, path), expected, "{path}");
        }
        let whole = select(&parse("{.}").unwrap(), &spec);
        assert!(whole.starts_with(r#"{"stage":"running""#), "{whole}");
    }

    #[test]
    fn a_hostile_path_is_refused() {
        parse("{.spec.x}").unwrap();
        assert!(parse("{.a[}").unwrap_err().contains("is not a path"));
        let deep = format!("{{.a{}}}", "[?(@.b".repeat(100_000));
        assert!(parse(&deep).unwrap_err().contains("longer than"));
        let busy = "{.a[*,*][*,*]}";
        assert_eq!(column(&json!({ "a": [[1]] }), busy), "");
        for hostile in [json!({ "a": "x\u{1b}[2J" }), json!({ "a": ["x\u{9b}2J"] })] {
            let text = column(&hostile, "{.a}");
            assert!(!text.contains(char::is_control), "{text:?}");
        }
    }
}
