//! What a header lies on.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

/// A block device, or a file like one.
pub trait Device {
    /// Reads exactly so many bytes at `offset`.
    ///
    /// # Errors
    /// `UnexpectedEof` when it ends before.
    fn load(&self, bytes: &mut [u8], offset: u64) -> io::Result<()>;

    /// Writes all the bytes at `offset`.
    ///
    /// # Errors
    /// The device's.
    fn store(&self, bytes: &[u8], offset: u64) -> io::Result<()>;

    /// Returns when everything that was written would outlive a power cut.
    ///
    /// # Errors
    /// The device's.
    fn sync(&self) -> io::Result<()>;
}

impl Device for File {
    fn load(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        self.read_exact_at(bytes, offset)
    }

    fn store(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.write_all_at(bytes, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.sync_all()
    }
}
