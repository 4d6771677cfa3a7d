//! Storage of a header.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

/// A block device, or a file used as one.
pub trait Device {
    /// Fills `bytes` from `offset`.
    ///
    /// # Errors
    /// `UnexpectedEof` when the device ends before.
    fn load(&self, bytes: &mut [u8], offset: u64) -> io::Result<()>;

    /// Writes all of `bytes` at `offset`.
    ///
    /// # Errors
    /// The device's error.
    fn store(&self, bytes: &[u8], offset: u64) -> io::Result<()>;

    /// Flushes: everything written survives a power cut after this returns.
    ///
    /// # Errors
    /// The device's error.
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
