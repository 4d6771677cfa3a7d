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
use corten_kubernetes::pods::HOST_SECRETS;
use corten_resources::controller::with_causes as describe;
use corten_server::node::{Action, Node as _, Reset};
use corten_supervisor::kubernetes::ETCD;
use corten_types::kubernetes::Nodename;
use tokio::time::timeout;

use super::{Fatal, Machine};
use crate::upgrade;

/// Timeout of a request to the cluster. A cluster that does not answer must not delay the node's end.
const TELL: Duration = Duration::from_secs(15);
/// Time for the eviction of the pods.
const DRAIN: Duration = Duration::from_secs(60);
/// Timeout of leaving etcd: five minutes of attempts, and the last one.
const LEAVE: Duration = Duration::from_mins(7);
/// Timeout of the end of etcd, which has its own below this one.
const END: Duration = Duration::from_mins(2);

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

    /// Removes the node's member from etcd for good, before a graceful reset. The pods have stopped: the API server
    /// among them needs etcd.
    ///
    /// # Errors
    /// The member stays. Without its data, etcd may lose its quorum or all data of the cluster: nothing may be wiped.
    pub(super) async fn leave(&self, action: &Action) -> Result<(), Fatal> {
        let Some(reset) = self.must_leave(action) else {
            return Ok(());
        };
        let left = timeout(LEAVE, self.leave_etcd()).await;
        let left = left.unwrap_or_else(|_| Err(Stay::Other(late(LEAVE))));
        if may_wipe(left, reset)? {
            console::say("etcd: this node's member has left the cluster");
            let ended = async {
                let ended = self.node.end_member().await;
                ended.map_err(|error| error.to_string())
            };
            within("end etcd", END, ended).await;
        }
        Ok(())
    }

    /// The reset that removes the node's member from etcd first; `None` if the action removes none.
    fn must_leave<'a>(&self, action: &'a Action) -> Option<&'a Reset> {
        match action {
            Action::Reset(reset) if reset.graceful && upgrade::has_member(&self.node) => {
                Some(reset)
            }
            _ => None,
        }
    }

    /// The part of [`Machine::leave`] that remains when `why` gives it no time.
    ///
    /// # Errors
    /// As [`Machine::leave`].
    pub(super) fn leave_no_more(&self, action: &Action, why: &str) -> Result<(), Fatal> {
        self.must_leave(action).map_or(Ok(()), |reset| {
            may_wipe(Err(Stay::Other(why.to_owned())), reset).map(drop)
        })
    }

    /// The name of the node in its cluster, unless it stays out of it.
    fn nodename(&self) -> Option<String> {
        let found = self.node.store().get_as::<Nodename>(Nodename::ID)?;
        (!found.skip_node_registration).then(|| found.nodename.clone())
    }

    async fn leave_etcd(&self) -> Result<(), Stay> {
        let tls = Tls::read(&Path::new(HOST_SECRETS).join(ETCD));
        let tls = tls.map_err(|error| Stay::Other(describe(&error)))?;
        let left = leave(tls, self.node.store()).await;
        left.map_err(|error| match error {
            LeaveError::Last => Stay::Last,
            error => Stay::Other(describe(&error)),
        })
    }
}

/// Reason why the node's member is still in its cluster.
#[derive(Debug)]
enum Stay {
    /// It is the only one.
    Last,
    /// The text says why.
    Other(String),
}

/// Whether the member has left; if not, whether the reset may go on without that. The last member stays when the reset
/// keeps its data.
fn may_wipe(left: Result<(), Stay>, reset: &Reset) -> Result<bool, Fatal> {
    match left {
        Ok(()) => Ok(true),
        Err(Stay::Last) if !reset.wipes_ephemeral() => Ok(false),
        Err(Stay::Last) => Err(Fatal(format!("nothing is wiped: {}", LeaveError::Last))),
        Err(Stay::Other(why)) => Err(Fatal(format!(
            "nothing is wiped, because this node's member of etcd has not left its cluster: {why}; repair etcd and try \
             again, or use `reset --graceful=false`, which leaves the member behind"
        ))),
    }
}

fn late(patience: Duration) -> String {
    format!("no answer within {} s", patience.as_secs())
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
        Err(_) => late(patience),
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

#[cfg(test)]
mod tests {
    use corten_volumes::Target;

    use super::*;

    fn reset(target: Target) -> Reset {
        Reset {
            targets: vec![target],
            graceful: true,
            reboot: false,
        }
    }

    #[test]
    fn reset_wipes_nothing_while_the_member_is_in_its_cluster() {
        for target in [Target::SystemDisk, Target::Partition("STATE")] {
            let reset = reset(target);
            let refused = Err(Stay::Other("etcdserver: unhealthy cluster".to_owned()));
            let told = may_wipe(refused, &reset).unwrap_err().to_string();
            assert!(told.contains("unhealthy cluster"), "{told}");
            assert!(told.contains("`reset --graceful=false`"), "{told}");
            assert!(may_wipe(Ok(()), &reset).unwrap());
        }
    }

    #[test]
    fn graceful_reset_keeps_the_data_of_the_last_member() {
        for target in [Target::SystemDisk, Target::Partition("EPHEMERAL")] {
            let told = may_wipe(Err(Stay::Last), &reset(target)).unwrap_err();
            let told = told.to_string();
            assert!(told.contains("--graceful=false"), "{told}");
        }
        let state = reset(Target::Partition("STATE"));
        assert!(!may_wipe(Err(Stay::Last), &state).unwrap());
    }
}
