//! Reads long files piece by piece.

use std::io::{self, Read};

/// Size of one read or write, in bytes: memory use does not depend on the size of a kernel image.
pub(crate) const CHUNK: usize = 1 << 20;

/// Passes everything that can be read to `take`, chunk by chunk; returns the number of bytes.
pub(crate) fn each_chunk(
    from: &mut dyn Read,
    mut take: impl FnMut(&[u8]) -> io::Result<()>,
) -> io::Result<u64> {
    let mut chunk = vec![0; CHUNK];
    let mut total: u64 = 0;
    loop {
        let read = match from.read(&mut chunk) {
            Ok(0) => return Ok(total),
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        take(chunk.get(..read).unwrap_or_default())?;
        total = total.saturating_add(u64::try_from(read).unwrap_or_default());
    }
}
