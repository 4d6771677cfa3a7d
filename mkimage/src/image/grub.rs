//! GRUB for firmware without EFI: its core image, boot sectors and configuration. Made from the
//! files of Debian's grub-pc-bin; never runs GRUB's own tools.
//!
//! GRUB loads kernel and initramfs from the unified kernel image, the only copy on the disk: it
//! opens the UKI as a disk (`loopback`) and addresses the sections by sector (`(uki)8+42`).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io::Read as _;
use std::path::Path;

use anyhow::{Context as _, ensure};
use liblzma::stream::{Filters, LzmaOptions, MatchFinder, Mode, Stream};
use object::read::elf::{ElfFile32, ProgramHeader as _};

use super::uki::{self, Section};
use super::{bytes, output};
use crate::error::{Failure, Result};

/// The modules of the core image. They read our disk and our ISO, open a file as a disk, start
/// Linux, use screen and serial line, and find a renamed UKI (`regexp` provides file name
/// patterns).
const MODULES: &[&str] = &[
    "biosdisk",
    "part_gpt",
    "part_msdos",
    "fat",
    "iso9660",
    "loopback",
    "linux",
    "normal",
    "test",
    "echo",
    "serial",
    "terminal",
    "regexp",
    "sleep",
    "reboot",
    "minicmd",
];

/// The link address of GRUB's kernel, and the end of the memory for the core image.
const LINK_ADDRESS: usize = 0x9000;
const MEMORY_END: usize = 0x78000;
/// Fields of `lzma_decompress.img`.
const COMPRESSED_SIZE: usize = 0x08;
const UNCOMPRESSED_SIZE: usize = 0x0c;
/// Fields of `boot.img`: where the core image starts; a jump that checks the drive number.
const KERNEL_SECTOR: usize = 0x5c;
const DRIVE_CHECK: usize = 0x66;
/// Block list at the end of `diskboot.img`: first sector (64 bits), count, segment (16 bits each).
const BLOCK_LIST: usize = 512 - 12;
const SECTOR: usize = 512;
/// Types of the objects after GRUB's kernel.
const OBJECT_ELF: u32 = 0;
const OBJECT_PREFIX: u32 = 3;

/// The boot code of a disk.
#[derive(Debug)]
pub struct DiskBoot {
    /// The first 440 bytes of the disk.
    pub mbr: Vec<u8>,
    /// The core image in whole sectors, for the sector given to [`disk`].
    pub core: Vec<u8>,
}

/// Boot code for a disk whose BIOS boot partition starts at `sector`. `dir` is
/// `/usr/lib/grub/i386-pc` of grub-pc-bin. The configuration is `prefix`/grub.cfg, such as
/// `(,gpt1)/grub` (the boot disk's first partition).
pub fn disk(dir: &Path, prefix: &str, sector: u64) -> Result<DiskBoot> {
    let mut mbr = output::read(&dir.join("boot.img"))?;
    bytes::put(&mut mbr, KERNEL_SECTOR, &sector.to_le_bytes())?;
    // A BIOS may pass a wrong drive number. GRUB's own installer skips the check on hard disks too.
    bytes::put(&mut mbr, DRIVE_CHECK, &[0x90, 0x90])?;
    mbr.truncate(440);
    let mut image = core(dir, prefix)?;
    bytes::put(
        &mut image,
        BLOCK_LIST,
        &sector.saturating_add(1).to_le_bytes(),
    )?;
    Ok(DiskBoot { mbr, core: image })
}

/// The El Torito boot image for a CD: GRUB's CD loader in front of the core image.
pub fn cd(dir: &Path, prefix: &str) -> Result<Vec<u8>> {
    let mut image = output::read(&dir.join("cdboot.img"))?;
    image.extend(core(dir, prefix)?);
    Ok(image)
}

/// diskboot.img, the decompressor, and the compressed kernel of GRUB with its modules.
fn core(dir: &Path, prefix: &str) -> Result<Vec<u8>> {
    let plain = kernel_and_modules(dir, prefix)?;
    let packed = compress(&plain)?;
    let mut decompressor = output::read(&dir.join("lzma_decompress.img"))?;
    for (field, value) in [
        (COMPRESSED_SIZE, packed.len()),
        (UNCOMPRESSED_SIZE, plain.len()),
    ] {
        bytes::put(
            &mut decompressor,
            field,
            &bytes::fit32(value, "GRUB")?.to_le_bytes(),
        )?;
    }
    let mut image = output::read(&dir.join("diskboot.img"))?;
    ensure!(
        image.len() == SECTOR,
        "diskboot.img is {} bytes, not one sector",
        image.len()
    );
    let body = decompressor.len().saturating_add(packed.len());
    ensure!(
        LINK_ADDRESS.saturating_add(body) < MEMORY_END,
        "GRUB's core image is too large"
    );
    image.extend(decompressor);
    image.extend(packed);
    bytes::pad(&mut image, SECTOR);
    let count = u16::try_from(image.len() / SECTOR - 1)?;
    bytes::put(&mut image, BLOCK_LIST + 8, &count.to_le_bytes())?;
    Ok(image)
}

/// The decompressor's output: the loadable part of kernel.img, then a list of objects (12-byte
/// header "mimg", offset, size; each object with type and size in front).
fn kernel_and_modules(dir: &Path, prefix: &str) -> Result<Vec<u8>> {
    let kernel = output::read(&dir.join("kernel.img"))?;
    let elf = ElfFile32::<object::LittleEndian>::parse(kernel.as_slice())
        .context("kernel.img is not an ELF program")?;
    let segment = elf
        .elf_program_headers()
        .iter()
        .find(|header| header.p_type.get(object::LittleEndian) == object::elf::PT_LOAD)
        .context("kernel.img has nothing to load")?;
    ensure!(
        segment.p_vaddr.get(object::LittleEndian) == bytes::fit32(LINK_ADDRESS, "address")?,
        "kernel.img is linked for another address"
    );
    let mut image = segment
        .data(object::LittleEndian, kernel.as_slice())
        .ok()
        .context("kernel.img ends early")?
        .to_vec();
    bytes::pad(&mut image, 4);

    let mut objects = Vec::new();
    let mut add = |kind: u32, content: &[u8]| -> Result<()> {
        let mut content = content.to_vec();
        bytes::pad(&mut content, 4);
        objects.extend(kind.to_le_bytes());
        objects.extend(bytes::fit32(content.len().saturating_add(8), "a module")?.to_le_bytes());
        objects.extend(content);
        Ok(())
    };
    for module in with_dependencies(dir)? {
        add(
            OBJECT_ELF,
            &output::read(&dir.join(format!("{module}.mod")))?,
        )?;
    }
    add(OBJECT_PREFIX, format!("{prefix}\0").as_bytes())?;
    image.extend(b"mimg");
    image.extend(12_u32.to_le_bytes());
    image.extend(bytes::fit32(objects.len().saturating_add(12), "GRUB's modules")?.to_le_bytes());
    image.extend(objects);
    Ok(image)
}

/// [`MODULES`] and their dependencies (moddep.lst), each after its dependencies.
fn with_dependencies(dir: &Path) -> Result<Vec<String>> {
    let list = output::read(&dir.join("moddep.lst"))?;
    let needs: BTreeMap<String, Vec<String>> = String::from_utf8_lossy(&list)
        .lines()
        .filter_map(|line| line.split_once(':'))
        .map(|(module, needs)| {
            (
                module.to_owned(),
                needs.split_whitespace().map(ToOwned::to_owned).collect(),
            )
        })
        .collect();
    let mut pending: Vec<(String, bool)> = MODULES
        .iter()
        .rev()
        .map(|module| ((*module).to_owned(), false))
        .collect();
    let (mut order, mut entered) = (Vec::new(), BTreeSet::new());
    while let Some((module, ready)) = pending.pop() {
        if ready {
            order.push(module);
        } else if entered.insert(module.clone()) {
            let below = needs.get(&module).cloned().unwrap_or_default();
            pending.push((module, true));
            pending.extend(below.into_iter().rev().map(|need| (need, false)));
        }
    }
    Ok(order)
}

/// LZMA in the form of GRUB's decompressor: no header, a 64 KiB dictionary, lc=3 lp=0 pb=2.
fn compress(data: &[u8]) -> Result<Vec<u8>> {
    let mut options = LzmaOptions::new_preset(9)?;
    options
        .dict_size(1 << 16)
        .literal_context_bits(3)
        .literal_position_bits(0)
        .position_bits(2)
        .mode(Mode::Normal)
        .nice_len(273)
        .match_finder(MatchFinder::BinaryTree4);
    let mut filters = Filters::new();
    filters.lzma1(&options);
    let mut packed = Vec::new();
    liblzma::read::XzEncoder::new_stream(data, Stream::new_raw_encoder(&filters)?)
        .read_to_end(&mut packed)?;
    Ok(packed)
}

/// GRUB's entry for one unified kernel image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The UKI's possible paths as GRUB patterns, best first: systemd-boot renames the UKI to count
    /// boots.
    pub paths: Vec<String>,
    /// The kernel command line.
    pub cmdline: String,
    /// `offset+length` of the kernel in 512-byte sectors.
    pub linux: String,
    /// `offset+length` of the initramfs in 512-byte sectors.
    pub initrd: String,
}

impl Entry {
    /// The entry for the UKI `image`, found under `paths`.
    pub fn new(image: &[u8], paths: Vec<String>) -> Result<Self> {
        let sections = uki::sections(image)?;
        let find = |name| uki::section(&sections, name);
        let cmdline = String::from_utf8(uki::content(image, find(".cmdline")?)?.to_vec())
            .context("the command line is not UTF-8")?;
        if let Some(bad) = cmdline
            .chars()
            .find(|c| "'\"\\".contains(*c) || c.is_control())
        {
            return Err(Failure::new(
                format!("GRUB cannot pass {bad:?} in the kernel command line {cmdline:?}"),
                "remove quotes and backslashes from the kernel arguments",
            ));
        }
        Ok(Self {
            paths,
            cmdline,
            linux: sectors(find(".linux")?)?,
            initrd: sectors(find(".initrd")?)?,
        })
    }
}

/// A section as a block list. The section starts at a sector, and zeros fill its last one.
fn sectors(section: &Section) -> Result<String> {
    let sector = bytes::size(SECTOR);
    ensure!(
        section.offset.is_multiple_of(sector),
        "{} does not start on a sector",
        section.name
    );
    Ok(format!(
        "{}+{}",
        section.offset / sector,
        section.size.div_ceil(sector)
    ))
}

/// grub.cfg: starts the first existing entry without a menu, because a node has no operator at the
/// screen. `before` are lines that make the UKIs visible.
pub fn config(before: &[&str], entries: &[Entry]) -> String {
    let mut text = String::from(
        "# Written by mkimage. Kernel and initramfs are read out of the unified kernel image,\n\
         # by sector; a replacement of that file needs its new numbers here.\n\
         set gfxpayload=text\n\
         if serial --unit=0 --speed=115200; then\n  \
           terminal_input console serial\n  terminal_output console serial\nfi\n",
    );
    for line in before {
        let _ = writeln!(text, "{line}");
    }
    for entry in entries {
        let arguments: Vec<String> = entry
            .cmdline
            .split_whitespace()
            .map(|argument| format!("'{argument}'"))
            .collect();
        let _ = write!(
            text,
            "for file in {}; do\n  if [ -e $file ]; then\n    loopback uki $file\n    \
             if linux (uki){} {}; then\n      if initrd (uki){}; then\n        boot\n      \
             fi\n    fi\n    loopback -d uki\n  fi\ndone\n",
            entry.paths.join(" "),
            entry.linux,
            arguments.join(" "),
            entry.initrd,
        );
    }
    text.push_str("echo \"No image could be started from $root; trying again in 10 seconds.\"\n");
    text.push_str("sleep 10\nreboot\n");
    text
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use liblzma::stream::Action;

    use super::*;

    fn dir() -> PathBuf {
        PathBuf::from("/usr/lib/grub/i386-pc")
    }

    /// Decompresses a core image as the decompressor does at boot.
    fn unpack(core: &[u8]) -> Vec<u8> {
        let decompressor = std::fs::metadata(dir().join("lzma_decompress.img"))
            .unwrap()
            .len();
        let body = &core[SECTOR..];
        let size = bytes::u32_le(body, UNCOMPRESSED_SIZE).unwrap();
        let mut options = LzmaOptions::new_preset(6).unwrap();
        options.dict_size(1 << 16);
        let mut filters = Filters::new();
        filters.lzma1(&options);
        let mut plain = Vec::with_capacity(usize::try_from(size).unwrap());
        let packed = &body[usize::try_from(decompressor).unwrap()..];
        Stream::new_raw_decoder(&filters)
            .unwrap()
            .process_vec(packed, &mut plain, Action::Run)
            .unwrap();
        plain
    }

    #[test]
    fn core_image_equals_that_of_grub_mkimage() {
        let scratch = crate::image::testing::Scratch::new();
        let theirs = scratch.path("core.img");
        let path = theirs.to_str().unwrap();
        let mut args = vec!["-O", "i386-pc", "-p", "(,gpt1)/grub", "-o", path];
        args.extend(MODULES);
        crate::image::testing::host("grub-mkimage", &args);
        let theirs = unpack(&std::fs::read(&theirs).unwrap());
        let ours = unpack(&disk(&dir(), "(,gpt1)/grub", 2048).unwrap().core);
        assert_eq!(ours.len(), theirs.len());
        let kernel = theirs.windows(4).rposition(|four| four == b"mimg").unwrap();
        assert!(
            ours[..kernel + 12] == theirs[..kernel + 12],
            "the kernel of GRUB differs"
        );
    }

    #[test]
    fn boot_code_points_at_its_partition() {
        let boot = disk(&dir(), "(,gpt1)/grub", 526_336).unwrap();
        assert_eq!(boot.mbr.len(), 440);
        assert_eq!(
            u64::from_le_bytes(bytes::get(&boot.mbr, KERNEL_SECTOR).unwrap()),
            526_336
        );
        assert_eq!(
            u64::from_le_bytes(bytes::get(&boot.core, BLOCK_LIST).unwrap()),
            526_337
        );
        let sectors = boot.core.len() / SECTOR - 1;
        assert_eq!(
            usize::from(bytes::u16_le(&boot.core, BLOCK_LIST + 8).unwrap()),
            sectors
        );
        assert_eq!(boot.core.len() % SECTOR, 0);
        assert!(cd(&dir(), "/grub").unwrap().len() > boot.core.len());
    }

    #[test]
    fn quotes_in_the_command_line_are_refused() {
        use crate::image::testing::{Scratch, release, stub};
        let scratch = Scratch::new();
        let (stub, out) = (scratch.file("stub", &stub()), scratch.path("uki"));
        let parts = uki::Uki {
            stub: &stub,
            vmlinuz: &stub,
            initramfs: &stub,
            cmdline: "a=\"b c\"",
            os_release: "",
            uname: "",
            signer: &crate::secure_boot::tests::signer(),
        };
        uki::build(&out, &release(), &parts).unwrap();
        let error = Entry::new(&std::fs::read(&out).unwrap(), Vec::new()).unwrap_err();
        assert!(
            error.to_string().starts_with("GRUB cannot pass '\"'"),
            "{error}"
        );
    }
}
