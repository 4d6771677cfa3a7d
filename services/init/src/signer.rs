//! Signer of the image: the digest of its key, from a file of the initramfs.

use std::fs;
use std::path::Path;

/// Environment variable that passes the digest to machined.
pub const VARIABLE: &str = "CORTEN_IMAGE_SIGNER";

const FILE: &str = "signer";
/// Length of a SHA-256 digest in hexadecimal digits.
const DIGITS: usize = 64;

/// Digest in the initramfs at `top`; `None` if it is missing or malformed.
pub fn of_image(top: &Path) -> Option<String> {
    let text = fs::read_to_string(top.join(FILE)).ok()?;
    let text = text.trim();
    let is_digest = text.len() == DIGITS && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_digest.then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn valid_signer_digest_is_passed_on_and_malformed_ones_are_ignored() {
        let top = std::env::temp_dir().join(format!("corten-init-signer-{}", std::process::id()));
        fs::create_dir_all(&top).unwrap();
        let read = |text: &str| {
            fs::write(top.join(FILE), text).unwrap();
            of_image(&top)
        };
        let digest = "0f".repeat(32);
        assert_eq!(read(&format!("{digest}\n")), Some(digest.clone()));
        for wrong in ["", "0f", &digest.replace('f', "g"), &format!("{digest}0")] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
        fs::remove_file(top.join(FILE)).unwrap();
        assert_eq!(of_image(&top), None);
        fs::remove_dir(&top).unwrap();
    }
}
