//! JSON paths of a type's columns and of `get -o jsonpath=`: `{.a.b}`, `{.list[:]}`,
//! `{.list[?(@.type=="Ready")].status}`. Without the braces they are those of RFC 9535 without the
//! leading `$`.

use serde_json::Value;
use serde_json_path::JsonPath;

use crate::table::printable;

/// Maximum length: the parser recurses, and no column has a longer path.
const MAX_LENGTH: usize = 1024;

/// The value of a node's path as a cell; an invalid path gives an empty cell. Refuses steps that
/// multiply their results, with which a node could keep this client busy forever.
pub fn column(value: &Value, path: &str) -> String {
    if path.contains("..") || path.contains(',') {
        return String::new();
    }
    parse(path).map_or_else(|_| String::new(), |path| select(&path, value))
}

/// The selected values, separated by blanks; empty if the path selects nothing.
pub fn select(path: &JsonPath, value: &Value) -> String {
    let cells: Vec<String> = path.query(value).iter().map(|found| cell(found)).collect();
    cells.join(" ")
}

/// Parses a path.
///
/// # Errors
/// A sentence for the user.
pub fn parse(path: &str) -> Result<JsonPath, String> {
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
        // JSON does not escape control characters from U+0080 to U+009F.
        other => printable(&other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn column_paths_select_the_right_values() {
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
    fn malformed_or_oversized_path_is_refused() {
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
