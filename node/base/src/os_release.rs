//! What the image says of itself.

use std::fs;

/// Of the root file system.
const FILE: &str = "/etc/os-release";

/// The version of the image that runs; empty when it does not tell.
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
    fn the_version_is_read_with_and_without_quotes() {
        for text in ["ID=corten\nIMAGE_VERSION=1.2\n", "IMAGE_VERSION=\"1.2\""] {
            assert_eq!(of(text), "1.2");
        }
        assert_eq!(of("ID=corten\n"), "");
    }
}
