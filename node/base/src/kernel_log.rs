//! Asynchronous reader of the kernel log (`/dev/kmsg`).

use std::io;
use std::path::Path;

use corten_sys::kmsg::Reader;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// A reader that can wait for new records.
#[derive(Debug)]
pub struct KernelLog(AsyncFd<Reader>);

impl KernelLog {
    /// Opens the device at its oldest record.
    ///
    /// # Errors
    /// The device cannot be opened, or not be polled.
    #[expect(
        deprecated,
        reason = "its successor is unsafe; a reader keeps its descriptor as long as it lives"
    )]
    pub fn open(device: &Path) -> io::Result<KernelLog> {
        let reader = Reader::open(device)?;
        Ok(KernelLog(AsyncFd::with_interest(
            reader,
            Interest::READABLE,
        )?))
    }

    /// Skips all existing records.
    ///
    /// # Errors
    /// Those of the kernel.
    pub fn skip(&mut self) -> io::Result<()> {
        self.0.get_mut().skip()
    }

    /// The next record; `None` if there is none yet. Always asks the kernel, independent of the runtime's readiness
    /// state.
    ///
    /// # Errors
    /// Those of the kernel.
    pub fn next_record(&mut self) -> io::Result<Option<&[u8]>> {
        self.0.get_mut().next_record()
    }

    /// Waits until there may be another record.
    ///
    /// # Errors
    /// Those of the runtime.
    pub async fn more(&self) -> io::Result<()> {
        // Readiness is cleared before the read, so a record that arrives from now on is read or signalled again.
        self.0.readable().await?.clear_ready();
        Ok(())
    }
}
