//! Installers of versions that the builder does not make: with another initramfs, signed with the development keys.

use std::path::{Path, PathBuf};

use corten_image::Release;
use corten_image::installer::{self, Installer};
use corten_image::secure_boot::{Signer, enrolment};
use corten_image::uki::{self, Uki};
use corten_rootfs::tree::os_release;

use crate::initramfs::{self, Entry};
use crate::{images, secure_boot, workspace};

/// Writes the installer of a version for machines with UEFI to `directory`. It is that of the network boot bundle in
/// the image directory's subdirectory `name`, with a changed initramfs.
///
/// # Panics
/// The bundle is not built, or a file cannot be written.
#[must_use]
pub fn installer(
    name: &str,
    version: &str,
    directory: &Path,
    change: impl FnOnce(&mut Vec<Entry>),
) -> PathBuf {
    let bundle = images::direct_of(&images::other(name, "-pxe"));
    let mut entries = initramfs::read(bundle.initrd.as_deref().expect("an initramfs"));
    change(&mut entries);
    let [initrd, image, archive] =
        ["initramfs", "corten.efi", "installer.tar"].map(|file| directory.join(file));
    initramfs::write(&initrd, &entries);

    let names = images::builder_arch().names();
    let step = |name: &str| workspace::step_output(name).expect("a built step");
    let stub = step("boot")
        .join("usr/lib/systemd/boot/efi")
        .join(names.sd_stub);
    let release = Release {
        version: version.to_owned(),
        arch: images::builder_arch(),
        epoch: 0,
    };
    let keys = workspace::root().join(secure_boot::KEYS);
    let signer = Signer::read(&keys, &enrolment::DB).expect("the development keys");
    let parts = Uki {
        stub: &stub,
        vmlinuz: &bundle.kernel,
        initramfs: &initrd,
        cmdline: &bundle.append,
        os_release: &os_release(version),
        uname: version,
        grub: None,
        signer: &signer,
    };
    uki::build(&image, &release, &parts).expect("a unified kernel image");
    let installer = Installer {
        uki: &image,
        sd_boot: &step("signed").join("systemd-boot.efi"),
    };
    installer::build(&archive, &release, &installer).expect("an installer");
    archive
}
