//! `LogService` over the store (api/proto/corten/log.proto).

use crate::store::Store;
use corten_api::corten::v1::log_service_server::LogService;
use corten_api::corten::v1::{
    AppendReply, LogChunk, LogInfo, LogListReply, LogListRequest, LogReadRequest, LogRecord,
};
use futures_util::Stream;
use std::pin::Pin;
use std::sync::Arc;
use tokio::sync::watch;
use tonic::{Request, Response, Status, Streaming};

/// The service; clones share the store.
#[derive(Debug, Clone)]
pub struct Service {
    store: Arc<Store>,
}

impl Service {
    /// Serves `store`.
    #[must_use]
    pub fn new(store: Arc<Store>) -> Self {
        Self { store }
    }
}

/// A reader: a place in a log. The stream it makes holds no lines; it fetches
/// the next ones when the transport has room for them.
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
                return Some(LogChunk {
                    bytes: read.bytes.into(),
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

    /// Waits for the log to exist.
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
        } = request.into_inner();
        if !follow && self.store.cursor(&id, 0).is_none() {
            return Err(Status::not_found(format!("no log {id:?}")));
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
            id: info.id,
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
