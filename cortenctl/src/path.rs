//! The JSON paths in a type's columns: `{.a.b}`, `{.list[:]}`, `{.list[*].a}`.
//! Filters are not known, and select nothing.

use serde_json::Value;

use crate::table::printable;

/// What a path selects, as a cell. Nothing selected is an empty cell.
pub(crate) fn text(value: &Value, path: &str) -> String {
    let path = path.trim_start_matches('{').trim_end_matches('}');
    let mut selected = vec![value];
    for step in path.split('.').filter(|step| !step.is_empty()) {
        let (key, index) = match step.split_once('[') {
            Some((key, index)) => (key, Some(index)),
            None => (step, None),
        };
        selected = selected
            .into_iter()
            .filter_map(|value| value.get(key))
            .collect();
        selected = match index {
            None => selected,
            Some(":]" | "*]") => selected.into_iter().flat_map(elements).collect(),
            Some(_) => Vec::new(),
        };
    }
    let cells: Vec<String> = selected.into_iter().map(cell).collect();
    cells.join(" ")
}

fn elements(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

fn cell(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => printable(text),
        other => other.to_string(),
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
        });
        for (path, expected) in [
            ("{.stage}", "running"),
            ("{.status.ready}", "true"),
            ("{.aliases}", r#"["a","b"]"#),
            ("{.aliases[:]}", "a b"),
            ("{.endpoints[*].host}", "x y"),
            ("{.missing}", ""),
            ("{.stage.deeper}", ""),
            (r#"{.conditions[?(@.type=="Ready")].status}"#, ""),
        ] {
            assert_eq!(text(&spec, path), expected, "{path}");
        }
    }
}
