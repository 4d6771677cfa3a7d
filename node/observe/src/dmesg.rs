//! The kernel log as a stream: one frame per record.

use std::io;

use corten_api::common::Data;
use corten_api::machine::DmesgRequest;
use corten_base::kernel_log::KernelLog;
use corten_base::mode::{Ability, Mode};
use corten_sys::kmsg::booted;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;
use tonic::codegen::BoxStream;

use crate::{Paths, kmsg, stream};

/// Records buffered between reader and connection.
const QUEUE: usize = 64;

/// Streams the log from its oldest record, or with `tail` from the next record. Without `follow` the stream ends with
/// the last record. Every message is one line, its line feed included.
///
/// # Errors
/// FAILED_PRECONDITION in a container, which has no kernel log; INTERNAL if it is unreadable.
pub async fn dmesg(paths: &Paths, request: &DmesgRequest) -> Result<BoxStream<Data>, Status> {
    let readable = Mode::now().check(Ability::KernelLog);
    readable.map_err(Status::failed_precondition)?;
    let log = open(paths, request.tail).map_err(|error| {
        Status::internal(format!("cannot read {}: {error}", paths.kmsg.display()))
    })?;
    let (sender, receiver) = mpsc::channel(QUEUE);
    let follow = request.follow;
    stream::task(sender.clone(), async move {
        let outcome = tokio::select! {
            outcome = pump(log, &sender, follow) => outcome,
            () = sender.closed() => Ok(()),
        };
        if let Err(error) = outcome {
            let _ = sender
                .send(Err(Status::internal(format!("the kernel's log: {error}"))))
                .await;
        }
    });
    Ok(Box::pin(ReceiverStream::new(receiver)))
}

fn open(paths: &Paths, tail: bool) -> io::Result<KernelLog> {
    let mut log = KernelLog::open(&paths.kmsg)?;
    if tail {
        log.skip()?;
    }
    Ok(log)
}

async fn pump(
    mut log: KernelLog,
    sender: &mpsc::Sender<Result<Data, Status>>,
    follow: bool,
) -> io::Result<()> {
    let booted = booted();
    loop {
        while let Some(record) = log.next_record()? {
            let Some(bytes) = kmsg::line(record, booted) else {
                continue;
            };
            let metadata = None;
            if sender.send(Ok(Data { metadata, bytes })).await.is_err() {
                return Ok(());
            }
        }
        if !follow {
            return Ok(());
        }
        log.more().await?;
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Write as _;
    use std::path::Path;

    use rustix::fs::{CWD, FileType, Mode, mknodat};
    use tokio_stream::StreamExt as _;

    use super::*;

    /// A kernel log in `directory`, and its writing end.
    fn log(directory: &Path) -> (Paths, File) {
        let kmsg = directory.join("kmsg");
        mknodat(CWD, &kmsg, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        let kernel = File::options().read(true).write(true).open(&kmsg).unwrap();
        let paths = Paths {
            kmsg,
            ..Paths::default()
        };
        (paths, kernel)
    }

    #[tokio::test]
    async fn existing_kernel_messages_are_read_at_once() {
        let directory = tempfile::tempdir().unwrap();
        let (paths, mut kernel) = log(directory.path());
        for _ in 0..20 {
            kernel.write_all(b"6,339,5140900,-;hello\n").unwrap();
            let stream = dmesg(&paths, &DmesgRequest::default()).await.unwrap();
            let lines: Vec<_> = stream.map(|data| data.unwrap().bytes).collect().await;
            assert_eq!(lines.len(), 1);
            assert!(lines[0].ends_with(b": hello\n"));
        }
    }

    #[tokio::test]
    async fn later_kernel_messages_are_followed() {
        let directory = tempfile::tempdir().unwrap();
        let (paths, mut kernel) = log(directory.path());
        let request = DmesgRequest {
            follow: true,
            tail: false,
        };
        let mut stream = dmesg(&paths, &request).await.unwrap();
        for _ in 0..20 {
            kernel.write_all(b"6,339,5140900,-;hello\n").unwrap();
            let line = stream.next().await.unwrap().unwrap().bytes;
            assert!(line.ends_with(b": hello\n"));
        }
    }
}
