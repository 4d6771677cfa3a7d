//! A stream that yields after a few KiB, and records that data arrived.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Bytes read before other tasks run, plus one more read. One read has at most 16 KiB, the size of an HTTP/2 frame.
const TURN: usize = 8 * 1024;

/// The stream below HTTP/2. The HTTP/2 library reads as long as there is data and keeps a few hundred bytes per frame
/// until a task takes it. Yielding lets the waiting tasks take their frames before more data is read.
#[derive(Debug)]
pub(crate) struct Turns<T> {
    stream: T,
    /// Bytes read in this turn.
    read: usize,
    /// Set when data arrives.
    heard: Arc<AtomicBool>,
}

impl<T> Turns<T> {
    pub(crate) fn new(stream: T, heard: Arc<AtomicBool>) -> Turns<T> {
        Turns {
            stream,
            read: 0,
            heard,
        }
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Turns<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.read >= TURN {
            self.read = 0;
            // Runs after the tasks that the data woke.
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(context, buffer);
        if polled.is_pending() {
            self.read = 0;
        } else {
            self.read += buffer.filled().len() - before;
            self.heard.store(true, Ordering::Relaxed);
        }
        polled
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Turns<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use tokio::io::AsyncWriteExt as _;

    use super::*;

    /// Reads until no data is available, or the stream yields.
    async fn turn<T: AsyncRead + Unpin>(stream: &mut T) -> usize {
        let mut total = 0;
        poll_fn(|context| {
            let mut buffer = [0; 1000];
            loop {
                let mut buffer = ReadBuf::new(&mut buffer);
                match Pin::new(&mut *stream).poll_read(context, &mut buffer) {
                    Poll::Ready(read) => read.unwrap(),
                    Poll::Pending => return Poll::Ready(total),
                }
                total += buffer.filled().len();
            }
        })
        .await
    }

    #[tokio::test]
    async fn large_reads_yield_to_other_tasks_before_continuing() {
        let (near, mut far) = tokio::io::duplex(1 << 20);
        let heard = Arc::<AtomicBool>::default();
        let mut near = Turns::new(near, heard.clone());
        assert_eq!(turn(&mut near).await, 0);
        assert!(!heard.load(Ordering::Relaxed));
        far.write_all(&[7; 20_000]).await.unwrap();
        let turns = [
            turn(&mut near).await,
            turn(&mut near).await,
            turn(&mut near).await,
            turn(&mut near).await,
        ];
        assert_eq!(turns, [9_000, 9_000, 2_000, 0]);
        assert!(heard.load(Ordering::Relaxed));
    }
}
