//! State of the service `machine.MachineService`, whose methods are in `service.rs`.

use std::sync::Arc;
use std::time::Duration;

use corten_base::bulkhead::Bulkhead;
use corten_etcd::{Client, EtcdError};
use tokio::sync::Mutex;
use tonic::{Request, Response, Status};

use super::file_systems::Meter;
use super::{Paths, bug, etcd, mounts, stream};
use crate::node::Node;

/// Limit of concurrent process lists.
const LISTS: usize = 8;
/// Timeout of a process list. A machine without KVM needs seconds for thousands of processes.
const LIST_PATIENCE: Duration = Duration::from_secs(20);

/// State of the service: its two sources and its limits.
pub(super) struct Machine {
    pub(super) node: Arc<dyn Node>,
    pub(super) paths: Paths,
    /// Held while a config is applied; a concurrent caller is refused.
    pub(super) applying: Arc<Mutex<()>>,
    /// Free slots for streams.
    pub(super) streams: stream::Places,
    pub(super) mounts: mounts::Mounts,
    /// Reading a hung process may hang, too.
    pub(super) processes: Bulkhead,
}

impl Machine {
    pub(super) fn new(node: Arc<dyn Node>, paths: Paths, meter: &Meter) -> Machine {
        Machine {
            node,
            paths,
            applying: Arc::default(),
            streams: stream::Places::new("streams of files and packets", stream::STREAMS),
            mounts: mounts::Mounts::new(meter),
            processes: Bulkhead::new(LISTS, LIST_PATIENCE),
        }
    }

    /// Runs work that reads files on a blocking thread.
    pub(super) async fn view<T, F>(&self, work: F) -> Result<Response<T>, Status>
    where
        T: Send + 'static,
        F: FnOnce(&Paths) -> Result<T, Status> + Send + 'static,
    {
        let paths = self.paths.clone();
        tokio::task::spawn_blocking(move || work(&paths))
            .await
            .map_err(|_| bug())?
            .map(Response::new)
    }
}

impl Machine {
    /// Calls this node's etcd member.
    pub(super) async fn etcd<T, F>(&self, ask: impl FnOnce(Client) -> F) -> Answer<T>
    where
        F: Future<Output = Result<T, EtcdError>>,
    {
        let client = etcd::connect(&self.paths.etcd_secrets).await?;
        let answer = ask(client).await;
        answer
            .map(Response::new)
            .map_err(|error| etcd::refused(&error))
    }
}

/// Whether the request is for a log of the previous boot.
pub(super) fn asks_for_previous<T>(request: &Request<T>) -> bool {
    let asked = request.metadata().get(corten_api::metadata::PREVIOUS_BOOT);
    asked.is_some_and(|value| value == "true")
}

pub(super) type Answer<T> = Result<Response<T>, Status>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn previous_boot_is_selected_only_by_the_metadata_value_true() {
        let mut request = Request::new(());
        assert!(!asks_for_previous(&request));
        let key = corten_api::metadata::PREVIOUS_BOOT;
        for (value, asks) in [("true", true), ("false", false), ("", false)] {
            let value = tonic::metadata::MetadataValue::from_static(value);
            request.metadata_mut().insert(key, value);
            assert_eq!(asks_for_previous(&request), asks);
        }
    }
}
