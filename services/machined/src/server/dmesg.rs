//! The kernel's log as a stream: a frame per record.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt as _;
use std::time::{Duration, SystemTime};

use corten_api::common::Data;
use corten_api::machine::DmesgRequest;
use rustix::fs::OFlags;
use tokio::net::unix::pipe::Receiver;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;
use tonic::codegen::BoxStream;

use super::{Paths, kmsg, stream};

/// The kernel's own bound of a record (CONSOLE_EXT_LOG_MAX).
const RECORD: usize = 8192;
/// Records between the reader and the connection.
const QUEUE: usize = 64;

/// Opens the log: from its oldest kept record, or, with `tail`, from the next
/// one; without `follow` until there is no more.
pub(super) async fn dmesg(
    paths: &Paths,
    request: &DmesgRequest,
) -> Result<BoxStream<Data>, Status> {
    let file = open(paths, request.tail).map_err(|error| {
        Status::internal(format!("cannot read {}: {error}", paths.kmsg.display()))
    })?;
    let booted = boot_time();
    let (sender, receiver) = mpsc::channel(QUEUE);
    let follow = request.follow;
    // Not a pipe, but what can be polled and read without blocking is enough.
    let later = file
        .try_clone()
        .and_then(Receiver::from_file_unchecked)
        .map_err(|error| Status::internal(format!("cannot wait for the kernel's log: {error}")))?;
    stream::task(sender.clone(), async move {
        let outcome = tokio::select! {
            outcome = pump(file, later, &sender, booted, follow) => outcome,
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

fn open(paths: &Paths, tail: bool) -> io::Result<File> {
    let flags = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or_default();
    let mut file = OpenOptions::new()
        .read(true)
        .custom_flags(flags)
        .open(&paths.kmsg)?;
    if tail {
        file.seek(SeekFrom::End(0))?;
    }
    Ok(file)
}

async fn pump(
    mut kept: File,
    later: Receiver,
    sender: &mpsc::Sender<Result<Data, Status>>,
    booted: SystemTime,
    follow: bool,
) -> io::Result<()> {
    let mut buffer = vec![0; RECORD];
    let mut waited = false;
    loop {
        // What is there is asked of the kernel: the runtime knows of none before it was told.
        let read = if waited {
            later.try_read(&mut buffer)
        } else {
            kept.read(&mut buffer)
        };
        match read {
            Ok(0) => return Ok(()),
            Ok(length) => {
                let record = buffer.get(..length).unwrap_or_default();
                let Some(line) = kmsg::line(record, booted) else {
                    continue;
                };
                let data = Data {
                    metadata: None,
                    bytes: line,
                };
                if sender.send(Ok(data)).await.is_err() {
                    return Ok(());
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                if !follow {
                    return Ok(());
                }
                later.readable().await?;
                waited = true;
            }
            // The record was overwritten before it could be read: the next
            // read gives the oldest that is left.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// When the machine started, by the clock as it is now: records carry the time
/// since then.
fn boot_time() -> SystemTime {
    let up = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let seconds = u64::try_from(up.tv_sec).unwrap_or_default();
    let nanoseconds = u32::try_from(up.tv_nsec).unwrap_or_default();
    let now = SystemTime::now();
    now.checked_sub(Duration::new(seconds, nanoseconds))
        .unwrap_or(now)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use rustix::fs::{CWD, FileType, Mode, mknodat};
    use tokio_stream::StreamExt as _;

    use super::*;

    #[tokio::test]
    async fn what_is_there_is_read_at_once() {
        let directory = tempfile::tempdir().unwrap();
        let kmsg = directory.path().join("kmsg");
        mknodat(CWD, &kmsg, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        let mut kernel = File::options().read(true).write(true).open(&kmsg).unwrap();
        let paths = Paths {
            kmsg,
            ..Paths::default()
        };
        for _ in 0..20 {
            kernel.write_all(b"6,339,5140900,-;hello\n").unwrap();
            let stream = dmesg(&paths, &DmesgRequest::default()).await.unwrap();
            let lines: Vec<_> = stream.map(|data| data.unwrap().bytes).collect().await;
            assert_eq!(lines.len(), 1);
            assert!(lines[0].ends_with(b": hello\n"));
        }
    }
}
