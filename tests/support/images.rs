//! The images under test: the output of `make image` in `_out`.

use std::fs;
use std::path::{Path, PathBuf};

use corten_image::pxe;
use qemu::{Arch, DirectBoot};

use crate::workspace;

/// The image directory: `CORTEN_OUT`, or `_out` in the repository.
#[must_use]
pub fn directory() -> PathBuf {
    std::env::var_os("CORTEN_OUT").map_or_else(|| workspace::root().join("_out"), PathBuf::from)
}

/// The version in the images' names.
#[must_use]
pub fn version() -> String {
    std::env::var("CORTEN_VERSION").unwrap_or_else(|_| env!("CARGO_PKG_VERSION").to_owned())
}

/// The images' architecture: `CORTEN_ARCH`, or x86_64.
///
/// # Panics
/// `CORTEN_ARCH` is no known architecture.
#[must_use]
pub fn arch() -> Arch {
    std::env::var("CORTEN_ARCH").map_or(Arch::X86_64, |name| {
        Arch::from_name(&name).expect("CORTEN_ARCH: x86_64 or arm64")
    })
}

/// The images' architecture as the builder's type.
///
/// # Panics
/// The builder does not know it.
#[must_use]
pub fn builder_arch() -> corten_steps::arch::Arch {
    let name = arch().name();
    name.parse().expect("an architecture of the builder")
}

/// The image with this ending, such as `.raw`.
///
/// # Panics
/// The image has not been built: a test that needs it must not pass.
#[must_use]
pub fn image(ending: &str) -> PathBuf {
    let path = directory().join(format!("corten-{}-{}{ending}", version(), arch().name()));
    assert!(
        path.exists(),
        "{} is missing; `make image` builds it",
        path.display()
    );
    path
}

/// The image with this ending, of another version, from a subdirectory of the image directory.
///
/// # Panics
/// It has not been built.
#[must_use]
pub fn other(subdirectory: &str, ending: &str) -> PathBuf {
    let directory = directory().join(subdirectory);
    let found = fs::read_dir(&directory).into_iter().flatten().flatten();
    let mut files = found.map(|entry| entry.path());
    let image = files.find(|path| path.to_string_lossy().ends_with(ending));
    image.unwrap_or_else(|| panic!("no file with {ending} in {}", directory.display()))
}

/// Kernel, initramfs and parameters of the network boot bundle, for QEMU's own loader. The
/// parameters are those of the bundle's iPXE script.
///
/// # Panics
/// The bundle is missing or its script names no kernel.
#[must_use]
pub fn direct() -> DirectBoot {
    direct_of(&image("-pxe"))
}

/// As [`direct`], of any network boot bundle.
///
/// # Panics
/// The bundle's script names no kernel.
#[must_use]
pub fn direct_of(bundle: &Path) -> DirectBoot {
    let script = fs::read_to_string(bundle.join(pxe::SCRIPT)).expect("the bundle's script");
    let append = pxe::command_line(&script).expect("a kernel line in the script");
    DirectBoot {
        kernel: bundle.join(pxe::KERNEL),
        initrd: Some(bundle.join(pxe::INITRAMFS)),
        append: append.to_owned(),
    }
}

/// The TFTP directory and the boot file for firmware that boots from the network. iPXE runs the
/// bundle's script; UEFI starts the unified kernel image.
///
/// # Panics
/// The bundle has not been built.
#[must_use]
pub fn network() -> (PathBuf, String) {
    if arch().has_bios() {
        return (image("-pxe"), pxe::SCRIPT.to_owned());
    }
    let uki = image(".efi");
    let name = uki.file_name().expect("a file name").to_string_lossy();
    (directory(), name.into_owned())
}
