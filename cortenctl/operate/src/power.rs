//! `reboot`, `shutdown`, `reset` and `bootstrap`.

use corten_api::machine as api;
use corten_api::machine::reboot_request::Mode;
use corten_api::machine::reset_request::WipeMode as WireWipe;
use corten_client::answers::{Answers, ask};
use corten_client::clients::Machine;
use corten_client::connect::{Route, routes};
use corten_client::failure::{Failure, finish};
use corten_client::flags::Global;
use corten_client::stream::{each, only_one};
use corten_client::table::printable;

use crate::args::{Bootstrap, Reboot, RebootMode, Reset, Shutdown, Wait, WipeMode};
use crate::wait::{self, Until};
use crate::{cordon, etcd, sequence};

/// Runs `reboot`.
///
/// # Errors
/// A node refuses, or does not reach the awaited state in time.
pub async fn reboot(global: &Global, args: &Reboot) -> Result<(), Failure> {
    let mode = match args.mode {
        RebootMode::Default => Mode::Default,
        RebootMode::Powercycle => Mode::Powercycle,
        RebootMode::Force => Mode::Force,
    };
    let body = api::RebootRequest { mode: mode.into() };
    let mut wait = args.wait;
    let mut cordons = Vec::new();
    if args.drain {
        // Only a client that waits can uncordon the nodes.
        wait.wait = true;
        let nodes = routes(global).await?;
        cordons = cordon::leave_all(global, nodes, args.moving, wait.timeout).await?;
    }
    let call = async |routes| {
        ask(routes, body, |mut client: Machine, request| async move {
            client.reboot(request).await
        })
        .await
    };
    let actor = |message: &api::Reboot| message.actor_id.clone();
    let done = act(global, (wait, Until::Back), "reboots", call, actor).await;
    let stays = cordon::lift(cordons, wait.timeout).await;
    done.and(finish(&stays))
}

/// Runs `shutdown`.
///
/// # Errors
/// A node refuses, or does not reach the awaited state in time.
pub async fn shutdown(global: &Global, args: &Shutdown) -> Result<(), Failure> {
    let body = api::ShutdownRequest { force: args.force };
    let call = async |routes| {
        ask(routes, body, |mut client: Machine, request| async move {
            client.shutdown(request).await
        })
        .await
    };
    let actor = |message: &api::Shutdown| message.actor_id.clone();
    act(global, (args.wait, Until::Gone), "shuts down", call, actor).await
}

/// Runs `reset`.
///
/// # Errors
/// A node refuses, or does not reach the awaited state in time.
pub async fn reset(global: &Global, args: &Reset) -> Result<(), Failure> {
    let body = reset_request(args)?;
    let call = async |routes| {
        ask(routes, body, |mut client: Machine, request| async move {
            client.reset(request).await
        })
        .await
    };
    let actor = |message: &api::Reset| message.actor_id.clone();
    act(
        global,
        (args.wait, Until::Gone),
        "is being reset",
        call,
        actor,
    )
    .await
}

fn reset_request(args: &Reset) -> Result<api::ResetRequest, Failure> {
    let mode = match args.wipe_mode {
        WipeMode::All => WireWipe::All,
        WipeMode::SystemDisk => WireWipe::SystemDisk,
        WipeMode::UserDisks => WireWipe::UserDisks,
    };
    // The node would refuse it too, but only after a call.
    if args.wipe_mode == WipeMode::SystemDisk && !args.user_disks_to_wipe.is_empty() {
        return Err(Failure::usage(
            "--user-disks-to-wipe does not go with --wipe-mode system-disk",
        ));
    }
    if args.wipe_mode == WipeMode::UserDisks && !args.system_labels_to_wipe.is_empty() {
        return Err(Failure::usage(
            "--system-labels-to-wipe does not go with --wipe-mode user-disks",
        ));
    }
    if args.wipe_mode == WipeMode::UserDisks && args.user_disks_to_wipe.is_empty() {
        return Err(Failure::usage(
            "--wipe-mode user-disks needs the disks: --user-disks-to-wipe DEVICE",
        ));
    }
    let labels = args.system_labels_to_wipe.iter();
    Ok(api::ResetRequest {
        graceful: args.graceful,
        reboot: args.reboot,
        system_partitions_to_wipe: labels
            .map(|label| api::ResetPartitionSpec {
                label: label.clone(),
                wipe: true,
            })
            .collect(),
        user_disks_to_wipe: args.user_disks_to_wipe.clone(),
        mode: mode.into(),
    })
}

/// Runs `bootstrap`.
///
/// # Errors
/// A node refuses, or does not reach the awaited state in time.
pub async fn bootstrap(routes: Vec<Route>, args: &Bootstrap) -> Result<(), Failure> {
    only_one(&routes, "be the first member")?;
    if let Some(path) = &args.recover_from {
        let given = routes.clone();
        let failed = each(given, async |node| etcd::recover(node, path).await).await?;
        finish(&failed)?;
    }
    let body = api::BootstrapRequest {
        recover_etcd: args.recover_from.is_some(),
        recover_skip_hash_check: args.recover_skip_hash_check,
    };
    ask(routes, body, |mut client: Machine, request| async move {
        client.bootstrap(request).await
    })
    .await?
    .finish()
}

/// Makes a call that ends in a reboot or shutdown of the node. It reports the nodes that accepted it. If the flags ask
/// for it, it waits, also for failures of the sequence with the actor ID of an answer.
async fn act<M>(
    global: &Global,
    (args, until): (Wait, Until),
    what: &str,
    call: impl AsyncFnOnce(Vec<Route>) -> Result<Answers<M>, Failure>,
    actor: impl Fn(&M) -> String,
) -> Result<(), Failure> {
    let opened = routes(global).await?;
    let mut boots = if args.wait {
        wait::boots(opened.clone()).await?
    } else {
        wait::Boots::new()
    };
    let mut answers = call(opened.clone()).await?;
    told(&answers, what);
    boots.retain(|(node, _)| answers.good.iter().any(|(good, _)| good == node));
    let actors: Vec<String> = answers.good.iter().map(|(_, one)| actor(one)).collect();
    let waited = wait::wait(global, boots, until, args.timeout);
    let (late, failed) = sequence::watched(opened, &actors, waited).await;
    answers.failed.extend(late?);
    answers.failed.extend(failed);
    answers.finish()
}

/// Reports events on stderr: these verbs have no data for stdout.
pub(crate) fn told<M>(answers: &Answers<M>, what: &str) {
    for (node, _) in &answers.good {
        eprintln!("{}: {what}", printable(node));
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        args: Reset,
    }

    fn asked(line: &str) -> Result<api::ResetRequest, Failure> {
        let words = line.split_whitespace().skip(1);
        reset_request(&Line::try_parse_from(words).unwrap().args)
    }

    #[test]
    fn reset_flags_select_the_volumes_and_disks_to_wipe() {
        let all = asked("cortenctl reset").unwrap();
        assert!(all.graceful && !all.reboot);
        assert_eq!(all.mode(), WireWipe::All);
        let some = asked(
            "cortenctl reset --graceful=false --reboot --system-labels-to-wipe STATE,EPHEMERAL --wait",
        );
        let some = some.unwrap();
        assert!(!some.graceful && some.reboot);
        let labels = some.system_partitions_to_wipe.iter();
        let labels: Vec<_> = labels.map(|one| (one.label.as_str(), one.wipe)).collect();
        assert_eq!(labels, [("STATE", true), ("EPHEMERAL", true)]);
        let disks = "cortenctl reset --wipe-mode user-disks --user-disks-to-wipe /dev/vdb";
        assert_eq!(asked(disks).unwrap().user_disks_to_wipe, ["/dev/vdb"]);
    }

    #[test]
    fn a_reset_that_contradicts_itself_is_refused() {
        for line in [
            "cortenctl reset --wipe-mode system-disk --user-disks-to-wipe /dev/vdb",
            "cortenctl reset --wipe-mode user-disks --system-labels-to-wipe STATE",
            "cortenctl reset --wipe-mode user-disks",
        ] {
            assert!(matches!(asked(line), Err(Failure::Usage(_))), "{line}");
        }
    }
}
