//! `LogService` over the store (api/proto/corten/log.proto).

use crate::config::Config;
use crate::disk;
use crate::kernel;
use crate::sources::KERNEL;
use crate::store::Store;
use bytes::Bytes;
use corten_api::corten::v1::log_service_server::LogService;
use corten_api::corten::v1::{
    AppendReply, LogChunk, LogInfo, LogListReply, LogListRequest, LogReadRequest, LogRecord,
};
use futures_util::Stream;
use std::pin::Pin;
use std::sync::Arc;
use tokio::sync::watch;
use tonic::{Request, Response, Status, Streaming};

/// The gRPC service.
#[derive(Debug)]
pub struct Service {
    store: Arc<Store>,
    config: watch::Receiver<Config>,
    boot: String,
}

impl Service {
    /// Serves `store`, and the tails that the boot before `boot` recorded in the directory of `config`.
    #[must_use]
    pub fn new(store: Arc<Store>, config: watch::Receiver<Config>, boot: String) -> Self {
        Self {
            store,
            config,
            boot,
        }
    }

    async fn previous(&self, id: String, tail: i32) -> Result<Bytes, Status> {
        let base = self.config.borrow().records.clone();
        let base = base.ok_or_else(|| {
            Status::failed_precondition(
                "no STATE volume is mounted: logs of the previous boot are not stored",
            )
        })?;
        let boot = self.boot.clone();
        let name = id.clone();
        // A disk may be slow.
        let read = tokio::task::spawn_blocking(move || disk::previous(&base, &boot, &name));
        let lines = read
            .await
            .map_err(|_| Status::internal("reading the recorded log failed"))?
            .map_err(|error| Status::internal(format!("cannot read the recorded log: {error}")))?
            .ok_or_else(|| Status::not_found(format!("the previous boot left no log {id:?}")))?;
        let skip = match usize::try_from(tail) {
            Ok(0) => lines.len(),
            Ok(tail) => {
                let ends = lines.iter().enumerate().filter(|(_, byte)| **byte == b'\n');
                let before = ends.rev().nth(tail);
                before.map_or(0, |(at, _)| at + 1)
            }
            Err(_) => 0,
        };
        Ok(Bytes::from(lines).slice(skip..))
    }
}

/// Size of a message of a recorded log, in bytes.
const CHUNK: usize = 32 * 1024;

fn chunks(mut lines: Bytes) -> impl Iterator<Item = LogChunk> {
    std::iter::from_fn(move || {
        let bytes = lines.split_to(lines.len().min(CHUNK));
        (!bytes.is_empty()).then(|| LogChunk {
            bytes: bytes.into(),
            dropped_lines: 0,
        })
    })
}

/// A reader's position in a log. Its stream buffers no lines; it fetches lines when the transport has room.
struct Reader {
    store: Arc<Store>,
    id: String,
    follow: bool,
    tail: i32,
    at: Option<(u64, watch::Receiver<()>)>,
}

impl Reader {
    /// The next lines; `None` at the end of a log that is not followed.
    async fn next(&mut self) -> Option<LogChunk> {
        loop {
            let (cursor, grown) = match &mut self.at {
                Some(at) => at,
                None => {
                    let found = self.appear().await?;
                    self.at.insert(found)
                }
            };
            grown.mark_unchanged();
            if let Some(read) = self.store.read(&self.id, *cursor) {
                *cursor = read.next;
                let bytes = if self.id == KERNEL {
                    kernel::worded(&read.bytes)
                } else {
                    read.bytes.into()
                };
                return Some(LogChunk {
                    bytes,
                    dropped_lines: read.dropped,
                });
            }
            if !self.follow {
                return None;
            }
            // The sender lives in the store, which this reader keeps alive.
            grown.changed().await.ok()?;
        }
    }

    /// Waits until the log exists.
    async fn appear(&self) -> Option<(u64, watch::Receiver<()>)> {
        let mut created = self.store.created();
        loop {
            created.mark_unchanged();
            if let Some(cursor) = self.store.cursor(&self.id, self.tail) {
                return Some((cursor, self.store.grown(&self.id)?));
            }
            created.changed().await.ok()?;
        }
    }
}

#[tonic::async_trait]
impl LogService for Service {
    async fn append(
        &self,
        request: Request<Streaming<LogRecord>>,
    ) -> Result<Response<AppendReply>, Status> {
        let mut records = request.into_inner();
        let mut reply = AppendReply::default();
        while let Some(record) = records.message().await? {
            match self.store.append(&record.id, &record.line) {
                Ok(()) => reply.accepted += 1,
                Err(_) => reply.refused += 1,
            }
        }
        Ok(Response::new(reply))
    }

    type ReadStream = Pin<Box<dyn Stream<Item = Result<LogChunk, Status>> + Send>>;

    async fn read(
        &self,
        request: Request<LogReadRequest>,
    ) -> Result<Response<Self::ReadStream>, Status> {
        let LogReadRequest {
            id,
            follow,
            tail_lines,
            previous,
        } = request.into_inner();
        if previous && follow {
            return Err(Status::invalid_argument(
                "the log of the previous boot cannot be followed",
            ));
        }
        if previous {
            let lines = self.previous(id, tail_lines).await?;
            let stream = tokio_stream::iter(chunks(lines).map(Ok));
            return Ok(Response::new(Box::pin(stream)));
        }
        if !follow && self.store.cursor(&id, 0).is_none() {
            return Err(Status::not_found(format!(
                "no log {id:?}: `service` lists the services; for pods use `logs --kubernetes`"
            )));
        }
        let store = self.store.clone();
        let reader = Reader {
            store,
            id,
            follow,
            tail: tail_lines,
            at: None,
        };
        let stream = futures_util::stream::unfold(reader, |mut reader| async {
            reader.next().await.map(|chunk| (Ok(chunk), reader))
        });
        Ok(Response::new(Box::pin(stream)))
    }

    async fn list(&self, _: Request<LogListRequest>) -> Result<Response<LogListReply>, Status> {
        let (infos, refused) = self.store.list();
        let logs = infos.into_iter().map(|info| LogInfo {
            id: info.id.to_string(),
            bytes: info.bytes as u64,
            lines: info.lines,
            dropped_lines: info.dropped,
            lost_lines: info.lost,
        });
        Ok(Response::new(LogListReply {
            logs: logs.collect(),
            refused,
        }))
    }
}
