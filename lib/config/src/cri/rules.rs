//! The rules for containerd's settings in both forms.

use corten_yaml::json;
use corten_yaml::read::Reader;
use corten_yaml::tree::Node;

use super::{base_spec, part};

/// Path in `machine.files` of a part of containerd's configuration.
pub const PART_FILE: &str = "/etc/cri/conf.d/20-customization.part";
/// Name of that part; no document may have it.
pub const PART_NAME: &str = "customization";

/// Reports the problems of a part in the field `content`.
pub(crate) fn check_part(node: &Node, reader: &mut Reader<'_>) {
    let text = node.get("content").and_then(Node::text);
    for what in text.map(part::problems).unwrap_or_default() {
        reader.wrong_in(node, "content", &what);
    }
}

/// Reports the problems of base specification overrides in a field.
pub(crate) fn check_overrides(node: &Node, field: &str, reader: &mut Reader<'_>) {
    let Some(value) = node.get(field).filter(|value| !value.is_empty()) else {
        return;
    };
    reader.within(field, |reader| {
        for (step, what) in base_spec::problems(&json::of(value)) {
            match &*step {
                "" => reader.wrong(value.mark, &what),
                step => reader.within(step, |reader| reader.wrong(value.mark, &what)),
            }
        }
    });
}
