//! The kernel's log (`/dev/kmsg`), for who follows it without blocking a thread.

use std::io;
use std::path::Path;

use corten_sys::kmsg::Reader;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// A reader, and a way to wait for what it has not yet.
#[derive(Debug)]
pub struct KernelLog(AsyncFd<Reader>);

impl KernelLog {
    /// Opens the device at its oldest record.
    ///
    /// # Errors
    /// It cannot be read, or not be waited for.
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

    /// Passes over what is there.
    ///
    /// # Errors
    /// The kernel's.
    pub fn skip(&mut self) -> io::Result<()> {
        self.0.get_mut().skip()
    }

    /// The next record; `None` when there is no other yet. It is asked of the kernel, whatever the runtime knows.
    ///
    /// # Errors
    /// The kernel's.
    pub fn next_record(&mut self) -> io::Result<Option<&[u8]>> {
        self.0.get_mut().next_record()
    }

    /// Waits until there may be another record.
    ///
    /// # Errors
    /// The runtime's.
    pub async fn more(&self) -> io::Result<()> {
        // What comes from now on is read after this, or said again.
        self.0.readable().await?.clear_ready();
        Ok(())
    }
}
