//! What changes the node: a config, a reboot, a shutdown.

use corten_api::machine as api;
use corten_api::machine::apply_configuration_request::Mode;
use corten_config::Document;
use similar::TextDiff;
use tonic::Status;

use super::service::Machine;
use crate::node::{Action, Node, Stage, SubmitError};

/// Said when the config would not survive a reboot.
const NOT_KEPT: &str =
    "this version keeps the config in memory only: the node starts without it after a reboot";

pub(super) fn apply(
    machine: &Machine,
    request: api::ApplyConfigurationRequest,
) -> Result<api::ApplyConfigurationResponse, Status> {
    let Ok(_turn) = machine.applying.try_lock() else {
        return Err(Status::failed_precondition(
            "another configuration is being applied",
        ));
    };
    let node = machine.node.as_ref();
    let maintenance = node.stage() == Stage::Maintenance;
    let document = Document::parse(&request.data)
        .map_err(|problems| Status::invalid_argument(problems.to_string()))?;
    supported(request.mode(), maintenance)?;
    let (details, warnings) = if request.dry_run {
        (dry_run(node.config().as_ref(), &document), Vec::new())
    } else {
        node.apply_config(document)
            .map_err(|error| refused(&error))?;
        let kept = node.config_is_kept();
        let warnings = if kept {
            Vec::new()
        } else {
            vec![NOT_KEPT.to_owned()]
        };
        (
            "Applied configuration without a reboot".to_owned(),
            warnings,
        )
    };
    let reply = api::ApplyConfiguration {
        metadata: None,
        warnings,
        mode: Mode::NoReboot.into(),
        mode_details: details,
    };
    Ok(api::ApplyConfigurationResponse {
        messages: vec![reply],
    })
}

/// Every mode we honour means: activate now, without a reboot.
fn supported(mode: Mode, maintenance: bool) -> Result<(), Status> {
    match mode {
        Mode::Auto | Mode::NoReboot => Ok(()),
        Mode::Reboot if maintenance => Ok(()),
        Mode::Reboot => Err(Status::unimplemented(
            "mode reboot is not supported: apply without a reboot, then reboot the node",
        )),
        Mode::Staged => Err(Status::unimplemented(
            "mode staged is not supported yet: this version cannot keep a config for the next boot",
        )),
        Mode::Try => Err(Status::unimplemented(
            "mode try is not supported yet: this version cannot take a config back",
        )),
    }
}

/// The change as a unified diff of both documents, without their secrets.
fn dry_run(active: Option<&Document>, new: &Document) -> String {
    let old = active.map(Document::redacted).unwrap_or_default();
    let new = new.redacted();
    if old == new {
        return "Dry run: no change (secrets are not compared).".to_owned();
    }
    let diff = TextDiff::from_lines(&old, &new);
    format!(
        "Dry run, nothing was applied:\n{}",
        diff.unified_diff().header("active", "new")
    )
}

pub(super) fn reboot(
    node: &dyn Node,
    mode: api::reboot_request::Mode,
) -> Result<api::RebootResponse, Status> {
    if mode == api::reboot_request::Mode::Force {
        return Err(Status::unimplemented(
            "mode force is not supported yet: services are always stopped first",
        ));
    }
    node.submit(Action::Reboot)
        .map_err(|error| refused(&error))?;
    let reboot = api::Reboot {
        metadata: None,
        actor_id: actor_id(),
    };
    Ok(api::RebootResponse {
        messages: vec![reboot],
    })
}

pub(super) fn shutdown(node: &dyn Node) -> Result<api::ShutdownResponse, Status> {
    node.submit(Action::Shutdown)
        .map_err(|error| refused(&error))?;
    let shutdown = api::Shutdown {
        metadata: None,
        actor_id: actor_id(),
    };
    Ok(api::ShutdownResponse {
        messages: vec![shutdown],
    })
}

fn refused(error: &SubmitError) -> Status {
    Status::failed_precondition(error.to_string())
}

/// A random id by which events of this action can be told from others'.
fn actor_id() -> String {
    uuid::Uuid::new_v4().to_string()
}
