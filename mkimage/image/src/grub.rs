//! GRUB's code for firmware without EFI: boot sectors and core images, made from the files of Debian's grub-pc-bin.
//!
//! The code for disks is a section of the unified kernel image, so the image's signature covers it.
//! Never runs GRUB's own tools.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read as _;
use std::path::Path;

use anyhow::{Context as _, ensure};
use corten_installer::grub::{BOOT_CODE, Code};
use corten_steps::error::Result;
use liblzma::stream::{Filters, LzmaOptions, MatchFinder, Mode, Stream};
use object::read::elf::{ElfFile32, ProgramHeader as _};

use super::{bytes, output};

/// The modules of the core image. They read our disk and our ISO, open a file as a disk, start Linux, and use screen
/// and serial line. They find a renamed UKI (`regexp` provides file name patterns), and count its starts (`loadenv`).
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
    "loadenv",
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
/// Field of `boot.img`: a jump that checks the drive number.
const DRIVE_CHECK: usize = 0x66;
/// Block list at the end of `diskboot.img`: the number of sectors, after the first sector.
const BLOCK_COUNT: usize = 512 - 4;
const SECTOR: usize = 512;
/// Types of the objects after GRUB's kernel.
const OBJECT_ELF: u32 = 0;
const OBJECT_PREFIX: u32 = 3;

/// GRUB's directory on the boot disk's first partition.
const PREFIX: &str = "(,gpt1)/grub";

/// The code for a disk. `dir` is `/usr/lib/grub/i386-pc` of grub-pc-bin.
pub fn code(dir: &Path) -> Result<Code> {
    let mut mbr = output::read(&dir.join("boot.img"))?;
    // A BIOS may pass a wrong drive number. GRUB's own installer skips the check on hard disks too.
    bytes::put(&mut mbr, DRIVE_CHECK, &[0x90, 0x90])?;
    mbr.truncate(BOOT_CODE);
    Code::new(mbr, core(dir, PREFIX)?).context("the files of GRUB have another size")
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
    bytes::put(&mut image, BLOCK_COUNT, &count.to_le_bytes())?;
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
        let scratch = crate::testing::Scratch::new();
        let theirs = scratch.path("core.img");
        let path = theirs.to_str().unwrap();
        let mut args = vec!["-O", "i386-pc", "-p", PREFIX, "-o", path];
        args.extend(MODULES);
        crate::testing::host("grub-mkimage", &args);
        let theirs = unpack(&std::fs::read(&theirs).unwrap());
        let ours = unpack(&code(&dir()).unwrap().placed(2048).1);
        assert_eq!(ours.len(), theirs.len());
        let kernel = theirs.windows(4).rposition(|four| four == b"mimg").unwrap();
        assert!(
            ours[..kernel + 12] == theirs[..kernel + 12],
            "the kernel of GRUB differs"
        );
    }

    #[test]
    fn core_image_counts_its_sectors() {
        let (mbr, core) = code(&dir()).unwrap().placed(526_336);
        assert_eq!(mbr.len(), BOOT_CODE);
        assert_eq!(core.len() % SECTOR, 0);
        let sectors = core.len() / SECTOR - 1;
        let count = bytes::u16_le(&core, BLOCK_COUNT).unwrap();
        assert_eq!(usize::from(count), sectors);
        assert!(cd(&dir(), "/grub").unwrap().len() > core.len());
    }
}
