//! Names in maps: of environment variables, kernel settings, labels.

use corten_values::is_variable;
use corten_yaml::read::Reader;
use corten_yaml::tree::Node;

/// Checks the keys of a map, which become paths or variables.
pub(crate) fn names_are(node: &Node, field: &str, good: fn(&str) -> bool, reader: &mut Reader<'_>) {
    let entries = node.get(field).map(Node::entries).unwrap_or_default();
    reader.within(field, |reader| {
        for (key, _) in entries.iter().filter(|(key, _)| !good(&key.name)) {
            reader.wrong(key.mark, "has an invalid name");
        }
    });
}

/// Checks the names and values of environment variables.
pub(crate) fn check_variables(node: &Node, field: &str, reader: &mut Reader<'_>) {
    names_are(node, field, is_variable, reader);
    let entries = node.get(field).map(Node::entries).unwrap_or_default();
    reader.within(field, |reader| {
        let has_zero = |value: &Node| value.text().is_some_and(|text| text.contains('\0'));
        for (key, _) in entries.iter().filter(|(_, value)| has_zero(value)) {
            reader.wrong(key.mark, "has a value with a zero byte in it");
        }
    });
}
