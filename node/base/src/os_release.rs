//! Reads the image's os-release.

use std::fs;

/// Path in the root file system.
const FILE: &str = "/etc/os-release";

/// Version of the running image; empty if os-release has none.
#[must_use]
pub fn image_version() -> String {
    of(&fs::read_to_string(FILE).unwrap_or_default())
}

fn of(text: &str) -> String {
    let mut values = text
        .lines()
        .filter_map(|line| line.strip_prefix("IMAGE_VERSION="));
    let value = values.next().unwrap_or_default();
    value.trim_matches(['"', '\'']).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn image_version_is_read_with_and_without_quotes() {
        for text in ["ID=corten\nIMAGE_VERSION=1.2\n", "IMAGE_VERSION=\"1.2\""] {
            assert_eq!(of(text), "1.2");
        }
        assert_eq!(of("ID=corten\n"), "");
    }
}
