//! Logs of services, which syslogd stores.

use std::path::Path;

use corten_api::common::{ContainerDriver, Data};
use corten_api::corten::v1::log_service_client::LogServiceClient;
use corten_api::corten::v1::{LogChunk, LogInfo, LogListRequest, LogReadRequest};
use corten_api::machine as api;
use corten_base::unix;
use corten_supervisor::supervisor::logs::AUDIT;
use corten_types::runtime::LastStop;
use corten_types::stop::Reason;
use tokio_stream::StreamExt as _;
use tonic::codegen::BoxStream;
use tonic::transport::Channel;
use tonic::{Code, Status};

use super::Paths;
use crate::node::ServiceView;

/// Separates the kernel's log from pstore, which overlaps the end of syslogd's.
const LAST_WORDS: &str = "[the kernel's last messages, from pstore]\n";

/// Streams a log: the last `tail_lines` (negative: all), and with `follow` new lines; with `previous` the tail that the
/// previous boot recorded. A follower of the audit log or of one of `services` may start before the log exists.
pub(super) async fn logs(
    paths: &Paths,
    services: &[ServiceView],
    request: api::LogsRequest,
    previous: bool,
) -> Result<BoxStream<Data>, Status> {
    if !matches!(request.namespace.as_str(), "" | "system" | "k8s.io") {
        return Err(Status::invalid_argument(
            "the namespace must be system or k8s.io",
        ));
    }
    let is_its = |service: &ServiceView| service.id == request.id;
    let may_come = || request.id == AUDIT || services.iter().any(is_its);
    if request.follow && !previous && !may_come() && !is_there(paths, &request.id).await? {
        return Err(Status::not_found(format!(
            "no log {:?}: `service` lists the services; for pods use `logs --kubernetes`",
            request.id
        )));
    }
    let wanted = LogReadRequest {
        id: request.id,
        follow: request.follow,
        tail_lines: request.tail_lines,
        previous,
    };
    read(paths, wanted).await
}

/// Streams the previous boot's kernel log. syslogd does not see the panic that ends a boot, so the kernel's last words
/// in `last` follow the recorded log.
pub(super) async fn previous_dmesg(
    paths: &Paths,
    request: &api::DmesgRequest,
    last: Option<&LastStop>,
) -> Result<BoxStream<Data>, Status> {
    if request.follow || request.tail {
        return Err(Status::invalid_argument(
            "the kernel log of the previous boot cannot be followed",
        ));
    }
    let wanted = LogReadRequest {
        id: "kernel".to_owned(),
        tail_lines: -1,
        previous: true,
        ..LogReadRequest::default()
    };
    let kept = read(paths, wanted).await;
    let panicked = |last: &&LastStop| matches!(last.reason, Reason::Panic | Reason::OutOfMemory);
    let words = last
        .filter(panicked)
        .map_or("", |last| last.kernel_log.as_str());
    if words.is_empty() {
        return kept;
    }
    let kept: BoxStream<Data> = match kept {
        // No log was recorded, or there is no volume for it.
        Err(status) if matches!(status.code(), Code::NotFound | Code::FailedPrecondition) => {
            Box::pin(tokio_stream::empty())
        }
        kept => kept?,
    };
    let words = format!("{LAST_WORDS}{words}").into_bytes();
    let metadata = None;
    let words = tokio_stream::once(Ok(Data {
        metadata,
        bytes: words,
    }));
    Ok(Box::pin(kept.chain(words)))
}

async fn read(paths: &Paths, wanted: LogReadRequest) -> Result<BoxStream<Data>, Status> {
    let chunks = client(&paths.syslogd)
        .await?
        .read(wanted)
        .await
        .map_err(worded)?
        .into_inner();
    Ok(Box::pin(
        chunks.map(|chunk| chunk.map(data).map_err(worded)),
    ))
}

async fn is_there(paths: &Paths, id: &str) -> Result<bool, Status> {
    Ok(list(paths).await?.iter().any(|log| log.id == id))
}

async fn list(paths: &Paths) -> Result<Vec<LogInfo>, Status> {
    let reply = client(&paths.syslogd).await?.list(LogListRequest {}).await;
    Ok(reply.map_err(worded)?.into_inner().logs)
}

/// The ids of all logs.
pub(super) async fn ids(paths: &Paths) -> Result<api::LogsContainersResponse, Status> {
    let logs = list(paths).await?;
    let container = api::LogsContainer {
        metadata: None,
        ids: logs.into_iter().map(|log| log.id).collect(),
    };
    Ok(api::LogsContainersResponse {
        messages: vec![container],
    })
}

async fn client(socket: &Path) -> Result<LogServiceClient<Channel>, Status> {
    let channel = unix::connect(socket)
        .await
        .map_err(|_| Status::unavailable("syslogd does not answer; the service list says why"))?;
    Ok(LogServiceClient::new(channel))
}

fn data(chunk: LogChunk) -> Data {
    let mut bytes = Vec::new();
    if chunk.dropped_lines > 0 {
        let note = format!("[{} lines were dropped here]\n", chunk.dropped_lines);
        bytes.extend_from_slice(note.as_bytes());
    }
    bytes.extend_from_slice(&chunk.bytes);
    Data {
        metadata: None,
        bytes,
    }
}

/// Hides the transport's messages, which mean nothing to a caller of this API.
fn worded(status: Status) -> Status {
    match status.code() {
        Code::Unknown | Code::Unavailable | Code::Cancelled => {
            Status::unavailable("syslogd closed the connection")
        }
        _ => Status::new(status.code(), status.message()),
    }
}

/// Whether the request is for a pod container's log. The kubelet's log is the node's own.
pub(super) fn is_of_pod(request: &api::LogsRequest) -> bool {
    let pods = request.driver() == ContainerDriver::Cri || request.namespace == "k8s.io";
    pods && request.id != "kubelet"
}

#[cfg(test)]
mod tests {
    use corten_api::corten::v1::log_service_server::{LogService, LogServiceServer};
    use corten_api::corten::v1::{AppendReply, LogListReply, LogRecord};
    use tokio::net::UnixListener;
    use tokio_stream::wrappers::UnixListenerStream;
    use tonic::{Request, Response, Streaming};

    use super::*;

    /// A syslogd that echoes the request.
    struct Echo;

    #[tonic::async_trait]
    impl LogService for Echo {
        type ReadStream = BoxStream<LogChunk>;

        async fn read(
            &self,
            request: Request<LogReadRequest>,
        ) -> Result<Response<Self::ReadStream>, Status> {
            let asked = request.into_inner();
            let text = format!("{} {} {}", asked.id, asked.tail_lines, asked.previous);
            let chunk = LogChunk {
                bytes: text.into_bytes(),
                dropped_lines: 0,
            };
            Ok(Response::new(Box::pin(tokio_stream::once(Ok(chunk)))))
        }

        async fn append(
            &self,
            _: Request<Streaming<LogRecord>>,
        ) -> Result<Response<AppendReply>, Status> {
            Err(Status::unimplemented("not asked"))
        }

        async fn list(&self, _: Request<LogListRequest>) -> Result<Response<LogListReply>, Status> {
            let apid = LogInfo {
                id: "apid".to_owned(),
                ..LogInfo::default()
            };
            Ok(Response::new(LogListReply {
                logs: vec![apid],
                refused: 0,
            }))
        }
    }

    async fn text(stream: Result<BoxStream<Data>, Status>) -> String {
        let data: Vec<Data> = stream.unwrap().map(Result::unwrap).collect().await;
        String::from_utf8(data.into_iter().flat_map(|data| data.bytes).collect()).unwrap()
    }

    /// Starts it in a directory.
    fn echo(directory: &Path) -> Paths {
        let syslogd = directory.join("socket");
        let listener = UnixListener::bind(&syslogd).unwrap();
        let server = tonic::transport::Server::builder()
            .add_service(LogServiceServer::new(Echo))
            .serve_with_incoming(UnixListenerStream::new(listener));
        tokio::spawn(server);
        Paths {
            syslogd,
            ..Paths::default()
        }
    }

    #[tokio::test]
    async fn only_existing_logs_and_logs_of_declared_services_are_followed() {
        let directory = tempfile::tempdir().unwrap();
        let paths = echo(directory.path());
        let at = std::time::SystemTime::UNIX_EPOCH;
        let service = ServiceView {
            id: "ext-late".to_owned(),
            state: crate::node::ServiceState::Waiting,
            pid: None,
            healthy: None,
            health_message: String::new(),
            health_changed: at,
            events: Vec::new(),
        };
        let follow = |id: &str| api::LogsRequest {
            id: id.to_owned(),
            follow: true,
            ..api::LogsRequest::default()
        };
        for (id, is_followed) in [
            ("apid", true),
            ("ext-late", true),
            ("audit", true),
            ("wrong", false),
        ] {
            let services = std::slice::from_ref(&service);
            match logs(&paths, services, follow(id), false).await {
                Ok(_) => assert!(is_followed, "{id}"),
                Err(status) => {
                    assert!(!is_followed, "{id}");
                    assert_eq!(status.code(), Code::NotFound);
                    assert!(status.message().contains("\"wrong\""), "{status}");
                }
            }
        }
    }

    #[tokio::test]
    async fn logs_of_the_previous_boot_come_from_syslogd() {
        let directory = tempfile::tempdir().unwrap();
        let paths = echo(directory.path());
        let apid = api::LogsRequest {
            id: "apid".to_owned(),
            tail_lines: 7,
            ..api::LogsRequest::default()
        };
        assert_eq!(
            text(logs(&paths, &[], apid.clone(), true).await).await,
            "apid 7 true"
        );
        assert_eq!(
            text(logs(&paths, &[], apid, false).await).await,
            "apid 7 false"
        );
        let mut kernel = api::DmesgRequest::default();
        assert_eq!(
            text(previous_dmesg(&paths, &kernel, None).await).await,
            "kernel -1 true"
        );
        kernel.follow = true;
        let refused = previous_dmesg(&paths, &kernel, None).await.err().unwrap();
        assert_eq!(refused.code(), Code::InvalidArgument);
    }

    #[tokio::test]
    async fn the_log_of_a_boot_that_panicked_ends_with_the_panic() {
        let directory = tempfile::tempdir().unwrap();
        let paths = echo(directory.path());
        let request = api::DmesgRequest::default();
        let last = |reason| LastStop {
            reason,
            detail: String::new(),
            time: String::new(),
            boot_id: String::new(),
            kernel_log: "<0>[    9.1] Kernel panic\n".to_owned(),
            killed: Vec::new(),
            locked: String::new(),
        };
        let words = format!("{LAST_WORDS}<0>[    9.1] Kernel panic\n");
        for (reason, ends) in [
            (Reason::Panic, true),
            (Reason::OutOfMemory, true),
            // The last words belong to an earlier panic.
            (Reason::CutOff, false),
        ] {
            let log = text(previous_dmesg(&paths, &request, Some(&last(reason))).await).await;
            let kept = log.strip_suffix(&words);
            assert_eq!(kept.unwrap_or(&log), "kernel -1 true");
            assert_eq!(kept.is_some(), ends, "{reason:?}");
        }
        // A silent syslogd is an error, not an empty log.
        let nobody = Paths {
            syslogd: directory.path().join("nobody"),
            ..Paths::default()
        };
        let panicked = last(Reason::Panic);
        let refused = previous_dmesg(&nobody, &request, Some(&panicked)).await;
        assert_eq!(refused.err().unwrap().code(), Code::Unavailable);
    }
}
