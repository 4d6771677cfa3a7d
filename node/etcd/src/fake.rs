//! A scripted fake etcd for tests, which records its calls.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_util::{Stream, StreamExt as _, stream};
use http_body_util::Full;
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::body::Body;
use tonic::server::NamedService;
use tonic::service::Routes;
use tonic::transport::{Certificate, Endpoint, Identity, Server, ServerTlsConfig};
use tonic::{Request, Response, Status, Streaming};

use crate::client::{Client, Tls};
use crate::wire::etcdserverpb as pb;
use crate::wire::etcdserverpb::cluster_server::{Cluster, ClusterServer};
use crate::wire::etcdserverpb::kv_server::{Kv, KvServer};
use crate::wire::etcdserverpb::lease_server::{Lease, LeaseServer};
use crate::wire::etcdserverpb::maintenance_server::{Maintenance, MaintenanceServer};
use crate::wire::mvccpb::KeyValue;
use crate::wire::v3lockpb as locks;
use crate::wire::v3lockpb::lock_server::{Lock, LockServer};

/// Id of every lease.
pub(crate) const LEASE: i64 = 7;

/// The answers. A refusal, if set, answers every call.
#[derive(Debug, Default, Clone)]
pub(crate) struct Script {
    pub refusal: Option<Status>,
    /// Answer to a read, instead of `found`.
    pub unreadable: Option<Status>,
    /// Whether listing members never returns.
    pub hangs: bool,
    pub members: Vec<pb::Member>,
    pub added: Option<pb::Member>,
    /// Refusals of the first removals.
    pub removals: Vec<Status>,
    pub status: pb::StatusResponse,
    pub alarms: Vec<pb::AlarmMember>,
    pub found: Vec<KeyValue>,
    pub snapshot: Vec<Result<pb::SnapshotResponse, Status>>,
    /// Number of extra copies of the snapshot's first piece.
    pub repeated: usize,
    /// Whether the snapshot never ends.
    pub stalls: bool,
    /// TTL of a lease, in seconds.
    pub ttl: i64,
    /// Number of successful renewals before the lease is gone.
    pub renewals: usize,
    /// Key of the lock; `None` if another client holds the lock for ever.
    pub lock: Option<Vec<u8>>,
}

/// Record of the calls.
#[derive(Debug, Default)]
pub(crate) struct Asked {
    pub calls: Vec<String>,
    pub renewals: usize,
    pub pieces: usize,
}

#[derive(Debug, Clone)]
pub(crate) struct Fake {
    script: Arc<Script>,
    asked: Arc<Mutex<Asked>>,
}

type Answer<T> = Result<Response<T>, Status>;
type Answers<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

impl Fake {
    /// Starts the fake with a client.
    pub(crate) async fn start(script: Script) -> (Fake, Client) {
        let fake = Fake {
            script: Arc::new(script),
            asked: Arc::default(),
        };
        let client = serve(fake.routes()).await;
        (fake, client)
    }

    /// Serves over TLS on this listener.
    pub(crate) fn serve_tls(script: Script, listener: TcpListener, tls: &Tls) -> Fake {
        let fake = Fake {
            script: Arc::new(script),
            asked: Arc::default(),
        };
        let own = ServerTlsConfig::new()
            .identity(Identity::from_pem(&tls.crt, &tls.key))
            .client_ca_root(Certificate::from_pem(&tls.ca));
        let mut server = Server::builder().tls_config(own).unwrap();
        let server = server.add_routes(fake.routes());
        tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
        fake
    }

    fn routes(&self) -> Routes {
        Routes::new(ClusterServer::new(self.clone()))
            .add_service(KvServer::new(self.clone()))
            .add_service(LeaseServer::new(self.clone()))
            .add_service(MaintenanceServer::new(self.clone()))
            .add_service(LockServer::new(self.clone()))
    }

    pub(crate) fn asked<T>(&self, see: impl FnOnce(&mut Asked) -> T) -> T {
        see(&mut self.asked.lock().unwrap())
    }

    /// Waits until a call has arrived.
    pub(crate) async fn until(&self, call: &str) {
        while !self.asked(|asked| asked.calls.iter().any(|found| found == call)) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    fn answer<T>(&self, call: String, answer: T) -> Answer<T> {
        self.asked(|asked| asked.calls.push(call));
        match &self.script.refusal {
            Some(refusal) => Err(refusal.clone()),
            None => Ok(Response::new(answer)),
        }
    }
}

/// Serves the routes and returns a client.
pub(crate) async fn serve(routes: Routes) -> Client {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let server = Server::builder().add_routes(routes);
    tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
    client(&address)
}

/// A client without TLS.
pub(crate) fn client(address: &str) -> Client {
    let endpoint = Endpoint::from_shared(format!("http://{address}")).unwrap();
    Client::over(endpoint.connect_lazy(), address, Duration::from_secs(2))
}

#[tonic::async_trait]
impl Cluster for Fake {
    async fn member_list(
        &self,
        request: Request<pb::MemberListRequest>,
    ) -> Answer<pb::MemberListResponse> {
        if self.script.hangs {
            std::future::pending::<()>().await;
        }
        let members = self.script.members.clone();
        let call = format!("list {}", request.into_inner().linearizable);
        self.answer(
            call,
            pb::MemberListResponse {
                header: None,
                members,
            },
        )
    }

    async fn member_add(
        &self,
        request: Request<pb::MemberAddRequest>,
    ) -> Answer<pb::MemberAddResponse> {
        let request = request.into_inner();
        let answer = pb::MemberAddResponse {
            header: None,
            member: self.script.added.clone(),
            members: self.script.members.clone(),
        };
        self.answer(
            format!("add {:?} {}", request.peer_ur_ls, request.is_learner),
            answer,
        )
    }

    async fn member_remove(
        &self,
        request: Request<pb::MemberRemoveRequest>,
    ) -> Answer<pb::MemberRemoveResponse> {
        let call = format!("remove {}", request.into_inner().id);
        let before = self.asked(|asked| asked.calls.iter().filter(|one| **one == call).count());
        let answer = self.answer(call, pb::MemberRemoveResponse::default());
        match self.script.removals.get(before) {
            Some(refusal) => Err(refusal.clone()),
            None => answer,
        }
    }

    async fn member_update(
        &self,
        request: Request<pb::MemberUpdateRequest>,
    ) -> Answer<pb::MemberUpdateResponse> {
        let request = request.into_inner();
        let call = format!("update {} {:?}", request.id, request.peer_ur_ls);
        self.answer(call, pb::MemberUpdateResponse::default())
    }

    async fn member_promote(
        &self,
        request: Request<pb::MemberPromoteRequest>,
    ) -> Answer<pb::MemberPromoteResponse> {
        let members = self.script.members.clone();
        let call = format!("promote {}", request.into_inner().id);
        self.answer(
            call,
            pb::MemberPromoteResponse {
                header: None,
                members,
            },
        )
    }
}

#[tonic::async_trait]
impl Kv for Fake {
    async fn range(&self, request: Request<pb::RangeRequest>) -> Answer<pb::RangeResponse> {
        let kvs = self.script.found.clone();
        let call = format!("read {}", request.into_inner().serializable);
        if let Some(refusal) = &self.script.unreadable {
            return Err(refusal.clone());
        }
        self.answer(call, pb::RangeResponse { header: None, kvs })
    }
}

#[tonic::async_trait]
impl Maintenance for Fake {
    async fn status(&self, _: Request<pb::StatusRequest>) -> Answer<pb::StatusResponse> {
        self.answer("status".to_owned(), self.script.status.clone())
    }

    async fn alarm(&self, request: Request<pb::AlarmRequest>) -> Answer<pb::AlarmResponse> {
        let request = request.into_inner();
        let call = format!(
            "alarm {} {} {}",
            request.action, request.member_id, request.alarm
        );
        let alarms = self.script.alarms.clone();
        self.answer(
            call,
            pb::AlarmResponse {
                header: None,
                alarms,
            },
        )
    }

    async fn snapshot(
        &self,
        _: Request<pb::SnapshotRequest>,
    ) -> Answer<Answers<pb::SnapshotResponse>> {
        let again = self.script.snapshot.first().cloned();
        let again = stream::iter(again).cycle().take(self.script.repeated);
        let asked = Arc::clone(&self.asked);
        let pieces = again
            .chain(stream::iter(self.script.snapshot.clone()))
            .inspect(move |_| asked.lock().unwrap().pieces += 1);
        let pieces = if self.script.stalls {
            pieces.chain(stream::pending()).boxed()
        } else {
            pieces.boxed()
        };
        self.answer("snapshot".to_owned(), pieces)
    }
}

#[tonic::async_trait]
impl Lease for Fake {
    async fn lease_grant(
        &self,
        request: Request<pb::LeaseGrantRequest>,
    ) -> Answer<pb::LeaseGrantResponse> {
        let answer = pb::LeaseGrantResponse {
            id: LEASE,
            ttl: self.script.ttl,
            ..Default::default()
        };
        self.answer(format!("grant {}", request.into_inner().ttl), answer)
    }

    async fn lease_revoke(
        &self,
        request: Request<pb::LeaseRevokeRequest>,
    ) -> Answer<pb::LeaseRevokeResponse> {
        let call = format!("revoke {}", request.into_inner().id);
        self.answer(call, pb::LeaseRevokeResponse::default())
    }

    async fn lease_keep_alive(
        &self,
        request: Request<Streaming<pb::LeaseKeepAliveRequest>>,
    ) -> Answer<Answers<pb::LeaseKeepAliveResponse>> {
        let id = request.into_inner().message().await?.unwrap_or_default().id;
        let so_far = self.asked(|asked| {
            asked.renewals += 1;
            asked.renewals
        });
        let left = so_far <= self.script.renewals;
        let ttl = if left { self.script.ttl } else { 0 };
        let answer = pb::LeaseKeepAliveResponse {
            header: None,
            id,
            ttl,
        };
        self.answer(format!("renew {id}"), stream::iter([Ok(answer)]).boxed())
    }
}

#[tonic::async_trait]
impl Lock for Fake {
    async fn lock(&self, request: Request<locks::LockRequest>) -> Answer<locks::LockResponse> {
        let request = request.into_inner();
        let name = String::from_utf8_lossy(&request.name).into_owned();
        let Some(key) = self.script.lock.clone() else {
            self.asked(|asked| asked.calls.push("wait".to_owned()));
            return std::future::pending().await;
        };
        let call = format!("lock {name} {}", request.lease);
        self.answer(call, locks::LockResponse { header: None, key })
    }

    async fn unlock(
        &self,
        request: Request<locks::UnlockRequest>,
    ) -> Answer<locks::UnlockResponse> {
        let key = request.into_inner().key;
        let call = format!("unlock {}", String::from_utf8_lossy(&key));
        self.answer(call, locks::UnlockResponse::default())
    }
}

/// Answers every call with the same raw bytes.
#[derive(Debug, Clone)]
pub(crate) struct Garbage(Bytes);

impl Garbage {
    pub(crate) async fn start(body: &[u8]) -> Client {
        serve(Routes::new(Garbage(Bytes::copy_from_slice(body)))).await
    }
}

impl NamedService for Garbage {
    const NAME: &'static str = "etcdserverpb.Maintenance";
}

impl tower::Service<http::Request<Body>> for Garbage {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = std::future::Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: http::Request<Body>) -> Self::Future {
        let mut answer = http::Response::new(Body::new(Full::new(self.0.clone())));
        let kind = http::HeaderValue::from_static("application/grpc");
        answer
            .headers_mut()
            .insert(http::header::CONTENT_TYPE, kind);
        std::future::ready(Ok(answer))
    }
}
