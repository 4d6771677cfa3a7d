//! The checksum of an EFI program (PE32+), which changes with its sections and with its signature.

use corten_steps::error::Result;

use super::bytes;

/// Offset of the checksum in the optional header.
pub(crate) const CHECKSUM: usize = 64;

/// Sets the checksum of a program whose optional header is at `optional`.
pub(crate) fn set_checksum(program: &mut [u8], optional: usize) -> Result<()> {
    let field = optional.saturating_add(CHECKSUM);
    bytes::put(program, field, &[0; 4])?;
    let sum = checksum(program)?;
    bytes::put(program, field, &sum.to_le_bytes())
}

/// The PE checksum of a file whose checksum field is zero: the 16-bit ones' complement sum plus
/// the length. The file's length is even.
fn checksum(image: &[u8]) -> Result<u32> {
    let mut sum = 0_u32;
    for pair in image.chunks_exact(2) {
        sum = sum.saturating_add(u32::from(bytes::u16_le(pair, 0)?));
        sum = (sum & 0xffff).saturating_add(sum >> 16);
    }
    Ok(sum.saturating_add(bytes::fit32(image.len(), "the image")?))
}
