//! The output format of `-o`, and answers as documents in it.

use std::str::FromStr;

use serde_json::Value;
use serde_json_path::JsonPath;

use crate::failure::Failure;
use crate::path;
use crate::table::harmless;

/// The output format of answers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Format {
    /// Columns or text, for people.
    #[default]
    Table,
    /// Documents, for programs.
    Document(Form),
}

/// The form of a document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Form {
    /// YAML.
    Yaml,
    /// JSON.
    Json,
    /// A line for each answer: the values that the expression selects.
    Jsonpath(JsonPath),
}

impl FromStr for Format {
    type Err = String;

    fn from_str(text: &str) -> Result<Format, String> {
        match text.split_once('=') {
            Some(("jsonpath", path)) => Ok(Format::Document(Form::Jsonpath(path::parse(path)?))),
            // `text` is the reference client's name in `config info`.
            None if text == "table" || text == "text" => Ok(Format::Table),
            None if text == "yaml" => Ok(Format::Document(Form::Yaml)),
            None if text == "json" => Ok(Format::Document(Form::Json)),
            _ => Err("give table, yaml, json or jsonpath=EXPRESSION".to_owned()),
        }
    }
}

impl Form {
    /// All answers together, as a list with an item for each.
    pub fn list(&self, items: Vec<Value>) -> Result<String, Failure> {
        match self {
            Form::Jsonpath(path) => Ok(items.iter().map(|item| line(item, path)).collect()),
            Form::Yaml | Form::Json => self.document(&Value::Array(items)),
        }
    }

    /// A single answer.
    pub fn document(&self, value: &Value) -> Result<String, Failure> {
        match self {
            Form::Jsonpath(path) => Ok(line(value, path)),
            Form::Yaml => serde_saphyr::to_string(value)
                .map(|text| harmless(&text))
                .map_err(|error| Failure::call(format!("cannot write YAML: {error}"))),
            Form::Json => {
                let text = serde_json::to_string_pretty(value).map_err(no_json)?;
                Ok(harmless(&text) + "\n")
            }
        }
    }

    /// One of an unknown number of answers, printed as it arrives. It is an item of a YAML list, or
    /// a JSON object on a line of its own.
    pub fn part(&self, value: Value) -> Result<String, Failure> {
        match self {
            Form::Yaml => self.document(&Value::Array(vec![value])),
            Form::Jsonpath(_) => self.document(&value),
            Form::Json => {
                let text = serde_json::to_string(&value).map_err(no_json)?;
                Ok(harmless(&text) + "\n")
            }
        }
    }
}

fn no_json(error: serde_json::Error) -> Failure {
    Failure::call(format!("cannot write JSON: {error}"))
}

fn line(value: &Value, path: &JsonPath) -> String {
    format!("{}\n", path::select(path, value))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const FORMATS: [&str; 3] = ["yaml", "json", "jsonpath={.a}"];

    fn form(text: &str) -> Form {
        match text.parse().unwrap() {
            Format::Document(form) => form,
            Format::Table => panic!("{text} is a table"),
        }
    }

    #[test]
    fn output_formats_parse_by_name() {
        assert_eq!("table".parse(), Ok(Format::Table));
        let path = path::parse("{.a}").unwrap();
        assert_eq!(form("jsonpath={.a}"), Form::Jsonpath(path));
        for wrong in ["wide", "json=x", "jsonpath", ""] {
            let refusal = wrong.parse::<Format>().unwrap_err();
            assert!(refusal.contains("jsonpath=EXPRESSION"), "{refusal}");
        }
        let refusal = "jsonpath={.a[".parse::<Format>().unwrap_err();
        assert!(refusal.contains("is not a path"), "{refusal}");
    }

    #[test]
    fn hostile_documents_do_not_steer_the_terminal() {
        let value = json!({ "a": "x\u{1b}[2J\u{9b}2J\ny" });
        for name in FORMATS {
            let form = form(name);
            for text in [
                form.list(vec![value.clone()]).unwrap(),
                form.document(&value).unwrap(),
                form.part(value.clone()).unwrap(),
            ] {
                let steers = |c: char| c.is_control() && c != '\n';
                assert!(!text.contains(steers), "{name}: {text:?}");
            }
        }
    }

    #[test]
    fn lists_can_be_read_back() {
        let items = vec![json!({"node": "a", "total": 1, "free": 0.5}), json!({})];
        let all = Value::Array(items.clone());
        let yaml = form("yaml").list(items.clone()).unwrap();
        assert_eq!(serde_saphyr::from_str::<Value>(&yaml).unwrap(), all);
        let json = form("json").list(items.clone()).unwrap();
        assert_eq!(serde_json::from_str::<Value>(&json).unwrap(), all);
        assert!(json.ends_with("]\n"));
        let lines = form("jsonpath={.total}").list(items).unwrap();
        assert_eq!(lines, "1\n\n");
    }

    #[test]
    fn concatenated_parts_read_back_as_the_list() {
        let items = [
            json!({"id": "a", "of": ["x"]}),
            json!({"id": "b", "of": []}),
        ];
        let written = |name: &str| -> String {
            let form = form(name);
            let parts = items.iter().map(|item| form.part(item.clone()).unwrap());
            parts.collect()
        };
        let yaml: Value = serde_saphyr::from_str(&written("yaml")).unwrap();
        assert_eq!(yaml, Value::Array(items.to_vec()));
        let json = written("json");
        let lines = json.lines().map(serde_json::from_str::<Value>);
        let lines: Result<Vec<_>, _> = lines.collect();
        assert_eq!(lines.unwrap(), items);
        assert_eq!(written("jsonpath={.id}"), "a\nb\n");
    }
}
