//! Places on the EFI partition that firmware, boot loader, node and image builder agree on.

use crate::esp::{Content, FatFile, LOADER_CONF};

/// Directory of the versions (Boot Loader Specification, "Type #2").
pub const IMAGES: &str = "EFI/Linux";

/// Path of the boot loader, which firmware starts without being told to (UEFI 2.10, section 3.5.1.1). `architecture` has
/// the spelling of OCI images.
#[must_use]
pub fn loader_path(architecture: &str) -> &'static str {
    match architecture {
        "arm64" => "EFI/BOOT/BOOTAA64.EFI",
        _ => "EFI/BOOT/BOOTX64.EFI",
    }
}

/// Path of a version's file.
#[must_use]
pub fn image_path(name: &str) -> String {
    format!("{IMAGES}/{name}")
}

/// The files that start a version: the boot loader, the version's image under `name`, and the loader's configuration.
#[must_use]
pub fn boot_files(
    architecture: &str,
    loader: Content,
    (name, image): (&str, Content),
) -> Vec<FatFile> {
    let conf = Content::Bytes(LOADER_CONF.into());
    vec![
        (loader_path(architecture).to_owned(), loader),
        (image_path(name), image),
        ("loader/loader.conf".to_owned(), conf),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boot_files_are_where_firmware_and_boot_loader_look() {
        for (architecture, expected) in [("amd64", "X64"), ("arm64", "AA64")] {
            let empty = || Content::Bytes(Vec::new());
            let name = "corten-1.2.3+3.efi";
            let files = boot_files(architecture, empty(), (name, empty()));
            let paths: Vec<&str> = files.iter().map(|(path, _)| path.as_str()).collect();
            let boot = format!("EFI/BOOT/BOOT{expected}.EFI");
            let image = "EFI/Linux/corten-1.2.3+3.efi";
            assert_eq!(paths, [boot.as_str(), image, "loader/loader.conf"]);
        }
    }
}
