//! Applies a machine config.

use std::sync::Arc;
use std::time::Duration;

use corten_api::machine as api;
use corten_api::machine::apply_configuration_request::Mode;
use corten_api::machine::reboot_request;
use corten_config::Document;
use corten_observe::stream::bug;
use tokio::runtime::Handle;
use tonic::{Request, Status};

use super::actions;
use super::duration;
use super::machine::Machine;
use crate::node::{Apply, Node, ServiceState, ServiceView, Stage, refused};

/// Warning for a config that does not survive a reboot.
const NOT_KEPT: &str =
    "this node keeps the config in memory only: it starts without it after a reboot";
/// Default duration of a trial.
const TRY: Duration = Duration::from_secs(60);
/// Limit of a trial: a longer one is a mistake, because no operator watches it end.
const LONGEST_TRY: Duration = Duration::from_secs(24 * 3600);

pub(super) async fn apply(
    machine: &Machine,
    request: Request<api::ApplyConfigurationRequest>,
) -> Result<api::ApplyConfigurationResponse, Status> {
    let who = actions::who(&request);
    let request = request.into_inner();
    let Ok(turn) = machine.applying.clone().try_lock_owned() else {
        return Err(Status::failed_precondition(
            "another call applies a configuration; try again when it has ended",
        ));
    };
    let node = machine.node.clone();
    // Parsing a large config and writing to a slow disk block. The work and its lock outlive a caller that disconnects.
    let work = move || {
        let _turn = turn;
        blocking(&node, &request, &who)
    };
    let reply = tokio::task::spawn_blocking(work)
        .await
        .map_err(|_| bug())??;
    Ok(api::ApplyConfigurationResponse {
        messages: vec![reply],
    })
}

fn blocking(
    node: &Arc<dyn Node>,
    request: &api::ApplyConfigurationRequest,
    who: &str,
) -> Result<api::ApplyConfiguration, Status> {
    let document = Document::parse(&request.data)
        .map_err(|problems| Status::invalid_argument(problems.to_string()))?;
    // Without an active config nothing has to restart.
    let reboots = request.mode() == Mode::Reboot && node.stage() != Stage::Maintenance;
    let mut how = how(request, reboots)?;
    let disk = match how {
        Apply::Now => node
            .install_target(&document)
            .map_err(|error| refused(&error))?,
        _ => None,
    };
    if disk.is_some() {
        how = Apply::Install;
    }
    let mut warnings = document.warnings();
    warnings.extend(document.kept());
    let details = if request.dry_run {
        node.check_config(&document)
            .map_err(|error| refused(&error))?;
        match disk {
            Some(disk) => {
                format!("Dry run, nothing was applied: the node would be installed to {disk}")
            }
            None => dry_run(node.as_ref(), &document),
        }
    } else {
        let kept = node.config_is_kept() || matches!(how, Apply::Try(_) | Apply::Install);
        node.apply_config(document, how)
            .map_err(|error| refused(&error))?;
        warnings.extend((!kept).then(|| NOT_KEPT.to_owned()));
        match how {
            Apply::Now => "Applied configuration without a reboot".to_owned(),
            Apply::Install => format!(
                "The node is installed to {}, and reboots from there with this configuration",
                disk.unwrap_or_default()
            ),
            Apply::Staged if reboots => {
                reboot(node.as_ref(), who)?;
                "Applied configuration with a reboot".to_owned()
            }
            Apply::Staged => "Staged configuration to be applied after the next reboot".to_owned(),
            Apply::Try(patience) => format!(
                "Applied configuration without a reboot\nIt is tried for {} s and then taken back, unless a configuration is applied in mode auto or no-reboot",
                patience.as_secs()
            ),
        }
    };
    let mode = match how {
        Apply::Now => Mode::NoReboot,
        Apply::Install => Mode::Reboot,
        Apply::Staged if reboots => Mode::Reboot,
        Apply::Staged => Mode::Staged,
        Apply::Try(_) => Mode::Try,
    };
    Ok(api::ApplyConfiguration {
        metadata: None,
        warnings,
        mode: mode.into(),
        mode_details: details,
    })
}

/// Reboots into the staged config. It waits for etcd's members, so that the caller is a thread for blocking calls.
fn reboot(node: &dyn Node, who: &str) -> Result<(), Status> {
    let asked = actions::reboot(node, who, reboot_request::Mode::Default);
    let asked = Handle::current().block_on(asked);
    asked.map(drop).map_err(|status| {
        let why = status.message();
        let text =
            format!("the configuration is staged for the next reboot, which is not now: {why}");
        Status::new(status.code(), text)
    })
}

fn how(request: &api::ApplyConfigurationRequest, reboots: bool) -> Result<Apply, Status> {
    match request.mode() {
        Mode::Reboot if reboots => Ok(Apply::Staged),
        Mode::Auto | Mode::NoReboot | Mode::Reboot => Ok(Apply::Now),
        Mode::Staged => Ok(Apply::Staged),
        Mode::Try => {
            let patience = match request.try_mode_timeout {
                None => TRY,
                Some(timeout) => duration(timeout)
                    .filter(|patience| !patience.is_zero() && *patience <= LONGEST_TRY)
                    .ok_or_else(|| {
                        Status::invalid_argument(
                            "try_mode_timeout must be more than 0 and at most 24h",
                        )
                    })?,
            };
            Ok(Apply::Try(patience))
        }
    }
}

/// The difference of both configs without secrets, and the plan of its consequences.
fn dry_run(node: &dyn Node, new: &Document) -> String {
    let active = node.config();
    match corten_changes::diff(active.as_ref(), new) {
        None => "Dry run: the configuration does not change".to_owned(),
        Some(diff) => {
            let services = node.services();
            let runs = |service: &&ServiceView| {
                matches!(
                    service.state,
                    ServiceState::Starting | ServiceState::Running
                )
            };
            let running = services.iter().filter(runs);
            let running: Vec<&str> = running.map(|service| service.id.as_str()).collect();
            let plan = corten_changes::plan(active.as_ref(), new, &running);
            format!("Dry run, nothing was applied:\n{diff}\n{plan}")
        }
    }
}
