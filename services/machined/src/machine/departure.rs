//! Takes the node out of its cluster before it ends. A shutdown, an upgrade and a reset cordon and drain the node, unless
//! they are forced. A reset then removes its member from etcd, whose quorum would count the member for ever.

use std::path::Path;
use std::time::Duration;

use corten_base::console;
use corten_config::Document;
use corten_credentials::access::of_node;
use corten_credentials::etcd::leave;
use corten_etcd::{LeaveError, Tls};
use corten_kubernetes::Settings;
use corten_kubernetes::etcd::{DATA, has_data};
use corten_kubernetes::pods::HOST_SECRETS;
use corten_resources::controller::with_causes as describe;
use corten_server::node::{Action, Node as _, Reset};
use corten_services::kubernetes::ETCD;
use corten_types::kubernetes::Nodename;
use tokio::time::timeout;

use super::Machine;

/// Timeout of a request to the cluster. A cluster that does not answer must not delay the node's end.
const TELL: Duration = Duration::from_secs(15);
/// Time for the eviction of the pods.
const DRAIN: Duration = Duration::from_secs(60);
/// Timeout of leaving etcd: five minutes of attempts to leave, and the end of etcd.
const LEAVE: Duration = Duration::from_mins(7);

impl Machine {
    /// Moves the pods to other nodes, as far as the cluster answers in time.
    pub(super) async fn depart(&self, action: &Action) {
        let Some(config) = self.node.config() else {
            return;
        };
        let (Ok(settings), Some(nodename)) = (Settings::of(&config), self.nodename()) else {
            return;
        };
        match action {
            Action::Shutdown { forced: false }
            | Action::Upgrade
            | Action::Reset(Reset { graceful: true, .. }) => {
                empty(&config, &settings, &nodename).await;
            }
            Action::Reset(_)
            | Action::Shutdown { forced: true }
            | Action::Reboot
            | Action::ForcedReboot => {}
        }
    }

    /// Removes the node's member from etcd for good. The pods have stopped: the API server among them needs etcd.
    pub(super) async fn leave(&self, action: &Action) {
        let is_graceful = matches!(action, Action::Reset(Reset { graceful: true, .. }));
        if is_graceful && has_data(Path::new(DATA)) {
            within("leave etcd", LEAVE, self.leave_etcd()).await;
        }
    }

    /// The name of the node in its cluster, unless it stays out of it.
    fn nodename(&self) -> Option<String> {
        let found = self.node.store().get_as::<Nodename>(Nodename::ID)?;
        (!found.skip_node_registration).then(|| found.nodename.clone())
    }

    /// Removes this node's member from etcd, and its data. The last member stays: its data would be lost, which a reset
    /// of other partitions keeps.
    async fn leave_etcd(&self) -> Result<(), String> {
        let tls =
            Tls::read(&Path::new(HOST_SECRETS).join(ETCD)).map_err(|error| describe(&error))?;
        match leave(tls, self.node.store()).await {
            Err(LeaveError::Last) => return Ok(()),
            left => left.map_err(|error| describe(&error))?,
        }
        console::say("etcd: this node's member has left the cluster");
        let ended = self.node.end_member().await;
        ended.map_err(|error| error.to_string())
    }
}

/// Keeps new pods away and moves the others to other nodes. A cluster that does not cordon the node in time drains
/// nothing either.
async fn empty(config: &Document, settings: &Settings, nodename: &str) {
    if within("cordon", TELL, cordon(config, settings, nodename)).await {
        let limit = DRAIN.as_secs();
        console::say(&format!(
            "moving the pods to other nodes, for at most {limit} s"
        ));
        within("drain", DRAIN + TELL, drain(config, settings, nodename)).await;
    }
}

/// Runs a step with a timeout. A failure is a warning only: the node still ends. Returns whether the step succeeded.
async fn within(
    what: &str,
    patience: Duration,
    step: impl Future<Output = Result<(), String>>,
) -> bool {
    let why = match timeout(patience, step).await {
        Ok(Ok(())) => return true,
        Ok(Err(why)) => why,
        Err(_) => format!("no answer within {} s", patience.as_secs()),
    };
    console::warn(&format!("{what}: {why}; the node ends without this step"));
    false
}

async fn cordon(config: &Document, settings: &Settings, nodename: &str) -> Result<(), String> {
    let cordoned = of_node(config, settings)?.cordon(nodename).await;
    cordoned.map_err(|error| describe(&error))
}

async fn drain(config: &Document, settings: &Settings, nodename: &str) -> Result<(), String> {
    let cluster = of_node(config, settings)?;
    let drained = cluster.drain(nodename, DRAIN).await;
    let drained = drained.map_err(|error| describe(&error))?;
    match drained.left.first() {
        None => Ok(()),
        Some(left) => Err(format!(
            "{} of {} pods are still running, for example {}: {}",
            drained.left.len(),
            drained.left.len() + drained.gone.len(),
            left.pod,
            left.reason
        )),
    }
}
