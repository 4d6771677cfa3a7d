//! Bounds-checked reads and writes of fields in byte buffers.

use anyhow::{Context as _, anyhow};
use corten_steps::error::Result;

/// `N` bytes of `data` at `at`; an error when the data is shorter.
pub(crate) fn get<const N: usize>(data: &[u8], at: usize) -> Result<[u8; N]> {
    at.checked_add(N)
        .and_then(|end| data.get(at..end))
        .and_then(|field| field.try_into().ok())
        .ok_or_else(|| anyhow!("the data ends before its field at byte {at}"))
}

/// `len` bytes of `data` at `at`.
pub(crate) fn slice(data: &[u8], at: usize, len: usize) -> Result<&[u8]> {
    at.checked_add(len)
        .and_then(|end| data.get(at..end))
        .ok_or_else(|| anyhow!("the data ends before byte {at} + {len}"))
}

/// Little-endian 16 bits.
pub(crate) fn u16_le(data: &[u8], at: usize) -> Result<u16> {
    get(data, at).map(u16::from_le_bytes)
}

/// Little-endian 32 bits.
pub(crate) fn u32_le(data: &[u8], at: usize) -> Result<u32> {
    get(data, at).map(u32::from_le_bytes)
}

/// Overwrites the bytes at `at`.
pub(crate) fn put(data: &mut [u8], at: usize, field: &[u8]) -> Result<()> {
    at.checked_add(field.len())
        .and_then(|end| data.get_mut(at..end))
        .map(|target| target.copy_from_slice(field))
        .ok_or_else(|| anyhow!("no room for a field at byte {at}"))
}

/// Converts a number for the 32-bit field called `what`; an error when it does not fit.
pub(crate) fn fit32(value: impl TryInto<u32>, what: &str) -> Result<u32> {
    value
        .try_into()
        .map_err(|_| anyhow!("{what} does not fit 32 bits"))
}

/// A file offset or size as an index into memory.
pub(crate) fn index(value: u64) -> Result<usize> {
    usize::try_from(value).context("a size does not fit this machine's memory")
}

/// A length in memory as a file size.
pub(crate) fn size(value: usize) -> u64 {
    u64::try_from(value).unwrap_or(u64::MAX)
}

/// The next multiple of `to` (not 0), saturating.
pub(crate) fn align(value: u64, to: u64) -> u64 {
    value.div_ceil(to).saturating_mul(to)
}

/// Fills `data` with zeros up to a multiple of `to`.
pub(crate) fn pad(data: &mut Vec<u8>, to: usize) {
    data.resize(data.len().next_multiple_of(to), 0);
}

/// Pads `text` with zeros, or cuts it, to exactly `N` bytes.
pub(crate) fn fixed<const N: usize>(text: &str) -> [u8; N] {
    let mut field = [0; N];
    for (to, from) in field.iter_mut().zip(text.bytes()) {
        *to = from;
    }
    field
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_outside_the_buffer_are_errors() {
        let mut data = [0_u8; 8];
        put(&mut data, 4, &[1, 2, 3, 4]).unwrap();
        assert_eq!(u32_le(&data, 4).unwrap(), 0x0403_0201);
        u32_le(&data, 5).unwrap_err();
        put(&mut data, 7, &[0, 0]).unwrap_err();
        slice(&data, usize::MAX, 2).unwrap_err();
        assert_eq!(align(513, 512), 1024);
    }
}
