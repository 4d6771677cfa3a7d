//! `read` and `copy`: read files of a node.

use std::fs;
use std::io::{self, IsTerminal as _, Read, Write as _};
use std::path::Path;

use anyhow::Context as _;
use corten_api::common::Data;
use corten_api::machine::{CopyRequest, ReadRequest};
use corten_client::clients::Machine;
use corten_client::connect::Route;
use corten_client::failure::{Failure, finish};
use corten_client::progress::Progress;
use corten_client::stream::{Trouble, drain, each, only_one};
use corten_client::table;
use tokio::sync::mpsc::{Receiver, Sender, channel};

use crate::cli::{Copy, Read as ReadArgs};
use crate::lines::Lines;
use crate::untar;

/// Number of frames buffered for the disk.
const WAITING: usize = 16;

pub(crate) async fn read(routes: Vec<Route>, args: &ReadArgs) -> Result<(), Failure> {
    only_one(&routes, "be read from")?;
    let mut lines = Lines::new(false, io::stdout().is_terminal());
    let failed = each(routes, async |node| {
        let request = node.request(ReadRequest {
            path: args.path.clone(),
        });
        let mut frames = node.client::<Machine>().read(request).await?.into_inner();
        let mut progress = Progress::beside_output(format!("{}: read", node.name));
        drain(&mut frames, |Data { bytes, .. }| {
            progress.add(bytes.len());
            Ok::<_, Trouble>(lines.push(&node.name, &bytes, &mut io::stdout().lock())?)
        })
        .await
    })
    .await?;
    lines.finish(&mut io::stdout().lock())?;
    finish(&failed)
}

pub(crate) async fn copy(routes: Vec<Route>, args: &Copy) -> Result<(), Failure> {
    only_one(&routes, "be copied from")?;
    if args.target == Path::new("-") {
        return archive(routes, args).await;
    }
    fs::create_dir_all(&args.target)
        .with_context(|| format!("directory {}", args.target.display()))?;
    let failed = each(routes, async |node| {
        let (frames, received) = channel(WAITING);
        let target = args.target.clone();
        let extracting = tokio::task::spawn_blocking(move || {
            untar::extract(
                flate2::read::MultiGzDecoder::new(Chunks::new(received)),
                &target,
            )
        });
        let sent = send(node, args, &frames).await;
        drop(frames);
        let extracted = extracting
            .await
            .map_err(|_| Failure::call("unpacking ended early"))?;
        match extracted {
            Ok(left_out) => {
                for what in left_out {
                    eprintln!("left out: {}", table::printable(&what));
                }
                // After a complete archive the node reports the files it could not read.
                sent
            }
            // If the node aborted the stream, its error explains the truncated archive.
            Err(error) if !error.is::<untar::LeadsOut>() && sent.is_err() => sent,
            Err(error) => Err(Trouble::Said(format!("the archive: {error:#}"))),
        }
    })
    .await?;
    finish(&failed)
}

async fn send(
    node: &corten_client::stream::Node,
    args: &Copy,
    frames: &Sender<Vec<u8>>,
) -> Result<(), Trouble> {
    let request = node.request(CopyRequest {
        root_path: args.source.clone(),
    });
    let mut answer = node.client::<Machine>().copy(request).await?.into_inner();
    let mut progress = Progress::new(format!("{}: copied", node.name));
    while let Some(Data { bytes, .. }) = answer.message().await? {
        progress.add(bytes.len());
        // The receiver is gone after an unpacking error, which is the one to report.
        if frames.send(bytes).await.is_err() {
            break;
        }
    }
    Ok(())
}

/// The raw archive.
async fn archive(routes: Vec<Route>, args: &Copy) -> Result<(), Failure> {
    if io::stdout().is_terminal() {
        return Err(Failure::usage(
            "a tar.gz is not written to a terminal: name a directory, or pipe it into `tar tz`",
        ));
    }
    let failed = each(routes, async |node| {
        let request = node.request(CopyRequest {
            root_path: args.source.clone(),
        });
        let mut frames = node.client::<Machine>().copy(request).await?.into_inner();
        let mut progress = Progress::beside_output(format!("{}: copied", node.name));
        drain(&mut frames, |Data { bytes, .. }| {
            progress.add(bytes.len());
            Ok::<_, Trouble>(io::stdout().lock().write_all(&bytes)?)
        })
        .await
    })
    .await?;
    io::stdout().lock().flush()?;
    finish(&failed)
}

/// Frames as one blocking reader, for a thread of its own.
struct Chunks {
    frames: Receiver<Vec<u8>>,
    current: io::Cursor<Vec<u8>>,
}

impl Chunks {
    fn new(frames: Receiver<Vec<u8>>) -> Chunks {
        Chunks {
            frames,
            current: io::Cursor::default(),
        }
    }
}

impl Read for Chunks {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let count = self.current.read(buffer)?;
            if count > 0 || buffer.is_empty() {
                return Ok(count);
            }
            match self.frames.blocking_recv() {
                Some(frame) => self.current = io::Cursor::new(frame),
                None => return Ok(0),
            }
        }
    }
}
