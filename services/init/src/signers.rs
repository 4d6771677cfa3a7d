//! Signers that the image accepts: the digests of their keys, from a file of the initramfs.

use std::fs;
use std::path::Path;

/// Environment variable that passes the digests to machined.
pub const VARIABLE: &str = "CORTEN_IMAGE_SIGNERS";

const FILE: &str = "signers";
/// Length of a SHA-256 digest in hexadecimal digits.
const DIGITS: usize = 64;

/// Digests in the initramfs at `top`, separated by commas; `None` if they are missing or one is malformed.
pub fn of_image(top: &Path) -> Option<String> {
    let text = fs::read_to_string(top.join(FILE)).ok()?;
    let is_digest =
        |text: &str| text.len() == DIGITS && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let text = text.trim();
    text.split(',').all(is_digest).then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn valid_signer_digests_are_passed_on_and_malformed_ones_are_ignored() {
        let top = std::env::temp_dir().join(format!("corten-init-signers-{}", std::process::id()));
        fs::create_dir_all(&top).unwrap();
        let read = |text: &str| {
            fs::write(top.join(FILE), text).unwrap();
            of_image(&top)
        };
        let digest = "0f".repeat(32);
        let two = format!("{digest},{digest}");
        assert_eq!(read(&format!("{digest}\n")), Some(digest.clone()));
        assert_eq!(read(&format!("{two}\n")), Some(two.clone()));
        let wrong = [
            "",
            "0f",
            &digest.replace('f', "g"),
            &format!("{digest}0"),
            &format!("{digest},"),
            &format!("{two},0f"),
        ];
        for wrong in wrong {
            assert_eq!(read(wrong), None, "{wrong}");
        }
        fs::remove_file(top.join(FILE)).unwrap();
        assert_eq!(of_image(&top), None);
        fs::remove_dir(&top).unwrap();
    }
}
