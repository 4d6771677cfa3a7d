//! Authorizes a call: the peer of the socket, then the table of roles. apid has checked already.
//!
//! A handler that panics answers its call with INTERNAL; other calls continue.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use corten_api::metadata;
use corten_api::roles::{Role, allows, needs_more_than_reader};
use corten_base::panics::{caught, caught_here};
use corten_observe::stream::bug;
use http::{HeaderMap, HeaderValue, Request, Response};
use tonic::Status;
use tonic::body::Body;
use tonic::transport::server::UdsConnectInfo;
use tower::{Layer, Service};

use super::audit::Entry;
use super::callers::{Caller, Callers};
use super::forwarded::{self, Withheld};
use super::{absent, request};
use crate::node::{Node, Stage};

/// The uid apid runs as.
const APID: u32 = 50;

/// The peer that needs no certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Local {
    /// The process with this id. On a node it is machined: root alone is not an administrator.
    Process(i32),
    /// Every process of this uid, for tests and benchmarks with clients in other processes.
    User(u32),
}

impl Default for Local {
    fn default() -> Local {
        Local::Process(rustix::process::getpid().as_raw_nonzero().get())
    }
}

/// The kernel's credentials of a peer.
#[derive(Debug, Clone, Copy)]
struct Peer {
    uid: u32,
    /// `None` if the kernel does not report it.
    process: Option<i32>,
}

impl Local {
    fn is(self, peer: Peer) -> bool {
        match self {
            Local::Process(own) => peer.process == Some(own),
            Local::User(uid) => peer.uid == uid,
        }
    }
}

/// Message of the generated code for a method without an implementation.
const STUB: &[u8] = b"Not yet implemented";

#[derive(Clone)]
pub(super) struct AccessLayer {
    node: Arc<dyn Node>,
    callers: Arc<Callers>,
    local: Local,
}

impl AccessLayer {
    pub(super) fn new(node: Arc<dyn Node>, local: Local) -> AccessLayer {
        let callers = Arc::default();
        AccessLayer {
            node,
            callers,
            local,
        }
    }
}

impl<S> Layer<S> for AccessLayer {
    type Service = Access<S>;

    fn layer(&self, inner: S) -> Access<S> {
        Access {
            inner,
            node: self.node.clone(),
            callers: self.callers.clone(),
            local: self.local,
        }
    }
}

/// A service with the authorization in front.
///
/// The kernel vouches for a peer's uid and process (`SO_PEERCRED`):
/// - apid's uid: the roles in its `talos-role` metadata that the caller's certificate has, too (`callers.rs`);
/// - machined's own process ([`Local`]): the roles it names, or `os:admin` if it names none;
/// - any other peer is refused, even one that runs as root.
#[derive(Clone)]
pub(super) struct Access<S> {
    inner: S,
    node: Arc<dyn Node>,
    callers: Arc<Callers>,
    local: Local,
}

impl<S> Service<Request<Body>> for Access<S>
where
    S: Service<Request<Body>, Response = Response<Body>>,
    S::Future: Send + 'static,
{
    type Response = Response<Body>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, S::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        let peer = request
            .extensions()
            .get::<UdsConnectInfo>()
            .and_then(|info| info.peer_cred)
            .map(|credentials| Peer {
                uid: credentials.uid(),
                process: credentials.pid(),
            });
        let maintenance = self.node.stage() == Stage::Maintenance;
        let path = request.uri().path().to_owned();
        let config = || self.node.config();
        let vouched = || {
            self.callers
                .caller(self.node.store(), request.headers(), config)
        };
        // A panic here would end the connection, and with it all calls of apid.
        let checked = caught_here(|| {
            let caller = caller(peer, self.local, request.headers(), vouched)?;
            may_call(&caller, &path, maintenance)?;
            let withheld = Withheld::by(request.headers(), config);
            if withheld {
                forwarded::check_method(&path)?;
            }
            Ok((caller, withheld))
        });
        let (caller, withheld) = match checked.unwrap_or_else(|_| Err(bug())) {
            Ok(checked) => checked,
            Err(status) => return Box::pin(async move { Ok(status.into_http()) }),
        };
        let is_local = peer.is_some_and(|peer| self.local.is(peer));
        let entry = (!is_local && needs_more_than_reader(&path))
            .then(|| Entry::begin(self.node.clone(), &path, &caller, request.headers()));
        request.extensions_mut().insert(caller);
        if withheld {
            request.extensions_mut().insert(Withheld);
        }
        let request = request.map(|body| request::bounded(body, &path));
        let answer = self.inner.call(request);
        Box::pin(async move {
            let mut entry = entry;
            match caught(answer).await {
                Ok(answer) => answer.map(|response| {
                    if let Some(entry) = &mut entry {
                        entry.answered(&response);
                    }
                    explained(response, &path)
                }),
                Err(_) => {
                    if let Some(entry) = &mut entry {
                        entry.broke_off();
                    }
                    Ok(bug().into_http())
                }
            }
        })
    }
}

/// The caller; `vouched` returns the caller that apid presents.
fn caller(
    peer: Option<Peer>,
    local: Local,
    headers: &HeaderMap,
    vouched: impl FnOnce() -> Result<Caller, String>,
) -> Result<Caller, Status> {
    let named: Vec<Role> = headers
        .get_all(metadata::ROLE)
        .iter()
        .filter_map(|value| Role::parse(value.to_str().ok()?))
        .collect();
    let here = |roles| Caller {
        roles,
        serial: None,
    };
    Ok(match peer {
        Some(peer) if local.is(peer) && headers.contains_key(metadata::ROLE) => here(named),
        Some(peer) if local.is(peer) => here(vec![Role::Admin]),
        Some(Peer { uid: APID, .. }) => {
            let mut vouched = vouched()
                .map_err(|why| Status::permission_denied(format!("not authorized: {why}")))?;
            vouched.roles.retain(|role| named.contains(role));
            vouched
        }
        _ => here(Vec::new()),
    })
}

/// Checks the call against the table of roles.
fn may_call(caller: &Caller, path: &str, maintenance: bool) -> Result<(), Status> {
    if allows(path, &caller.roles, maintenance) {
        Ok(())
    } else {
        Err(Status::permission_denied("not authorized"))
    }
}

/// Replaces the generated code's message by a sentence.
fn explained(mut response: Response<Body>, path: &str) -> Response<Body> {
    let headers = response.headers_mut();
    let unimplemented = headers.get(Status::GRPC_STATUS).is_some_and(|v| v == "12");
    let by_stub = headers.get(Status::GRPC_MESSAGE).is_none_or(|message| {
        let plain = message.as_bytes();
        plain == STUB || plain == b"Not%20yet%20implemented"
    });
    if unimplemented && by_stub {
        let text = absent::sentence(path);
        // grpc-message is percent-encoded; the text must not need encoding.
        let safe = text
            .chars()
            .all(|c| c.is_ascii_graphic() && c != '%' || c == ' ');
        if let (true, Ok(value)) = (safe, HeaderValue::from_str(&text)) {
            headers.insert(Status::GRPC_MESSAGE, value);
        }
    }
    response
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use corten_api::roles::METHODS;
    use corten_resources::Store;

    use super::super::callers::tests::{accepting, new_ca, shown};
    use super::*;

    const VERSION: &str = "/machine.MachineService/Version";
    const REBOOT: &str = "/machine.MachineService/Reboot";

    fn headers(roles: &[&str]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for role in roles {
            map.append(metadata::ROLE, HeaderValue::from_str(role).unwrap());
        }
        map
    }

    const APIDS: Option<Peer> = Some(Peer {
        uid: APID,
        process: Some(7),
    });

    fn check(
        peer: Option<Peer>,
        headers: &HeaderMap,
        vouched: impl FnOnce() -> Result<Caller, String>,
        path: &str,
        maintenance: bool,
    ) -> Result<Caller, Status> {
        let caller = caller(peer, Local::default(), headers, vouched)?;
        may_call(&caller, path, maintenance).map(|()| caller)
    }

    /// apid presents a caller with these roles.
    fn vouched(roles: &[Role]) -> impl FnOnce() -> Result<Caller, String> {
        let roles = roles.to_vec();
        move || {
            let serial = None;
            Ok(Caller { roles, serial })
        }
    }

    fn no_certificate() -> Result<Caller, String> {
        Err("the call came without the caller's certificate".to_owned())
    }

    #[test]
    fn only_apid_may_forward_calls() {
        let admin = headers(&["os:admin"]);
        check(APIDS, &admin, vouched(&[Role::Admin]), REBOOT, false).unwrap();
        let user = |uid| {
            let process = Some(8);
            Some(Peer { uid, process })
        };
        for peer in [None, user(0), user(52), user(1000)] {
            let refused = check(peer, &admin, vouched(&[Role::Admin]), VERSION, false).unwrap_err();
            assert_eq!(refused.code(), tonic::Code::PermissionDenied);
        }
    }

    #[test]
    fn role_claimed_by_apid_without_a_certificate_is_refused() {
        let admin = headers(&["os:admin", "os:reader"]);
        let refused = check(APIDS, &admin, no_certificate, VERSION, false).unwrap_err();
        assert_eq!(refused.code(), tonic::Code::PermissionDenied);
        assert!(
            refused
                .message()
                .contains("without the caller's certificate"),
            "{refused}"
        );
        let reader = || vouched(&[Role::Reader]);
        check(APIDS, &admin, reader(), VERSION, false).unwrap();
        check(APIDS, &admin, reader(), REBOOT, false).unwrap_err();
        // A forwarding node has no roles without a caller.
        let speaker = vouched(&[Role::Impersonator]);
        check(APIDS, &admin, speaker, VERSION, false).unwrap_err();
    }

    #[test]
    fn apid_without_a_caller_certificate_may_call_no_method() {
        let all = headers(&Role::ALL.map(Role::name));
        for method in METHODS {
            for maintenance in [false, true] {
                check(APIDS, &all, no_certificate, method.path, maintenance).unwrap_err();
            }
        }
    }

    #[test]
    fn machined_checks_roles_again() {
        let all = || vouched(&Role::ALL);
        check(APIDS, &headers(&["os:reader"]), all(), VERSION, false).unwrap();
        check(APIDS, &headers(&["os:reader"]), all(), REBOOT, false).unwrap_err();
        let operator = headers(&["os:nothing", "os:operator"]);
        check(APIDS, &operator, all(), REBOOT, false).unwrap();
        check(APIDS, &headers(&[]), all(), VERSION, false).unwrap_err();
    }

    #[test]
    fn certificates_from_apid_are_verified_against_the_accepted_cas() {
        let ca = new_ca();
        let store = Store::new();
        accepting(&store, &[&ca]);
        let callers = Callers::default();
        let hour = Duration::from_secs(3600);
        let reader = ca.client(&["os:reader"], SystemTime::now(), hour).unwrap();
        let mut call = shown(&reader);
        for role in ["os:reader", "os:admin"] {
            call.append(metadata::ROLE, HeaderValue::from_static(role));
        }
        let vouched = || callers.caller(&store, &call, || None);
        let caller = check(APIDS, &call, vouched, VERSION, false).unwrap();
        let leaf = &corten_pki::certificates_from_pem(reader.crt.as_bytes()).unwrap()[0];
        let serial = Some(corten_pki::serial(leaf).unwrap());
        let roles = vec![Role::Reader];
        assert_eq!(caller, Caller { roles, serial });
        check(APIDS, &call, vouched, REBOOT, false).unwrap_err();
    }

    #[test]
    fn only_machined_itself_is_an_implicit_admin_and_other_root_processes_are_not() {
        let root = |process| Some(Peer { uid: 0, process });
        let own = root(Some(rustix::process::getpid().as_raw_nonzero().get()));
        check(own, &headers(&[]), no_certificate, REBOOT, false).unwrap();
        check(own, &headers(&["os:reader"]), no_certificate, REBOOT, false).unwrap_err();
        for process in [None, Some(0), Some(i32::MAX)] {
            check(root(process), &headers(&[]), no_certificate, REBOOT, false).unwrap_err();
            let admin = headers(&["os:admin"]);
            check(root(process), &admin, no_certificate, VERSION, false).unwrap_err();
            check(root(process), &headers(&[]), no_certificate, VERSION, true).unwrap_err();
        }
    }
}
