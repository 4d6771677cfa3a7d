//! State of the service `machine.MachineService`, whose methods are in `service.rs`.

use std::sync::Arc;

use corten_etcd::{Client, EtcdError};
use corten_observe::file_systems::Meter;
use corten_observe::mounts::Mounts;
use corten_observe::processes::Processes;
use corten_observe::stream::bug;
use tokio::sync::Mutex;
use tonic::{Request, Response, Status};

use super::places::{Places, STREAMS};
use super::{Paths, etcd};
use crate::node::Node;

/// State of the service: its two sources and its limits.
pub(super) struct Machine {
    pub(super) node: Arc<dyn Node>,
    pub(super) paths: Paths,
    /// Held while a config is applied; a concurrent caller is refused.
    pub(super) applying: Arc<Mutex<()>>,
    /// Free slots for streams.
    pub(super) streams: Places,
    pub(super) mounts: Mounts,
    pub(super) processes: Processes,
}

impl Machine {
    pub(super) fn new(node: Arc<dyn Node>, paths: Paths, meter: &Meter) -> Machine {
        Machine {
            node,
            paths,
            applying: Arc::default(),
            streams: Places::new("streams of files and packets", STREAMS),
            mounts: Mounts::new(meter),
            processes: Processes::default(),
        }
    }

    /// Runs work that reads files of the machine on a blocking thread.
    pub(super) async fn view<T, F>(&self, work: F) -> Result<Response<T>, Status>
    where
        T: Send + 'static,
        F: FnOnce(&corten_observe::Paths) -> Result<T, Status> + Send + 'static,
    {
        let paths = self.paths.machine.clone();
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

    /// Calls any etcd member of the cluster, this node's first.
    pub(super) async fn any_etcd<T, F>(&self, ask: impl Fn(Client) -> F) -> Answer<T>
    where
        F: Future<Output = Result<T, EtcdError>>,
    {
        let others = corten_credentials::etcd::others(self.node.store());
        let answer = etcd::ask_cluster(&self.paths.etcd_secrets, &others, ask).await;
        answer.map(Response::new)
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
