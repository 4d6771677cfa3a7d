//! Signatures in EFI programs: Authenticode ("Windows Authenticode Portable Executable Signature
//! Format", 2008), as specified by UEFI Specification 2.10, section 32.2.2.

use anyhow::{Context as _, ensure};
use corten_steps::error::Result;
use object::LittleEndian as LE;
use object::read::pe::{ImageNtHeaders as _, ImageOptionalHeader as _, PeFile64};
use sha2::{Digest as _, Sha256};
use yasna::{DERWriter, Tag, construct_der};

use super::Signer;
use super::pkcs7::{self, oid};
use crate::{bytes, pe};

const SPC_INDIRECT_DATA: &[u64] = &[1, 3, 6, 1, 4, 1, 311, 2, 1, 4];
const SPC_PE_IMAGE_DATA: &[u64] = &[1, 3, 6, 1, 4, 1, 311, 2, 1, 15];
/// Alignment of a signature, and of the program before it, in bytes.
const ALIGNMENT: usize = 8;
/// `WIN_CERTIFICATE`: revision and `WIN_CERT_TYPE_PKCS_SIGNED_DATA`, after the length.
const REVISION: u16 = 0x0200;
const SIGNED_DATA: u16 = 0x0002;
const HEADER: usize = 8;
/// Offset in the optional header (PE32+) of the table entry of the signatures.
const CERTIFICATES: usize = 112 + 4 * 8;
/// Minimum number of entries in that table.
const ENTRIES: u32 = 5;

/// `program` with a signature of `signer` at its end.
///
/// # Errors
/// The program is no EFI program, is signed already, or has bytes between its sections. Firmware
/// excludes such bytes from the digest, other signing tools include them.
pub fn sign(mut program: Vec<u8>, signer: &Signer) -> Result<Vec<u8>> {
    bytes::pad(&mut program, ALIGNMENT);
    let optional = optional_header(&program)?;
    let digest = digest(&program, optional)?;
    let mut signature = signer.around(SPC_INDIRECT_DATA, &statement(&digest))?;
    bytes::pad(&mut signature, ALIGNMENT);
    let offset = bytes::fit32(program.len(), "the program")?.to_le_bytes();
    let size = bytes::fit32(signature.len().saturating_add(HEADER), "the signature")?.to_le_bytes();
    let entry = optional.saturating_add(CERTIFICATES);
    bytes::put(&mut program, entry, &[offset, size].concat())?;
    program.extend(size);
    program.extend(REVISION.to_le_bytes());
    program.extend(SIGNED_DATA.to_le_bytes());
    program.extend(signature);
    pe::set_checksum(&mut program, optional)?;
    Ok(program)
}

/// Whether `program` has any signature.
///
/// # Errors
/// `program` is no EFI program.
pub fn is_signed(program: &[u8]) -> Result<bool> {
    let file = PeFile64::parse(program).context("this is not an EFI program")?;
    let signatures = file
        .data_directories()
        .get(object::pe::IMAGE_DIRECTORY_ENTRY_SECURITY);
    Ok(signatures.is_some_and(|entry| entry.size.get(LE) != 0))
}

/// Offset of the optional header; an error for a program that cannot be signed.
fn optional_header(program: &[u8]) -> Result<usize> {
    let file = PeFile64::parse(program).context("this is not an EFI program")?;
    let header = file.nt_headers().optional_header();
    ensure!(
        header.number_of_rva_and_sizes() >= ENTRIES,
        "its headers have no room for a signature"
    );
    let mut sections: Vec<(u32, u32)> = file
        .section_table()
        .iter()
        .map(|section| {
            let offset = section.pointer_to_raw_data.get(LE);
            (offset, section.size_of_raw_data.get(LE))
        })
        .filter(|(_, size)| *size > 0)
        .collect();
    sections.sort_unstable();
    let mut end = header.size_of_headers();
    for (offset, size) in sections {
        ensure!(offset == end, "no section has the bytes {end} to {offset}");
        end = end.saturating_add(size);
    }
    ensure!(bytes::index(end.into())? <= program.len(), "it ends early");
    let signature = bytes::index(u64::from(bytes::u32_le(program, 0x3c)?))?;
    let optional = signature.saturating_add(24);
    let entry = bytes::get::<8>(program, optional.saturating_add(CERTIFICATES))?;
    ensure!(entry == [0; 8], "it is already signed");
    Ok(optional)
}

/// SHA-256 of the program without the fields that a signature changes.
fn digest(program: &[u8], optional: usize) -> Result<[u8; 32]> {
    let checksum = optional.saturating_add(pe::CHECKSUM);
    let entry = optional.saturating_add(CERTIFICATES);
    let mut digest = Sha256::new();
    let mut from = 0;
    for (at, length) in [(checksum, 4), (entry, 8), (program.len(), 0)] {
        digest.update(bytes::slice(program, from, at.saturating_sub(from))?);
        from = at.saturating_add(length);
    }
    Ok(digest.finalize().into())
}

/// The content of an `SpcIndirectDataContent`: the program's digest.
fn statement(digest: &[u8]) -> Vec<u8> {
    let image = construct_der(|writer| {
        writer.write_sequence(|writer| {
            oid(writer.next(), SPC_PE_IMAGE_DATA);
            writer.next().write_sequence(|writer| {
                writer.next().write_bitvec_bytes(&[], 0);
                obsolete(writer.next());
            });
        });
    });
    let digest = construct_der(|writer| {
        writer.write_sequence(|writer| {
            pkcs7::algorithm(writer.next(), pkcs7::SHA256);
            writer.next().write_bytes(digest);
        });
    });
    [image, digest].concat()
}

/// An obsolete file name that the format still requires.
fn obsolete(writer: DERWriter<'_>) {
    let (zero, two) = (Tag::context(0), Tag::context(2));
    writer.write_tagged(zero, |writer| {
        writer.write_tagged(two, |writer| {
            writer.write_tagged_implicit(zero, |writer| writer.write_bmp_string("<<<Obsolete>>>"));
        });
    });
}

#[cfg(test)]
mod tests {
    use super::super::enrolment::{DB, PK};
    use super::super::tests::openssl_agrees;
    use super::*;
    use crate::testing::{noise, signer, stub};

    /// The optional header of [`stub`].
    const OPTIONAL: usize = 0x58;

    /// The signature in a signed program.
    fn signature(program: &[u8]) -> &[u8] {
        let field = |at| usize::try_from(bytes::u32_le(program, at).unwrap()).unwrap();
        let at = field(OPTIONAL + CERTIFICATES);
        assert_eq!(field(OPTIONAL + CERTIFICATES + 4), program.len() - at);
        assert_eq!(field(at), program.len() - at);
        &program[at + HEADER..]
    }

    #[test]
    fn signature_is_reproducible_and_verifies_for_its_program_and_key() {
        // Data of unaligned length after the last section.
        let program = [stub(), noise(70_001)].concat();
        let signed = sign(program.clone(), &signer()).unwrap();
        assert!(signed == sign(program.clone(), &signer()).unwrap());
        assert_eq!(signed.len() % ALIGNMENT, 0);
        let content = statement(&digest_without(&signed));
        assert!(openssl_agrees(signature(&signed), &content, &DB));
        assert!(!openssl_agrees(signature(&signed), &content, &PK));

        for at in [0x10, 0x500, 0xa01, 70_000] {
            let mut changed = signed.clone();
            changed[at] ^= 1;
            let content = statement(&digest_without(&changed));
            assert!(!openssl_agrees(signature(&changed), &content, &DB), "{at}");
        }
        sign(signed, &signer()).unwrap_err();
    }

    /// The digest of a signed program as firmware computes it, without the signature.
    fn digest_without(signed: &[u8]) -> [u8; 32] {
        let end = signed.len() - signature(signed).len() - HEADER;
        digest(&signed[..end], OPTIONAL).unwrap()
    }

    #[test]
    fn program_with_bytes_outside_of_sections_is_not_signed() {
        let mut gap = stub();
        // .text ends before .sbat begins.
        gap[OPTIONAL + 240 + 16..][..4].copy_from_slice(&0x100_u32.to_le_bytes());
        let error = sign(gap, &signer()).unwrap_err().to_string();
        assert_eq!(error, "no section has the bytes 1280 to 1536");
        sign(noise(4096), &signer()).unwrap_err();
    }
}
