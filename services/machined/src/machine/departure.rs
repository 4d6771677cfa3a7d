//! Takes the node out of its cluster before it ends. A shutdown cordons the node. A reset also drains it and removes
//! its member from etcd, whose quorum would count the member for ever.

use std::net::Ipv4Addr;
use std::path::Path;
use std::time::Duration;

use corten_base::console;
use corten_config::Document;
use corten_credentials::access::of_node;
use corten_credentials::etcd::connect;
use corten_kubernetes::Settings;
use corten_kubernetes::pods::HOST_SECRETS;
use corten_resources::controller::with_causes as describe;
use corten_server::node::{Action, Node as _, Reset};
use corten_services::kubernetes::ETCD;
use corten_types::etcd::EtcdMember;
use corten_types::kubernetes::Nodename;
use tokio::time::timeout;

use super::Machine;

/// Timeout of a request to the cluster. A cluster that does not answer must not delay the node's end.
const TELL: Duration = Duration::from_secs(15);
/// Time for the eviction of the pods.
const DRAIN: Duration = Duration::from_secs(60);
/// Timeout of leaving etcd.
const LEAVE: Duration = Duration::from_secs(30);

impl Machine {
    /// Takes the node out of the cluster, as far as the cluster answers in time.
    pub(super) async fn depart(&self, action: &Action) {
        let Some(config) = self.node.config() else {
            return;
        };
        let (Ok(settings), Some(nodename)) = (Settings::of(&config), self.nodename()) else {
            return;
        };
        match action {
            Action::Shutdown { forced: false } => {
                within("cordon", TELL, cordon(&config, &settings, &nodename)).await;
            }
            Action::Reset(Reset { graceful: true, .. }) => {
                within("cordon", TELL, cordon(&config, &settings, &nodename)).await;
                within("drain", DRAIN + TELL, drain(&config, &settings, &nodename)).await;
                let members = self.node.store();
                if members.get_as::<EtcdMember>(EtcdMember::ID).is_some() {
                    within("leave etcd", LEAVE, leave_etcd()).await;
                }
            }
            Action::Reset(_)
            | Action::Shutdown { forced: true }
            | Action::Reboot
            | Action::ForcedReboot => {}
        }
    }

    fn nodename(&self) -> Option<String> {
        let found = self.node.store().get_as::<Nodename>(Nodename::ID)?;
        Some(found.nodename.clone())
    }
}

/// Runs a step with a timeout. A failure is a warning only: the node still ends.
async fn within(what: &str, patience: Duration, step: impl Future<Output = Result<(), String>>) {
    let why = match timeout(patience, step).await {
        Ok(Ok(())) => return,
        Ok(Err(why)) => why,
        Err(_) => format!("no answer within {} s", patience.as_secs()),
    };
    console::warn(&format!("{what}: {why}; the node ends without this step"));
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

/// Removes this node's member from etcd. The last member stays: its data would be lost, which a reset of other
/// partitions keeps.
async fn leave_etcd() -> Result<(), String> {
    let secrets = Path::new(HOST_SECRETS).join(ETCD);
    let client = connect(&secrets, &[Ipv4Addr::LOCALHOST.into()]).await?;
    let members = client.members().await.map_err(|error| describe(&error))?;
    if members.len() == 1 {
        return Ok(());
    }
    client.leave().await.map_err(|error| describe(&error))?;
    console::say("etcd: this node's member has left the cluster");
    Ok(())
}
