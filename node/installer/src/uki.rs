//! Reads the version of a unified kernel image, and checks its signature.
//!
//! The image is a PE32+ program (UEFI Specification 2.10, section 2.1.1) with the sections of the UAPI Group's Unified
//! Kernel Image. Its signature is Authenticode ("Windows Authenticode Portable Executable Signature Format", 2008).

use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::path::Path;
use std::str::FromStr;

use authenticode::{
    AttributeCertificateIterator, AuthenticodeSignature, PeOffsetError, PeOffsets, PeTrait,
    authenticode_digest,
};
use der::Encode as _;
use object::LittleEndian as LE;
use object::pe::{
    IMAGE_DIRECTORY_ENTRY_SECURITY, IMAGE_FILE_MACHINE_AMD64, IMAGE_FILE_MACHINE_ARM64,
};
use object::read::pe::{ImageNtHeaders as _, ImageOptionalHeader as _, PeFile64};
use object::read::{ReadCache, ReadRef, StringTable};
use ring::signature::{RSA_PKCS1_2048_8192_SHA256, UnparsedPublicKey};
use sha2::{Digest as _, Sha256};

/// Size limit of os-release, in bytes.
const LARGEST_TEXT: u64 = 64 << 10;
/// Size limit of an image, in bytes: twice the largest image of the builder.
const LARGEST: u64 = 2 << 30;
/// Offsets in the optional header (PE32+): the checksum, and the signature entry of the data directories.
const CHECKSUM: usize = 64;
const CERTIFICATES: usize = 112 + 4 * 8;
/// The signed attribute with the digest of the content (RFC 5652, section 11.2).
const MESSAGE_DIGEST: &str = "1.2.840.113549.1.9.4";

/// Reason to refuse an image.
#[derive(Debug, thiserror::Error)]
pub enum UkiError {
    /// The file cannot be read.
    #[error(transparent)]
    Read(#[from] io::Error),
    /// The file is not one of our images.
    #[error("it is not a unified kernel image of Corten: {0}")]
    Format(&'static str),
    /// The image is for another architecture.
    #[error(
        "it is not for the architecture of this machine, {0}; use an image for this architecture"
    )]
    Architecture(&'static str),
    /// The image is not signed with a key that the running version accepts.
    #[error("{0}; sign the image with the key of the running version (`mkimage build --keys`)")]
    Signature(&'static str),
}

/// An image that passed the checks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checked {
    /// `IMAGE_VERSION` of its os-release.
    pub version: String,
}

/// Version of the image in a file.
///
/// # Errors
/// [`UkiError::Read`], and [`UkiError::Format`] if the file is not one of our images.
pub fn version(path: &Path) -> Result<String, UkiError> {
    let cache = ReadCache::new(File::open(path)?);
    let file = PeFile64::parse(&cache).map_err(|_| UkiError::Format("it is not an EFI program"))?;
    version_of(&file)
}

/// The trusted signers: SHA-256 digests of their public keys (RFC 8017, `RSAPublicKey` in DER). An image names its own
/// signer, and those of its successors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signers(Vec<[u8; 32]>);

/// The text is not a list of SHA-256 digests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a list of SHA-256 digests of 64 hexadecimal digits, separated by commas")]
pub struct NoDigest;

impl FromStr for Signers {
    type Err = NoDigest;

    fn from_str(text: &str) -> Result<Signers, NoDigest> {
        let digests: Result<_, _> = text.split(',').map(digest_of).collect();
        digests.map(Signers)
    }
}

fn digest_of(text: &str) -> Result<[u8; 32], NoDigest> {
    let mut digest = [0; 32];
    if text.len() != 64 || !text.is_ascii() {
        return Err(NoDigest);
    }
    for (at, byte) in digest.iter_mut().enumerate() {
        let digits = text.get(2 * at..2 * at + 2).ok_or(NoDigest)?;
        *byte = u8::from_str_radix(digits, 16).map_err(|_| NoDigest)?;
    }
    Ok(digest)
}

/// Checks that the image is for this machine (`architecture` in OCI's spelling) and signed by one of these keys.
///
/// # Errors
/// The reason to refuse the image.
pub fn check(
    image: &Path,
    signers: &Signers,
    architecture: &'static str,
) -> Result<Checked, UkiError> {
    let bytes = read(image)?;
    let file = program(&bytes, architecture)?;
    let version = version_of(&file)?;
    verify(&file, signers)?;
    Ok(Checked { version })
}

/// Checks a boot loader in the same way; it has no version.
///
/// # Errors
/// The reason to refuse the boot loader.
pub fn check_loader(
    loader: &Path,
    signers: &Signers,
    architecture: &'static str,
) -> Result<(), UkiError> {
    let bytes = read(loader)?;
    verify(&program(&bytes, architecture)?, signers)
}

/// Parses a program of this architecture.
fn program<'a>(bytes: &'a [u8], architecture: &'static str) -> Result<PeFile64<'a>, UkiError> {
    let file = parse(bytes)?;
    let machine = match architecture {
        "arm64" => IMAGE_FILE_MACHINE_ARM64,
        _ => IMAGE_FILE_MACHINE_AMD64,
    };
    if file.nt_headers().file_header().machine.get(LE) != machine {
        return Err(UkiError::Architecture(architecture));
    }
    Ok(file)
}

/// The value of a key in os-release text.
fn value<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    let mut lines = text.lines().filter_map(|line| line.trim().split_once('='));
    lines
        .find(|(name, _)| *name == key)
        .map(|(_, value)| value.trim_matches(['"', '\'']))
}

/// Label of the ISO 9660 file system of the medium with this version. ISO 9660 allows only some characters.
/// `architecture` is spelled as in the names of image files.
#[must_use]
pub fn medium_label(version: &str, architecture: &str) -> String {
    let keep = |c: char| match c.is_ascii_alphanumeric() {
        true => c.to_ascii_uppercase(),
        false => '_',
    };
    let name = format!("corten-{version}-{architecture}");
    name.chars().map(keep).take(32).collect()
}

fn read(path: &Path) -> Result<Vec<u8>, UkiError> {
    if fs::metadata(path)?.len() > LARGEST {
        return Err(UkiError::Format("it is larger than 2 GiB"));
    }
    Ok(fs::read(path)?)
}

fn parse(bytes: &[u8]) -> Result<PeFile64<'_>, UkiError> {
    PeFile64::parse(bytes).map_err(|_| UkiError::Format("it is not an EFI program"))
}

/// Offset and size of a section's data in the file; `None` if the file has no such section.
pub(crate) fn place<'a, R: ReadRef<'a>>(file: &PeFile64<'a, R>, name: &str) -> Option<(u64, u64)> {
    let sections = file.section_table();
    let found = sections.section_by_name::<R>(StringTable::default(), name.as_bytes());
    let (_, section) = found?;
    let size = section.virtual_size.get(LE);
    let size = size.min(section.size_of_raw_data.get(LE));
    Some((section.pointer_to_raw_data.get(LE).into(), size.into()))
}

fn version_of<'a, R: ReadRef<'a>>(file: &PeFile64<'a, R>) -> Result<String, UkiError> {
    let broken = UkiError::Format("its section .osrel is missing or malformed");
    let (at, size) = match place(file, ".osrel") {
        Some((at, size)) if size <= LARGEST_TEXT => (at, size),
        _ => return Err(broken),
    };
    let text = file.data().read_bytes_at(at, size).map_err(|()| broken)?;
    let text = String::from_utf8_lossy(text);
    let value = |key: &str| value(&text, key);
    if value("ID") != Some("corten") {
        return Err(UkiError::Format("its os-release names another system"));
    }
    match value("IMAGE_VERSION") {
        Some(version) if !version.is_empty() => Ok(version.to_owned()),
        _ => Err(UkiError::Format("its os-release has no IMAGE_VERSION")),
    }
}

fn verify(file: &PeFile64<'_>, signers: &Signers) -> Result<(), UkiError> {
    let other =
        UkiError::Signature("the image is not signed with a key that the running version accepts");
    let damaged = UkiError::Signature("the image does not match its signature");
    let signature = signature(file)?;
    // The signer supplies the certificate, so the certificate proves nothing. Only its key is compared.
    let certificates = signature.certificates();
    let mut keys = certificates.map(|one| {
        let key = &one.tbs_certificate.subject_public_key_info;
        key.subject_public_key.raw_bytes()
    });
    let is_meant = |key: &&[u8]| {
        let digest = Sha256::digest(key);
        signers.0.iter().any(|one| digest.as_slice() == one)
    };
    let Some(key) = keys.find(is_meant) else {
        return Err(other);
    };
    let Some(digest) = digest(file) else {
        return Err(damaged);
    };
    if signature.digest() != digest.as_slice() {
        return Err(damaged);
    }
    let content = signature.encapsulated_content().unwrap_or_default();
    let info = signature.signer_info();
    let Some(attributes) = &info.signed_attrs else {
        return Err(UkiError::Signature(
            "the signature of the image has no signed attributes",
        ));
    };
    let mut digests = attributes
        .iter()
        .filter(|one| one.oid.to_string() == MESSAGE_DIGEST);
    let told = digests
        .next()
        .and_then(|one| one.values.get(0))
        .map(|value| value.value().to_vec());
    if told.as_deref() != Some(Sha256::digest(content).as_slice()) {
        return Err(damaged);
    }
    // The attributes are signed as a SET (RFC 5652, section 5.4).
    let Ok(signed) = attributes.to_der() else {
        return Err(damaged);
    };
    let key = UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, key);
    key.verify(&signed, signature.signature())
        .map_err(|_| other)
}

fn signature(file: &PeFile64<'_>) -> Result<AuthenticodeSignature, UkiError> {
    let missing = UkiError::Signature("the image has no signature");
    let broken = UkiError::Signature("the signature of the image cannot be read");
    let program = Program(file);
    let Ok(table) = AttributeCertificateIterator::new(&program) else {
        return Err(broken);
    };
    match table.and_then(|mut table| table.next()) {
        None => Err(missing),
        Some(Ok(one)) => one.get_authenticode_signature().map_err(|_| broken),
        Some(Err(_)) => Err(broken),
    }
}

/// The signed digest: that of the program without the parts that a signature changes.
fn digest(file: &PeFile64<'_>) -> Option<[u8; 32]> {
    let mut digest = Sha256::new();
    authenticode_digest(&Program(file), &mut digest).ok()?;
    Some(digest.finalize().into())
}

/// A program for `authenticode`, which depends on another version of `object`.
struct Program<'a>(&'a PeFile64<'a>);

impl Program<'_> {
    fn range(offset: u32, size: u32) -> Result<Range<usize>, PeOffsetError> {
        let start = usize::try_from(offset).map_err(|_| PeOffsetError)?;
        let size = usize::try_from(size).map_err(|_| PeOffsetError)?;
        Ok(start..start.checked_add(size).ok_or(PeOffsetError)?)
    }
}

impl PeTrait for Program<'_> {
    fn data(&self) -> &[u8] {
        self.0.data()
    }

    fn num_sections(&self) -> usize {
        self.0.section_table().len()
    }

    fn section_data_range(&self, index: usize) -> Result<Range<usize>, PeOffsetError> {
        let section = self.0.section_table().section(object::SectionIndex(index));
        let section = section.map_err(|_| PeOffsetError)?;
        let offset = section.pointer_to_raw_data.get(LE);
        Program::range(offset, section.size_of_raw_data.get(LE))
    }

    fn certificate_table_range(&self) -> Result<Option<Range<usize>>, PeOffsetError> {
        let entry = self
            .0
            .data_directories()
            .get(IMAGE_DIRECTORY_ENTRY_SECURITY);
        let entry = entry.filter(|entry| entry.size.get(LE) != 0);
        let range = |entry: &object::pe::ImageDataDirectory| {
            Program::range(entry.virtual_address.get(LE), entry.size.get(LE))
        };
        entry.map(range).transpose()
    }

    fn offsets(&self) -> Result<PeOffsets, PeOffsetError> {
        // After the DOS header come the signature (4 bytes), the COFF header (20), and the optional header.
        let header = self.0.dos_header().nt_headers_offset();
        let header = usize::try_from(header).map_err(|_| PeOffsetError)?;
        let optional = header.checked_add(24).ok_or(PeOffsetError)?;
        let at = |offset: usize| optional.checked_add(offset).ok_or(PeOffsetError);
        let headers = self.0.nt_headers().optional_header().size_of_headers();
        Ok(PeOffsets {
            check_sum: at(CHECKSUM)?,
            after_check_sum: at(CHECKSUM + 4)?,
            security_data_dir: at(CERTIFICATES)?,
            after_security_data_dir: at(CERTIFICATES + 8)?,
            after_header: usize::try_from(headers).map_err(|_| PeOffsetError)?,
        })
    }
}
