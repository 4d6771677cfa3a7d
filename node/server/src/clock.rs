//! time.TimeService: compares the node's clock with a time server's.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use corten_api::time as api;
use corten_api::time::time_service_server::TimeService;
use corten_base::bulkhead::Bulkhead;
use corten_clock::ask::{Resting, ask};
use corten_clock::error::{AskError, PATIENCE};
use corten_types::network_names::TimeServerStatus;
use tonic::{Request, Response, Status, async_trait};

use super::is_host;
use crate::node::Node;

/// Limit of concurrent DNS lookups for callers.
const NAMES: usize = 4;

/// The service.
pub(super) struct Clock {
    node: Arc<dyn Node>,
    /// Callers may give any name. Their lookups are limited apart from the node's own clock.
    names: Bulkhead,
}

#[async_trait]
impl TimeService for Clock {
    async fn time(&self, _: Request<()>) -> Result<Response<api::TimeResponse>, Status> {
        let servers = self.servers();
        let server = servers.first().ok_or_else(|| {
            Status::failed_precondition(
                "no time server: config, DHCP and platform name none; set machine.time.servers, or use \
                 `time --check SERVER`",
            )
        })?;
        self.compare(server).await
    }

    async fn time_check(
        &self,
        request: Request<api::TimeRequest>,
    ) -> Result<Response<api::TimeResponse>, Status> {
        let server = request.into_inner().server;
        if server.is_empty() {
            return self.time(Request::new(())).await;
        }
        // A device path is used only if the config names it: opening a device may have side effects.
        if !self.servers().contains(&server) && !can_be_asked(&server) {
            let text = format!("server: {server:?} is neither a host name nor an address");
            return Err(Status::invalid_argument(text));
        }
        self.compare(&server).await
    }
}

impl Clock {
    pub(super) fn new(node: Arc<dyn Node>) -> Clock {
        let names = Bulkhead::new(NAMES, PATIENCE);
        Clock { node, names }
    }

    async fn compare(&self, server: &str) -> Result<Response<api::TimeResponse>, Status> {
        let asked = ask(server, &self.names, &Resting::default()).await;
        let answer = asked.map_err(|error| {
            let text = format!("server: {server}: {error}");
            match error {
                AskError::Unresolved(refused) => Status::new(Status::from(refused).code(), text),
                _ => Status::unavailable(text),
            }
        })?;
        let local = SystemTime::now();
        let offset = Duration::from_nanos(answer.sample.offset.unsigned_abs());
        let remote = if answer.sample.offset < 0 {
            local.checked_sub(offset)
        } else {
            local.checked_add(offset)
        };
        let time = api::Time {
            metadata: None,
            server: server.to_owned(),
            localtime: Some(local.into()),
            remotetime: remote.map(Into::into),
        };
        Ok(Response::new(api::TimeResponse {
            messages: vec![time],
        }))
    }

    fn servers(&self) -> Vec<String> {
        let status = self
            .node
            .store()
            .get_as::<TimeServerStatus>(TimeServerStatus::ID);
        status
            .map(|status| status.time_servers.clone())
            .unwrap_or_default()
    }
}

/// Whether the text can be a host name or an address; an address may have a port.
fn can_be_asked(server: &str) -> bool {
    is_host(server) || server.parse::<SocketAddr>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_and_malformed_names_are_no_time_servers() {
        for host in [
            "time.example.com",
            "10.0.0.1",
            "2001:db8::1",
            "[::1]:1123",
            "10.0.0.1:123",
        ] {
            assert!(can_be_asked(host), "{host}");
        }
        for other in ["/dev/watchdog", "a b", "a:b", "../x", "name:123:4", ""] {
            assert!(!can_be_asked(other), "{other}");
        }
    }
}
