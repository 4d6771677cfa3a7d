//! Lets one control plane node go down at a time. The node holds a key in etcd until it is back, for an upgrade until
//! the verdict.
//!
//! A check of the quorum alone is a race: two nodes may both pass it at the same moment, and then both go down.

use std::time::Duration;

use corten_etcd::{Claim, Client};
use corten_kubernetes::kubelet::shutdown_grace;
use corten_logind::LONGEST_DELAY;
use corten_resources::Store;
use corten_resources::controller::with_causes as describe;
use corten_server::node::Node as _;
use corten_sys::host;
use corten_types::kubernetes::Nodename;
use corten_types::kubernetes_kubelet::{ID as KUBELET, KubeletSpec};
use serde::{Deserialize, Serialize};
use tokio::time::timeout;

use super::UPGRADE_PATIENCE;
use super::own_member::{ANSWER, in_time, own_member, own_vote};
use super::patience::patiently;
use super::quorum::FORCE;
use crate::state::NodeState;

/// The key. Its name follows the reference's names.
const KEY: &[u8] = b"corten:v1:upgrade";
/// Lease time of the key: a node that goes down for good blocks the others for so long. It covers the pull of the
/// image, the drain of pods, and the trial of the version.
pub const LONGEST: Duration = Duration::from_secs(60 * 60);
/// Lease time of the key for a reboot or a shutdown, beside the grace periods of the pods. It covers the drain of pods and
/// the end of etcd; from then on, the other nodes see that the member is away.
const LEAVING: Duration = Duration::from_secs(10 * 60);

/// The key, held by this node.
pub(super) struct Held {
    client: Client,
    claim: Claim,
    holder: Holder,
}

/// Value of the key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Holder {
    /// ID of the etcd member, hexadecimal.
    member: String,
    /// Name of the node, for the operator.
    node: String,
    /// ID of the boot in which the call came.
    boot: String,
    /// Image of the upgrade; empty for a reboot or a shutdown.
    image: String,
}

impl Holder {
    fn of(value: &[u8]) -> Option<Holder> {
        serde_json::from_slice(value).ok()
    }

    /// Whether this node wrote the value, so that it may replace it. A malformed value blocks no node.
    fn may_replace(&self, value: &[u8]) -> bool {
        Holder::of(value).is_none_or(|other| other.member == self.member)
    }

    /// Whether this node wrote the value in an earlier boot.
    fn is_former(&self, value: &[u8]) -> bool {
        Holder::of(value)
            .is_some_and(|other| other.member == self.member && other.boot != self.boot)
    }

    /// Error message for a caller that this node blocks.
    fn refusal(&self) -> String {
        let node = &self.node;
        match self.image.as_str() {
            "" => format!(
                "control plane node {node} reboots or shuts down: wait until it is back, or {FORCE}"
            ),
            image => format!(
                "control plane node {node} is being upgraded to {image}: wait for its verdict (`get upgrades` of that \
                 node), or {FORCE}"
            ),
        }
    }
}

/// Takes the key, if this node has a vote in etcd. A node without one takes no quorum from the others.
///
/// # Errors
/// Another node holds the key, or etcd does not answer; the text says which.
pub(super) async fn take(node: &NodeState, image: &str) -> Result<Option<Held>, String> {
    let holder = patiently(UPGRADE_PATIENCE, || holder(node, image), Result::is_ok).await;
    let Some(holder) = holder.map_err(|why| unclear(&why))? else {
        return Ok(None);
    };
    let ask = || claim(&holder, LONGEST, |value| holder.may_replace(value));
    match patiently(UPGRADE_PATIENCE, ask, Result::is_ok).await {
        Ok(Ok(held)) => Ok(Some(held)),
        Ok(Err(other)) => Err(Holder::of(&other).unwrap_or(holder).refusal()),
        Err(why) => {
            // etcd may have taken the key and lost the answer.
            tokio::spawn(withdraw(holder));
            Err(unclear(&why))
        }
    }
}

/// Error message for a caller when etcd does not say whether another node has the key.
fn unclear(why: &str) -> String {
    format!(
        "cannot read from etcd whether another control plane node is being upgraded: {why}; repair etcd first, or \
         {FORCE}"
    )
}

/// Takes the key for a reboot or a shutdown, unless this node holds it for an upgrade. An etcd that does not answer has
/// no quorum to lose, so that it keeps no node from a reboot.
///
/// # Errors
/// Another node holds the key.
pub(super) async fn take_to_leave(node: &NodeState) -> Result<Option<Held>, String> {
    // The member does not answer, or there is none.
    let Ok(Some(holder)) = holder(node, "").await else {
        return Ok(None);
    };
    match claim(&holder, leaving(node.store()), |_| false).await {
        Ok(Ok(held)) => Ok(Some(held)),
        Ok(Err(other)) if !holder.may_replace(&other) => {
            Err(Holder::of(&other).unwrap_or(holder).refusal())
        }
        Ok(Err(_)) => Ok(None),
        Err(_) => {
            // As above: a call that is refused after all must not block the other nodes.
            tokio::spawn(withdraw(holder));
            Ok(None)
        }
    }
}

/// Releases the key of [`take_to_leave`]. If that fails, the lease expires.
pub(super) async fn give_up_leaving(node: &NodeState) {
    if let Ok(Some(holder)) = holder(node, "").await {
        withdraw(holder).await;
    }
}

/// Claims the key for `ttl`. If it has a value for which `is_own` is false, returns that value.
async fn claim(
    holder: &Holder,
    ttl: Duration,
    is_own: impl Fn(&[u8]) -> bool,
) -> Result<Result<Held, Vec<u8>>, String> {
    let value = serde_json::to_vec(holder).map_err(|error| error.to_string())?;
    in_time(async {
        let client = own_member().await?;
        let claimed = client.claim(KEY, &value, ttl, is_own).await;
        let claimed = claimed.map_err(|error| describe(&error))?;
        Ok(claimed.map(|claim| Held {
            client,
            claim,
            holder: holder.clone(),
        }))
    })
    .await
}

/// Releases a key of which this node has no claim at hand. If that fails, the lease expires.
async fn withdraw(holder: Holder) {
    let released = in_time(async {
        let own = |value: &[u8]| Holder::of(value).as_ref() == Some(&holder);
        let released = own_member().await?.give_up(KEY, own).await;
        released.map_err(|error| describe(&error))
    });
    let _ = released.await;
}

impl Held {
    /// Renews the lease of the key.
    ///
    /// # Errors
    /// The node no longer holds the key.
    pub(super) async fn prolong(&self) -> Result<(), String> {
        let ask = || {
            in_time(async {
                let prolonged = self.client.prolong(&self.claim).await;
                prolonged.map_err(|error| describe(&error))
            })
        };
        let why = match patiently(UPGRADE_PATIENCE, ask, Result::is_ok).await {
            Ok(true) => return Ok(()),
            Ok(false) => "its lease has expired".to_owned(),
            Err(why) => why,
        };
        Err(format!(
            "the lock that keeps other control plane nodes from being upgraded is lost: {why}; try again"
        ))
    }

    /// Releases the key. If that fails, the lease expires.
    pub(super) async fn release(self) {
        let own = |value: &[u8]| Holder::of(value).as_ref() == Some(&self.holder);
        let _ = timeout(ANSWER, self.client.give_up(KEY, own)).await;
    }
}

/// Releases a key that this node took in an earlier boot. Returns whether nothing is left to release.
pub async fn unlock_former(node: &NodeState) -> bool {
    // The boot may not have loaded the config yet.
    let Some(config) = node.config() else {
        return false;
    };
    if !config.machine.kind.is_control_plane() {
        return true;
    }
    let Ok(Some(holder)) = holder(node, "").await else {
        return false;
    };
    let freed = in_time(async {
        let former = |value: &[u8]| holder.is_former(value);
        let freed = own_member().await?.give_up(KEY, former).await;
        freed.map_err(|error| describe(&error))
    });
    freed.await.is_ok()
}

/// Lease time of the key for a reboot or a shutdown: etcd stops only after the pods.
fn leaving(store: &Store) -> Duration {
    let kubelet = store.get_as::<KubeletSpec>(KUBELET);
    let grace = kubelet.map_or(Duration::ZERO, |spec| shutdown_grace(&spec.config));
    LEAVING + grace.min(LONGEST_DELAY)
}

/// Value that this node writes; `None` if it has no vote in etcd.
async fn holder(node: &NodeState, image: &str) -> Result<Option<Holder>, String> {
    let name = node.store().get_as::<Nodename>(Nodename::ID);
    let vote = own_vote(node).await?;
    Ok(vote.map(|member| Holder {
        node: name.map_or_else(|| member.clone(), |name| name.nodename.clone()),
        member,
        boot: host::boot_id(),
        image: image.to_owned(),
    }))
}

#[cfg(test)]
mod tests {
    use corten_resources::Draft;
    use serde_json::json;

    use super::*;

    fn holder(member: &str, boot: &str) -> Holder {
        Holder {
            member: member.to_owned(),
            node: format!("node-{member}"),
            boot: boot.to_owned(),
            image: "installer:2".to_owned(),
        }
    }

    fn value(holder: &Holder) -> Vec<u8> {
        serde_json::to_vec(holder).unwrap()
    }

    #[test]
    fn upgrade_key_of_another_node_blocks_an_upgrade_and_the_own_key_does_not() {
        let own = holder("a", "1");
        let other = value(&holder("b", "1"));
        assert!(!own.may_replace(&other));
        assert!(own.may_replace(&value(&own)));
        assert!(own.may_replace(&value(&holder("a", "0"))));
        let told = Holder::of(&other).unwrap().refusal();
        assert!(
            told.starts_with("control plane node node-b is being upgraded to installer:2"),
            "{told}"
        );
    }

    #[test]
    fn refusal_names_the_node_that_goes_down() {
        let mut holder = holder("b", "1");
        holder.image = String::new();
        let told = holder.refusal();
        assert!(
            told.starts_with("control plane node node-b reboots or shuts down: wait"),
            "{told}"
        );
    }

    #[test]
    fn only_an_upgrade_key_of_an_earlier_boot_is_released() {
        let own = holder("a", "1");
        assert!(own.is_former(&value(&holder("a", "0"))));
        assert!(!own.is_former(&value(&own)));
        assert!(!own.is_former(&value(&holder("b", "0"))));
    }

    #[test]
    fn key_of_a_leaving_node_outlasts_the_grace_periods_of_its_pods() {
        let store = Store::new();
        store.register::<KubeletSpec>().unwrap();
        assert_eq!(leaving(&store), LEAVING);
        // A kubelet gets no more than the longest delay.
        for (grace, minutes) in [("30m", 30), ("15m", 25), ("0s", 10)] {
            let spec = KubeletSpec {
                image: String::new(),
                args: Vec::new(),
                extra_mounts: Vec::new(),
                expected_nodename: String::new(),
                config: json!({"shutdownGracePeriod": grace}),
                credential_provider_config: json!(null),
            };
            store.put(Draft::new(KUBELET, spec), "").unwrap();
            assert_eq!(leaving(&store), Duration::from_mins(minutes), "{grace}");
        }
    }

    #[test]
    fn hostile_upgrade_key_values_block_no_node_and_are_not_released() {
        let own = holder("a", "1");
        for value in [&b""[..], b"{", b"null", b"{\"member\": 7}", &[0xff; 64]] {
            assert!(own.may_replace(value), "{value:?}");
            assert!(!own.is_former(value), "{value:?}");
        }
    }
}
