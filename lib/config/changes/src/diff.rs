//! The difference of two configs, for people.

use similar::TextDiff;

use corten_config::Document;
use corten_config::redact;

/// The difference as a unified diff, with every secret replaced and marked if it changed. `None` for equal configs.
/// Order and quotes are ignored.
#[must_use]
pub fn diff(old: Option<&Document>, new: &Document) -> Option<String> {
    let before = old
        .map(|old| redact::canonical(old.trees(), None))
        .unwrap_or_default();
    let after = redact::canonical(new.trees(), old.map(Document::trees));
    if before == after {
        return None;
    }
    let diff = TextDiff::from_lines(&before, &after);
    Some(diff.unified_diff().header("active", "new").to_string())
}
