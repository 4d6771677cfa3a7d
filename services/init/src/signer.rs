//! Whose the image is: the digest of the key that has signed it, as a file of the initramfs.

use std::fs;
use std::path::Path;

/// Where machined finds it.
pub const VARIABLE: &str = "CORTEN_IMAGE_SIGNER";

const FILE: &str = "signer";
/// Hexadecimal digits of SHA-256.
const DIGITS: usize = 64;

/// Of the initramfs at `top`; `None` when it has none that can be read.
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
    fn the_digest_of_a_key_is_handed_on_and_anything_else_is_none() {
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
