//! The hybrid ISO: a CD or a USB stick, for BIOS and UEFI, with one copy of the kernel.
//!
//! That copy is the UKI inside the FAT image `efi.img`. UEFI finds the image as El Torito entry (CD) and as a GPT
//! partition (stick). GRUB opens the image as a disk, and the UKI in it as another disk.

use std::ffi::OsString;
use std::path::Path;

use anyhow::Context as _;
use corten_installer::grub::{Start, medium_config};
use corten_installer::image_path;
use corten_steps::calendar;
use corten_steps::error::{Failure, Result};
use corten_steps::tool::Tool;

use super::fat::{self, FatFile};
use super::{Release, grub, output, raw};

/// The content of an ISO.
#[derive(Debug)]
pub struct Iso<'a> {
    /// The unified kernel image.
    pub uki: &'a Path,
    /// systemd-boot ([`corten_steps::arch::Names::sd_boot`]).
    pub sd_boot: &'a Path,
    /// The directory of the files that enrol the firmware's keys.
    pub enrol: &'a Path,
    /// GRUB's directory ([`corten_steps::arch::Names::grub`]) for BIOS; `None` makes an ISO for UEFI only.
    pub grub: Option<&'a Path>,
    /// xorriso, by name or path.
    pub xorriso: &'a Path,
    /// A directory for intermediate files, empty and writable.
    pub work: &'a Path,
}

/// The FAT image inside the ISO.
const EFI_IMAGE: &str = "efi.img";
/// Below level 3 a file of an ISO is smaller than 4 GiB, and no CD is that large.
const LARGEST: u64 = 2 << 30;

/// Writes the ISO to `out`.
pub fn build(out: &Path, release: &Release, iso: &Iso<'_>) -> Result<()> {
    let files = efi_files(release, iso);
    let size = fat::size_for(&files, 0)?;
    if size > LARGEST {
        return Err(Failure::new(
            format!("the ISO would hold {size} bytes, more than 2 GiB"),
            "leave out system extensions",
        ));
    }
    let efi = iso.work.join(EFI_IMAGE);
    fat::build(&efi, release, size, &files)?;
    let mut call = common(iso.xorriso, out, release);
    let mut grafts = vec![graft(EFI_IMAGE, &efi)];
    if let Some(dir) = iso.grub {
        let (core, config) = (iso.work.join("eltorito.img"), iso.work.join("grub.cfg"));
        let text = grub_config(release, iso.uki)?;
        output::create(&core, |file| {
            Ok(std::io::Write::write_all(
                file,
                &grub::cd(dir, "/boot/grub")?,
            )?)
        })?;
        output::create(&config, |file| {
            Ok(std::io::Write::write_all(file, text.as_bytes())?)
        })?;
        // `--grub2-*` put the core image's sector into its block list and into the boot sector.
        call = call
            .args([
                "-b",
                "boot/grub/eltorito.img",
                "-no-emul-boot",
                "-boot-load-size",
                "4",
            ])
            .args(["-boot-info-table", "--grub2-boot-info", "--grub2-mbr"])
            .arg(dir.join("boot_hybrid.img"))
            .arg("-eltorito-alt-boot");
        grafts.push(graft("boot/grub/eltorito.img", &core));
        grafts.push(graft("boot/grub/grub.cfg", &config));
    }
    // The catalog has 16 bits for the size in sectors: 32 MiB. Firmware takes 0 or 1 as "to the end".
    call = call
        .args(["-e", EFI_IMAGE, "-no-emul-boot", "-boot-load-size", "1"])
        .args(["-efi-boot-part", "--efi-boot-image"])
        .args(["-graft-points"])
        .args(grafts);
    output::checked(out, || {
        call.run()?;
        output::readable(out)
    })
}

/// The xorriso call up to the boot options: names and dates.
fn common(xorriso: &Path, out: &Path, release: &Release) -> Tool {
    let digits: String = calendar::rfc3339(release.epoch)
        .chars()
        .filter(char::is_ascii_digit)
        .collect();
    let date = format!("{digits}00");
    let disk = release.uuid("iso").simple().to_string();
    Tool::new(xorriso)
        .env("SOURCE_DATE_EPOCH", release.epoch.to_string())
        .args(["-as", "mkisofs", "-quiet", "-o"])
        .arg(out)
        .args([
            "-V",
            &volume_id(release),
            "-iso-level",
            "3",
            "-r",
            "-J",
            "-joliet-long",
        ])
        .args([
            "--set_all_file_dates",
            &date,
            &format!("--modification-date={date}"),
        ])
        .args(["--gpt_disk_guid", &disk, "-partition_offset", "0"])
}

/// `CORTEN_0_1_0_X86_64`: a volume name with the characters that ISO 9660 allows.
pub fn volume_id(release: &Release) -> String {
    corten_installer::medium_label(&release.version, &release.arch.to_string())
}

/// The UKI's name has no boot counter: an ISO is read-only.
fn uki_name(release: &Release) -> String {
    format!("corten-{}.efi", release.version)
}

fn efi_files(release: &Release, iso: &Iso<'_>) -> Vec<FatFile> {
    let programs = (iso.sd_boot, iso.uki);
    raw::boot_files(release, programs, &uki_name(release), iso.enrol)
}

fn grub_config(release: &Release, uki: &Path) -> Result<String> {
    let start = Start::of(uki).with_context(|| format!("reading {} for GRUB", uki.display()))?;
    let loopback = format!("loopback esp ($root)/{EFI_IMAGE}");
    let path = format!("(esp)/{}", image_path(&uki_name(release)));
    Ok(medium_config(&loopback, &path, &start))
}

fn graft(name: &str, file: &Path) -> OsString {
    let mut graft = OsString::from(format!("{name}="));
    graft.push(file);
    graft
}
