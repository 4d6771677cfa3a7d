//! Actions that end the boot: reboot, shutdown, reset.

use corten_api::machine as api;
use corten_api::machine::reboot_request::Mode;
use corten_api::machine::reset_request::WipeMode;
use corten_api::metadata::CALLER;
use corten_observe::at_most;
use corten_observe::stream::bug;
use corten_resources::Store;
use corten_volumes::{Target, WIPEABLE};
use tonic::{Request, Status};

use super::wipe::{MOST_DEVICES, user_disk};
use crate::node::{Action, Actor, Node, Reset, refused};

/// Limit in characters of the description of a caller.
const WHO: usize = 1024;

/// Runs a call to its end, even when the client disconnects. Otherwise a key in etcd that the call takes would stay for
/// no reason, and so would the data of a member that the call removes.
pub(super) async fn to_its_end<T: Send + 'static>(
    call: impl Future<Output = Result<T, Status>> + Send + 'static,
) -> Result<T, Status> {
    let ended = tokio::spawn(call).await;
    ended.unwrap_or_else(|_| Err(bug()))
}

/// The node always starts its kernel through the firmware, so the modes default and powercycle are equal.
pub(super) async fn reboot(
    node: &dyn Node,
    who: &str,
    mode: Mode,
) -> Result<api::RebootResponse, Status> {
    let action = match mode {
        Mode::Default | Mode::Powercycle => {
            node.leave().await.map_err(|error| refused(&error))?;
            Action::Reboot
        }
        Mode::Force => Action::ForcedReboot,
    };
    let actor_id = submit(node, action, who)?;
    let reboot = api::Reboot {
        metadata: None,
        actor_id,
    };
    Ok(api::RebootResponse {
        messages: vec![reboot],
    })
}

/// Drains the node first, unless the shutdown is forced.
pub(super) async fn shutdown(
    node: &dyn Node,
    who: &str,
    forced: bool,
) -> Result<api::ShutdownResponse, Status> {
    if !forced {
        node.leave().await.map_err(|error| refused(&error))?;
    }
    let shutdown = api::Shutdown {
        metadata: None,
        actor_id: submit(node, Action::Shutdown { forced }, who)?,
    };
    Ok(api::ShutdownResponse {
        messages: vec![shutdown],
    })
}

/// Services are stopped in order in any case; a `graceful` reset also leaves the cluster first. The node refuses one that
/// etcd cannot bear: later it could only restart without a wipe.
pub(super) async fn reset(
    node: &dyn Node,
    who: &str,
    request: &api::ResetRequest,
) -> Result<api::ResetResponse, Status> {
    let reset = Reset {
        targets: targets(node.store(), request)?,
        graceful: request.graceful,
        reboot: request.reboot,
    };
    let checked = node.check_reset(&reset).await;
    checked.map_err(|error| refused(&error))?;
    let reset = api::Reset {
        metadata: None,
        actor_id: submit(node, Action::Reset(reset), who)?,
    };
    Ok(api::ResetResponse {
        messages: vec![reset],
    })
}

/// The devices to wipe. The node's own disk comes last, so that after a power loss the node can wipe the others.
fn targets(store: &Store, request: &api::ResetRequest) -> Result<Vec<Target>, Status> {
    // An unknown mode must not default to the one that wipes everything.
    let mode = WipeMode::try_from(request.mode).map_err(|_| {
        Status::invalid_argument(format!(
            "mode: {} is unknown; use ALL (0), SYSTEM_DISK (1) or USER_DISKS (2)",
            request.mode
        ))
    })?;
    let disks = !request.user_disks_to_wipe.is_empty();
    let partitions = !request.system_partitions_to_wipe.is_empty();
    match mode {
        WipeMode::SystemDisk if disks => {
            return Err(Status::invalid_argument(
                "user_disks_to_wipe: must be empty in mode system-disk",
            ));
        }
        WipeMode::UserDisks if partitions => {
            return Err(Status::invalid_argument(
                "system_partitions_to_wipe: must be empty in mode user-disks",
            ));
        }
        WipeMode::UserDisks if !disks => {
            return Err(Status::invalid_argument(
                "user_disks_to_wipe: name at least one disk: mode user-disks wipes nothing else",
            ));
        }
        WipeMode::All | WipeMode::SystemDisk | WipeMode::UserDisks => {}
    }
    at_most(
        "user_disks_to_wipe",
        request.user_disks_to_wipe.len(),
        MOST_DEVICES,
    )?;
    let mut targets = Vec::new();
    let mut add = |target: Target| {
        if !targets.contains(&target) {
            targets.push(target);
        }
    };
    for path in &request.user_disks_to_wipe {
        add(Target::Disk(user_disk(store, path)?));
    }
    if mode != WipeMode::UserDisks && !partitions {
        Target::whole_node().into_iter().for_each(&mut add);
    }
    for spec in &request.system_partitions_to_wipe {
        let known = WIPEABLE.iter().find(|name| **name == spec.label);
        let name = *known.ok_or_else(|| {
            Status::invalid_argument(format!(
                "system_partitions_to_wipe: label {:?} must be one of {}",
                spec.label,
                WIPEABLE.join(", ")
            ))
        })?;
        if spec.wipe {
            add(Target::Partition(name));
        }
    }
    Ok(targets)
}

/// The caller as apid's audit log describes it; empty if apid sent no description. It is written to disk, so its length
/// is limited.
pub(super) fn who<T>(request: &Request<T>) -> String {
    let told = request.metadata().get(CALLER);
    let told = told.and_then(|told| told.to_str().ok()).unwrap_or_default();
    told.chars().take(WHO).collect()
}

/// Submits the action; returns the id that its events carry.
pub(super) fn submit(node: &dyn Node, action: Action, who: &str) -> Result<String, Status> {
    let actor = Actor {
        // A random id that tells the action's events from others.
        id: uuid::Uuid::new_v4().to_string(),
        who: who.to_owned(),
    };
    let id = actor.id.clone();
    node.submit(action, actor)
        .map_err(|error| refused(&error))?;
    Ok(id)
}
