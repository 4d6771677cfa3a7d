//! The unified kernel image: systemd-stub with our sections appended (UEFI Specification 2.10, PE32+).
//!
//! Section data starts on a 4 KiB boundary, so GRUB addresses kernel and initramfs in the same file by sector. The file
//! has no gaps between sections, so every signing tool and every firmware computes the same digest.

use std::path::Path;

use anyhow::{Context as _, anyhow, ensure};
use corten_installer::grub::SECTION;
use corten_steps::arch::Arch;
use corten_steps::error::{Failure, Result};
use object::read::pe::{ImageNtHeaders as _, ImageOptionalHeader as _, PeFile64};
use object::{LittleEndian as LE, pe};
use serde::Serialize;

use super::pe::set_checksum;
use super::{Release, bytes, grub, output};
use crate::secure_boot::{Signer, authenticode};

/// The content of a unified kernel image.
#[derive(Debug)]
pub struct Uki<'a> {
    /// systemd-stub of the same architecture ([`corten_steps::arch::Names::sd_stub`]).
    pub stub: &'a Path,
    /// The kernel, an EFI program.
    pub vmlinuz: &'a Path,
    /// The initramfs.
    pub initramfs: &'a Path,
    /// The kernel command line.
    pub cmdline: &'a str,
    /// The text of os-release; systemd-boot shows its `PRETTY_NAME` and sorts by `VERSION_ID`.
    pub os_release: &'a str,
    /// `uname -r` of the kernel.
    pub uname: &'a str,
    /// GRUB's directory ([`corten_steps::arch::Names::grub`]), for disks that BIOS starts.
    pub grub: Option<&'a Path>,
    /// The signer of the image.
    pub signer: &'a Signer,
}

/// A section of a unified kernel image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Section {
    /// Its name, such as `.linux`.
    pub name: String,
    /// Offset of its data in the file, in bytes.
    pub offset: u64,
    /// Size of its data in bytes, without padding.
    pub size: u64,
}

/// Alignment of section data in the file. A block list addresses disk sectors, and a page can be mapped without a copy.
const FILE_ALIGNMENT: u64 = 4096;
/// `IMAGE_SCN_CNT_INITIALIZED_DATA | IMAGE_SCN_MEM_READ`.
const READ_ONLY_DATA: u32 = pe::IMAGE_SCN_CNT_INITIALIZED_DATA.0 | pe::IMAGE_SCN_MEM_READ.0;
const SECTION_HEADER: usize = 40;
/// Fields of a section header: size and file offset of the section's data.
const RAW_SIZE: usize = 16;
const RAW_OFFSET: usize = 20;
/// Offsets in the optional header (PE32+, after the signature and the COFF header).
const SIZE_OF_INITIALIZED_DATA: usize = 8;
const SIZE_OF_IMAGE: usize = 56;
/// Some tools of firmware and GRUB read offsets as signed 32-bit numbers; half of that range
/// suffices.
const LARGEST: u64 = 1 << 30;

/// Writes the image to `out`.
pub fn build(out: &Path, release: &Release, parts: &Uki<'_>) -> Result<()> {
    let stub = output::read(parts.stub)?;
    let mut sections = vec![
        (".osrel", parts.os_release.as_bytes().to_vec()),
        (".cmdline", parts.cmdline.as_bytes().to_vec()),
        (".uname", parts.uname.as_bytes().to_vec()),
        (".sbat", sbat(&stub, release)?),
        (".initrd", output::read(parts.initramfs)?),
        (".linux", kernel(parts.vmlinuz, release)?),
    ];
    if let Some(dir) = parts.grub {
        sections.insert(0, (SECTION, grub::code(dir)?.section()));
    }
    let total: usize = sections.iter().map(|(_, data)| data.len()).sum();
    if bytes::size(total) > LARGEST {
        return Err(Failure::new(
            format!("the image would hold {total} bytes, more than 1 GiB"),
            "leave out system extensions",
        ));
    }
    let image = append(stub, release, &sections)
        .with_context(|| format!("adding sections to {}", parts.stub.display()))?;
    let image = authenticode::sign(image, parts.signer).context("signing the image")?;
    output::create(out, |file| Ok(std::io::Write::write_all(file, &image)?))
}

/// The sections of the image in `data`, in file order.
pub fn sections(data: &[u8]) -> Result<Vec<Section>> {
    let file = PeFile64::parse(data).context("this is not an EFI program")?;
    file.section_table()
        .iter()
        .map(|header| {
            let raw = u64::from(header.size_of_raw_data.get(LE));
            Ok(Section {
                name: String::from_utf8_lossy(header.raw_name()).into_owned(),
                offset: u64::from(header.pointer_to_raw_data.get(LE)),
                size: raw.min(u64::from(header.virtual_size.get(LE))),
            })
        })
        .collect()
}

/// The section called `name`; an error if it is missing.
pub fn section<'a>(sections: &'a [Section], name: &str) -> Result<&'a Section> {
    sections
        .iter()
        .find(|section| section.name == name)
        .ok_or_else(|| anyhow!("there is no {name} section: not a unified kernel image"))
}

/// The bytes of a section in `data`.
pub fn content<'a>(data: &'a [u8], section: &Section) -> Result<&'a [u8]> {
    bytes::slice(
        data,
        bytes::index(section.offset)?,
        bytes::index(section.size)?,
    )
}

/// The architecture of an EFI program; `None` if the file is no EFI program or for an unsupported
/// machine.
pub fn arch(program: &[u8]) -> Option<Arch> {
    let file = PeFile64::parse(program).ok()?;
    let machine = file.nt_headers().file_header().machine.get(LE).0;
    let mut all = Arch::ALL.into_iter();
    all.find(|arch| arch.names().pe_machine == machine)
}

/// Reads the kernel; refuses one of another architecture, without an EFI stub, or with a signature
/// of its own.
fn kernel(path: &Path, release: &Release) -> Result<Vec<u8>> {
    let data = output::read(path)?;
    if arch(&data) == Some(release.arch) {
        if authenticode::is_signed(&data)? {
            return Err(Failure::new(
                format!("{} has a signature of its own", path.display()),
                "use an unsigned kernel: firmware would start a signed kernel with any initramfs and command line",
            ));
        }
        return Ok(data);
    }
    Err(Failure::new(
        format!(
            "{} is not an EFI program for {}",
            path.display(),
            release.arch
        ),
        "build the kernel for this architecture, with CONFIG_EFI_STUB=y",
    ))
}

/// The stub's revocation lines and ours in one table, which Secure Boot's revocation list refers
/// to.
fn sbat(stub: &[u8], release: &Release) -> Result<Vec<u8>> {
    let all = sections(stub)?;
    let theirs = content(stub, section(&all, ".sbat")?)?;
    let mut table: Vec<u8> = theirs
        .iter()
        .copied()
        .take_while(|byte| *byte != 0)
        .collect();
    if table.last() != Some(&b'\n') {
        table.push(b'\n');
    }
    table.extend(format!("corten,1,Corten,corten,{},-\n", release.version).bytes());
    Ok(table)
}

/// The stub's headers: the offsets to change and the space in use.
struct Layout {
    /// Offset of the COFF header, after the signature.
    coff: usize,
    optional: usize,
    table: usize,
    /// The unchanged section headers.
    kept: Vec<u8>,
    /// Size of the old section table in bytes.
    old_table: usize,
    /// The end of all headers.
    room: usize,
    /// The first free address.
    address: u64,
    alignment: u64,
    /// `SizeOfInitializedData`.
    initialized: u64,
}

impl Layout {
    /// The layout of `stub`, to which the sections `new` will be added.
    fn of(stub: &[u8], release: &Release, new: &[(&str, Vec<u8>)]) -> Result<Self> {
        let file = PeFile64::parse(stub)?;
        let headers = file.nt_headers();
        ensure!(
            headers.file_header().machine.get(LE).0 == release.arch.names().pe_machine,
            "the stub is not for {}",
            release.arch
        );
        let optional = headers.optional_header();
        let alignment = u64::from(optional.section_alignment());
        ensure!(
            alignment.is_power_of_two(),
            "the stub's section alignment is {alignment}"
        );
        let (mut kept, mut address) = (Vec::new(), 0);
        for header in file.section_table().iter() {
            let end = u64::from(header.virtual_address.get(LE))
                .saturating_add(u64::from(header.virtual_size.get(LE)));
            address = bytes::align(end, alignment).max(address);
            if !new
                .iter()
                .any(|(name, _)| name.as_bytes() == header.raw_name())
            {
                kept.extend_from_slice(object::pod::bytes_of(header));
            }
        }
        let coff = bytes::index(u64::from(bytes::u32_le(stub, 0x3c)?))?.saturating_add(4);
        let optional_size = headers.file_header().size_of_optional_header.get(LE);
        let optional_at = coff.saturating_add(20);
        Ok(Self {
            coff,
            optional: optional_at,
            table: optional_at.saturating_add(usize::from(optional_size)),
            kept,
            old_table: file.section_table().len().saturating_mul(SECTION_HEADER),
            room: bytes::index(u64::from(optional.size_of_headers()))?,
            address,
            alignment,
            initialized: u64::from(optional.size_of_initialized_data()),
        })
    }
}

/// Adds the sections after the stub's own, replacing those of the same name. The result is
/// unsigned.
///
/// # Errors
/// The stub is no EFI program of the release's architecture, or has no room for the section
/// headers.
pub fn append(mut image: Vec<u8>, release: &Release, new: &[(&str, Vec<u8>)]) -> Result<Vec<u8>> {
    let layout = Layout::of(&image, release, new)?;
    let (mut address, mut initialized) = (layout.address, layout.initialized);
    let mut table = layout.kept;
    for (name, data) in new {
        bytes::pad(&mut image, bytes::index(FILE_ALIGNMENT)?);
        let (offset, size) = (bytes::size(image.len()), bytes::size(data.len()));
        image.extend_from_slice(data);
        bytes::pad(&mut image, bytes::index(FILE_ALIGNMENT)?);
        let raw = bytes::size(image.len()).saturating_sub(offset);
        table.extend_from_slice(&bytes::fixed::<8>(name));
        for field in [
            size,
            address,
            raw,
            offset,
            0,
            0,
            0,
            u64::from(READ_ONLY_DATA),
        ] {
            table.extend_from_slice(&bytes::fit32(field, name)?.to_le_bytes());
        }
        address = bytes::align(address.saturating_add(size.max(1)), layout.alignment);
        initialized = initialized.saturating_add(raw);
    }
    close_gaps(&mut table)?;
    let end = layout.table.saturating_add(table.len());
    ensure!(
        end <= layout.room,
        "its headers have no room for {} more sections",
        new.len()
    );
    bytes::put(&mut image, layout.table, &vec![0; layout.old_table])?;
    bytes::put(&mut image, layout.table, &table)?;
    let count = u16::try_from(table.len() / SECTION_HEADER)?;
    bytes::put(
        &mut image,
        layout.coff.saturating_add(2),
        &count.to_le_bytes(),
    )?;
    for (field, value) in [
        (
            SIZE_OF_INITIALIZED_DATA,
            bytes::fit32(initialized, "SizeOfInitializedData")?,
        ),
        (SIZE_OF_IMAGE, bytes::fit32(address, "SizeOfImage")?),
    ] {
        bytes::put(
            &mut image,
            layout.optional.saturating_add(field),
            &value.to_le_bytes(),
        )?;
    }
    set_checksum(&mut image, layout.optional)?;
    Ok(image)
}

/// Extends every section of `table` to the next one in the file. Firmware does not load the added
/// bytes: in memory a section has its virtual size.
fn close_gaps(table: &mut [u8]) -> Result<()> {
    let rows = table.len() / SECTION_HEADER;
    for (row, next) in (0..rows).zip(1..rows) {
        let offset = |row: usize| {
            let at = row
                .saturating_mul(SECTION_HEADER)
                .saturating_add(RAW_OFFSET);
            bytes::u32_le(table, at)
        };
        let size = offset(next)?.checked_sub(offset(row)?);
        let size = size.context("the stub's sections are not in the order of the file")?;
        let at = row.saturating_mul(SECTION_HEADER).saturating_add(RAW_SIZE);
        bytes::put(table, at, &size.to_le_bytes())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pe::CHECKSUM;
    use crate::testing::{Scratch, noise, release, signer, stub};

    fn parts<'a>(paths: &'a [std::path::PathBuf; 3], signer: &'a Signer) -> Uki<'a> {
        Uki {
            stub: &paths[0],
            vmlinuz: &paths[1],
            initramfs: &paths[2],
            cmdline: "console=ttyS0 quiet",
            os_release: "ID=corten\nVERSION_ID=1.2.3\n",
            uname: "6.12.1-corten",
            grub: None,
            signer,
        }
    }

    fn inputs(scratch: &Scratch) -> [std::path::PathBuf; 3] {
        let kernel = [stub(), noise(70_001)].concat();
        [
            scratch.file("stub", &stub()),
            scratch.file("vmlinuz", &kernel),
            scratch.file("initramfs", &noise(100_000)),
        ]
    }

    #[test]
    fn sections_of_the_uki_read_back() {
        let scratch = Scratch::new();
        let paths = inputs(&scratch);
        let out = scratch.path("uki");
        build(&out, &release(), &parts(&paths, &signer())).unwrap();
        let image = std::fs::read(&out).unwrap();
        let all = sections(&image).unwrap();
        let names: Vec<_> = all.iter().map(|section| section.name.as_str()).collect();
        assert_eq!(
            names,
            [
                ".text", ".reloc", ".osrel", ".cmdline", ".uname", ".sbat", ".initrd", ".linux"
            ]
        );
        let read = |name| content(&image, section(&all, name).unwrap()).unwrap();
        assert_eq!(read(".cmdline"), b"console=ttyS0 quiet");
        assert_eq!(read(".initrd"), std::fs::read(&paths[2]).unwrap());
        assert_eq!(read(".linux"), std::fs::read(&paths[1]).unwrap());
        assert!(read(".sbat").starts_with(b"sbat,1,stub\ncorten,1,"));
        for name in [".initrd", ".linux"] {
            assert_eq!(section(&all, name).unwrap().offset % 4096, 0);
        }
    }

    #[test]
    fn addresses_do_not_overlap_and_the_checksum_is_right() {
        let scratch = Scratch::new();
        let paths = inputs(&scratch);
        let out = scratch.path("uki");
        build(&out, &release(), &parts(&paths, &signer())).unwrap();
        let mut image = std::fs::read(&out).unwrap();
        let file = PeFile64::parse(image.as_slice()).unwrap();
        let mut end = 0;
        for header in file.section_table().iter() {
            assert!(header.virtual_address.get(LE) >= end, "sections overlap");
            end = header.virtual_address.get(LE) + header.virtual_size.get(LE);
        }
        let optional = file.nt_headers().optional_header();
        assert!(optional.size_of_image() >= end);
        assert_eq!(optional.size_of_image() % 4096, 0);
        let stated = optional.check_sum();
        image[0x58 + CHECKSUM..0x58 + CHECKSUM + 4].fill(0);
        // A different algorithm from RFC 1071's sum, as a check: adds all words at once and folds
        // at the end.
        let words: u64 = image
            .chunks(2)
            .map(|w| u64::from(w[0]) | u64::from(w[1]) << 8)
            .sum();
        let folded = (0..4).fold(words, |sum, _| (sum & 0xffff) + (sum >> 16));
        assert_eq!(u64::from(stated), folded + image.len() as u64);
    }

    #[test]
    fn a_kernel_of_another_architecture_is_refused() {
        let scratch = Scratch::new();
        let paths = inputs(&scratch);
        let arm = Release {
            arch: Arch::Arm64,
            ..release()
        };
        let error = build(&scratch.path("uki"), &arm, &parts(&paths, &signer())).unwrap_err();
        assert!(
            error
                .to_string()
                .ends_with("is not an EFI program for arm64")
        );
    }

    #[test]
    fn kernel_that_is_already_signed_is_refused() {
        let scratch = Scratch::new();
        let mut paths = inputs(&scratch);
        let signed = authenticode::sign(stub(), &signer()).unwrap();
        paths[1] = scratch.file("signed", &signed);
        let error = build(&scratch.path("uki"), &release(), &parts(&paths, &signer())).unwrap_err();
        assert!(error.to_string().ends_with("has a signature of its own"));
    }

    #[test]
    fn a_stub_without_room_is_an_error() {
        let scratch = Scratch::new();
        let mut paths = inputs(&scratch);
        let mut tight = stub();
        tight[0x58 + 60..0x58 + 64].copy_from_slice(&0x200_u32.to_le_bytes());
        paths[0] = scratch.file("tight", &tight);
        let error = build(&scratch.path("uki"), &release(), &parts(&paths, &signer())).unwrap_err();
        assert!(format!("{error:#}").contains("no room for 6 more sections"));
    }
}
