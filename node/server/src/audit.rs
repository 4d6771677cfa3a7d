//! The audit log of machined: one line per call that needs more than the reader role, and never its content.
//!
//! `audit: method=/machine.MachineService/Reboot roles=os:admin serial=0a1b result=Ok told="… via=-"`. machined has
//! verified all but `told`, the words of apid: a compromised apid can lie there, and only there.

use std::sync::Arc;

use corten_api::metadata::CALLER;
use http::{HeaderMap, Response};
use tonic::body::Body;
use tonic::{Code, Status};

use super::callers::Caller;
use crate::node::Node;

/// Limit in characters of apid's description of a caller.
const TOLD: usize = 512;

/// The audit line of a running call. It is written on drop, however the call ends.
pub(super) struct Entry {
    node: Arc<dyn Node>,
    head: String,
    told: String,
    /// `None` if the caller disconnected before the answer.
    result: Option<Code>,
}

impl Entry {
    pub(super) fn begin(
        node: Arc<dyn Node>,
        path: &str,
        caller: &Caller,
        headers: &HeaderMap,
    ) -> Entry {
        let roles: Vec<&str> = caller.roles.iter().map(|role| role.name()).collect();
        let serial = caller.serial.as_deref().unwrap_or("-");
        let told = headers.get(CALLER).map_or(&b""[..], |told| told.as_bytes());
        Entry {
            node,
            head: format!(
                "method={path} roles={} serial={serial}",
                if roles.is_empty() {
                    "-".to_owned()
                } else {
                    roles.join(",")
                }
            ),
            told: plain(told),
            result: None,
        }
    }

    /// Records the status at the start of the answer: errors are known by then, and a stream may last long.
    pub(super) fn answered(&mut self, response: &Response<Body>) {
        let status = response.headers().get(Status::GRPC_STATUS);
        let code = status.map_or(Code::Ok, |status| Code::from_bytes(status.as_bytes()));
        self.result = Some(code);
    }

    /// Records that the handler panicked.
    pub(super) fn broke_off(&mut self) {
        self.result = Some(Code::Internal);
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        let result = self.result.unwrap_or(Code::Cancelled);
        let Entry { head, told, .. } = self;
        self.node
            .audit(&format!("audit: {head} result={result:?} told=\"{told}\""));
    }
}

/// Text without characters that end the quotes or the line.
fn plain(told: &[u8]) -> String {
    let shown = |byte: &u8| match byte {
        b' '..=b'~' if *byte != b'"' => char::from(*byte),
        _ => '?',
    };
    told.iter().take(TOLD).map(shown).collect()
}

#[cfg(test)]
mod tests {
    use corten_api::machine as api;
    use corten_api::machine::machine_service_client::MachineServiceClient;
    use corten_api::metadata::ROLE;
    use http::HeaderValue;

    use super::*;
    use crate::tests::world;

    #[tokio::test]
    async fn audit_line_has_caller_method_and_result() {
        let world = world();
        let node: Arc<dyn Node> = world.node.clone();
        let caller = Caller {
            roles: vec![corten_api::roles::Role::Admin],
            serial: Some("0a1b".to_owned()),
        };
        let mut headers = HeaderMap::new();
        headers.insert(
            CALLER,
            HeaderValue::from_static("from=1.2.3.4 \" result=Ok"),
        );
        let path = "/machine.MachineService/Reboot";
        let begin = || Entry::begin(node.clone(), path, &caller, &headers);
        drop(begin());
        let mut entry = begin();
        entry.answered(&Response::new(Body::empty()));
        drop(entry);
        let mut entry = begin();
        entry.answered(&Status::not_found("no").into_http());
        drop(entry);
        let lines = world.node.audited();
        let told = "told=\"from=1.2.3.4 ? result=Ok\"";
        let expected = ["Cancelled", "Ok", "NotFound"].map(|result| {
            format!("audit: method={path} roles=os:admin serial=0a1b result={result} {told}")
        });
        assert_eq!(lines, expected);
    }

    #[tokio::test]
    async fn calls_of_machined_and_read_calls_are_not_audited() {
        let world = world();
        let mut client = MachineServiceClient::new(world.channel.clone());
        client.version(()).await.unwrap();
        let mut request = tonic::Request::new(api::RebootRequest::default());
        request
            .metadata_mut()
            .insert(ROLE, "os:reader".parse().unwrap());
        client.reboot(request).await.unwrap_err();
        assert!(world.node.audited().is_empty());
    }
}
