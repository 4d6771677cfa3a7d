//! Writes the config's device rules as a rule file for udevd.

use std::fs;
use std::io;
use std::path::Path;

use corten_base::durable::{Access, remove_if_there, replace_now};

/// udevd's directory of rule files made at run time.
pub const DIRECTORY: &str = "/run/udev/rules.d";

/// Sorts after all files of the image and its extensions. A rule's index in the config is its line number here, so
/// udevd's messages lead back to it.
const FILE: &str = "99-machine.rules";

/// Writes `rules` to `directory` atomically; removes the file if there are no rules. Leaves an unchanged file alone,
/// because udevd runs a coldplug after a change.
///
/// # Errors
/// If the file cannot be written or removed.
pub fn write<'a>(directory: &Path, rules: impl Iterator<Item = &'a str>) -> io::Result<()> {
    let text: String = rules.map(|rule| format!("{}\n", rule.trim_end())).collect();
    let path = directory.join(FILE);
    if text.is_empty() {
        return remove_if_there(&path);
    }
    if fs::read_to_string(&path).is_ok_and(|before| before == text) {
        return Ok(());
    }
    fs::create_dir_all(directory)?;
    replace_now(&path, &text, Access::ALL)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn udev_rules_are_written_replaced_and_removed() {
        let dir = tempfile::tempdir().unwrap();
        let rules = dir.path().join("rules.d");
        let text = || fs::read_to_string(rules.join(FILE)).ok();
        write(&rules, [].into_iter()).unwrap();
        assert!(!rules.exists());
        write(
            &rules,
            ["KERNEL==\"a\", \\\n  TAG+=\"b\"\n", "# c"].into_iter(),
        )
        .unwrap();
        assert_eq!(
            text().as_deref(),
            Some("KERNEL==\"a\", \\\n  TAG+=\"b\"\n# c\n")
        );
        write(&rules, ["# d"].into_iter()).unwrap();
        assert_eq!(text().as_deref(), Some("# d\n"));
        assert_eq!(fs::read_dir(&rules).unwrap().count(), 1);
        write(&rules, [].into_iter()).unwrap();
        assert_eq!(text(), None);
    }
}
