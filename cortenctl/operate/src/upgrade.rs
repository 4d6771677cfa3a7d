//! `upgrade` and `rollback`: one node after the other, and the next one only when the one before keeps its version.

mod fleet;

use std::fmt;

use corten_api::machine as api;
use corten_api::machine::lifecycle_service_install_progress::Response as Part;
use corten_api::machine::reboot_request::Mode;
use corten_api::machine::upgrade_request::RebootMode as WireReboot;
use corten_client::answers::ask;
use corten_client::clients::{Lifecycle, Machine};
use corten_client::connect::{Route, count, routes};
use corten_client::failure::{Failure, finish};
use corten_client::flags::Global;
use corten_client::resources::find;
use corten_client::stream::{Node, Trouble, drain, each};
use corten_client::table::{print, printable};
use serde_json::Value;
use tokio::time::{Instant, sleep};
use tonic::{Code, Response, Status, Streaming};

use crate::args::{ImageFile, ImageNamespace, Upgrade, UpgradeReboot, Wait};
use crate::cordon::{self, Cordon};
use crate::image;
use crate::power::told;
use crate::wait::{self, Boots, PAUSE};
use fleet::Planned;

/// Runs `upgrade`.
///
/// # Errors
/// A node refuses, or does not come back in time.
pub async fn upgrade(global: &Global, args: &Upgrade) -> Result<(), Failure> {
    let given = routes(global).await?;
    let several = count(&given) > 1;
    if several && !args.wait.wait && !args.stage {
        return Err(Failure::usage(
            "--wait=false cannot upgrade several nodes one after the other: name one node, or add --stage",
        ));
    }
    if !several && !args.dry_run {
        return one(global, args).await;
    }
    let waves = fleet::waves(fleet::look(given).await?, args.max_unavailable);
    if args.dry_run {
        let file = args.file.as_ref().map(|file| file.display().to_string());
        let to = file.or_else(|| args.image.clone()).unwrap_or_default();
        print(&fleet::table(&waves, &to))?;
        eprintln!("nothing was changed");
        return Ok(());
    }
    let upgrade = async |node: &Planned| {
        let alone = Global {
            nodes: vec![node.name.clone()],
            ..global.clone()
        };
        one(&alone, args).await?;
        match args.stage {
            true => Ok(()),
            false => fleet::settled(&alone, node, args.wait.timeout).await,
        }
    };
    let tell = |line: &str| eprintln!("{}", printable(line));
    fleet::roll(&waves, upgrade, tell).await
}

/// Upgrades the single node that these flags name.
async fn one(global: &Global, args: &Upgrade) -> Result<(), Failure> {
    let given = routes(global).await?;
    let reboots = !args.stage;
    let waits = args.wait.wait && reboots;
    let boots = match waits {
        true => wait::boots(given.clone()).await?,
        false => Boots::new(),
    };
    let mut cordons = Vec::new();
    let failed = each(given, async |node| {
        let image = match &args.file {
            Some(file) => {
                let file = ImageFile {
                    file: file.clone(),
                    namespace: ImageNamespace::System,
                };
                image::import(node, &file).await?
            }
            None => args.image.clone().unwrap_or_default(),
        };
        take(global, node, args, image, &mut cordons).await
    })
    .await?;
    let mut done = finish(&failed);
    for before in boots {
        if done.is_ok() {
            done = verdict(global, args.wait, &before).await;
        }
    }
    // Without --wait, the node uncordons itself once it has started.
    if waits || done.is_err() {
        let stays = cordon::lift(cordons, args.wait.timeout).await;
        done = done.and(finish(&stays));
    }
    done
}

/// Has the node install the version, and reboots it if requested.
async fn take(
    global: &Global,
    node: &Node,
    args: &Upgrade,
    image: String,
    cordons: &mut Vec<Cordon>,
) -> Result<(), Trouble> {
    let reboots = !args.stage;
    let moves = args.drain && reboots;
    let mode = match args.reboot_mode {
        UpgradeReboot::Default => Mode::Default,
        UpgradeReboot::Powercycle => Mode::Powercycle,
    };
    // Only the older call has a flag that skips the etcd check.
    if !args.force && !args.legacy && stream(node, &image, args.stage).await? {
        if moves {
            cordons.extend(cordon::leave(global, node, args.moving).await?);
        }
        if reboots {
            let request = node.brief(api::RebootRequest { mode: mode.into() });
            node.client::<Machine>().reboot(request).await?;
            say(node, "reboots into the new version");
        }
        return Ok(());
    }
    if moves {
        cordons.extend(cordon::leave(global, node, args.moving).await?);
    }
    let mode = match mode {
        Mode::Powercycle => WireReboot::Powercycle,
        _ => WireReboot::Default,
    };
    let request = node.request(api::UpgradeRequest {
        image,
        preserve: true,
        stage: !reboots,
        force: args.force,
        reboot_mode: mode.into(),
    });
    let answer = node.client::<Machine>().upgrade(request).await?;
    for message in answer.into_inner().messages {
        say(node, &message.ack);
    }
    Ok(())
}

/// The streaming call, which reports progress. Returns false if the node does not support it.
async fn stream(node: &Node, image: &str, staged: bool) -> Result<bool, Trouble> {
    let source = api::InstallArtifactsSource {
        image_name: image.to_owned(),
    };
    let request = node.request(api::LifecycleServiceUpgradeRequest {
        containerd: Some(image::instance(ImageNamespace::System)),
        source: Some(source),
        staged,
    });
    let answer = node.client::<Lifecycle>().upgrade(request).await;
    let part = |frame: api::LifecycleServiceUpgradeResponse| frame.progress;
    match follow(node, answer, part).await {
        Err(Trouble::Call(status)) if status.code() == Code::Unimplemented => Ok(false),
        done => done.map(|()| true),
    }
}

/// Prints the lines of a streamed answer until its end.
pub(super) async fn follow<R>(
    node: &Node,
    answer: Result<Response<Streaming<R>>, Status>,
    progress: impl Fn(R) -> Option<api::LifecycleServiceInstallProgress>,
) -> Result<(), Trouble> {
    let mut last = String::new();
    let mut code = None;
    let take = |frame: R| {
        match progress(frame).unwrap_or_default().response {
            Some(Part::Message(line)) => {
                say(node, &line);
                last = line;
            }
            Some(Part::ExitCode(ended)) => code = Some(ended),
            None => {}
        }
        Ok(())
    };
    drain(&mut answer?.into_inner(), take).await?;
    match code {
        Some(0) => Ok(()),
        Some(code) => Err(Trouble::Said(format!("{last} (exit code {code})"))),
        None => Err(Trouble::Said(
            "the output of the installation ended without an exit code".to_owned(),
        )),
    }
}

/// The node's decision about the new version.
#[derive(Debug, PartialEq, Eq)]
enum Decided {
    /// The version stays, or the node does not judge versions.
    Stays,
    /// The version was left, with the reason.
    Left(String),
    /// No decision yet, with the state of the node.
    Pending(String),
}

/// Waits for the verdict of the single node. `before` has its name and the ID of its boot before the upgrade.
async fn verdict(global: &Global, wait: Wait, before: &(String, String)) -> Result<(), Failure> {
    let began = Instant::now();
    let mut last = String::new();
    loop {
        let state = match look(global, before).await? {
            Decided::Stays => return Ok(()),
            Decided::Left(why) => {
                return Err(Failure::call(format!(
                    "the node returned to its previous version: {why}"
                )));
            }
            Decided::Pending(state) => state,
        };
        if began.elapsed() > wait.timeout {
            let limit = wait.timeout.as_secs();
            return Err(Failure::call(format!(
                "no verdict on the version within {limit} s: {state}"
            )));
        }
        if state != last {
            eprintln!("{}", printable(&state));
            last = state;
        }
        sleep(PAUSE).await;
    }
}

/// Opens new connections for each check: the reboot closes the existing ones. While the node is down, another endpoint of
/// the context may answer, which says nothing about the node.
async fn look(global: &Global, (name, boot): &(String, String)) -> Result<Decided, Failure> {
    let silent =
        |why: &dyn fmt::Display| Decided::Pending(format!("the node does not answer: {why}"));
    let given = match routes(global).await {
        Ok(given) => given,
        Err(Failure::Call(error)) => return Ok(silent(&error)),
        Err(other) => return Err(other),
    };
    let mut found = None;
    let failed = each(given, async |node| {
        if node.name == *name {
            found = Some(decision(node, boot).await?);
        }
        Ok(())
    })
    .await?;
    let why = failed.first().map_or("no answer", |(_, why)| why);
    Ok(found.unwrap_or_else(|| silent(&why)))
}

async fn decision(node: &Node, boot: &str) -> Result<Decided, Trouble> {
    if wait::boot(node).await? == boot {
        return Ok(Decided::Pending("the node is still running".to_owned()));
    }
    let kind = "Upgrades.runtime.corten.dev";
    let found = find(node, "runtime", kind, "last").await?;
    Ok(found.map_or(Decided::Stays, |spec| decided(&spec)))
}

fn decided(spec: &Value) -> Decided {
    let text = |name: &str| spec.get(name).and_then(Value::as_str).unwrap_or_default();
    match text("verdict") {
        "good" => Decided::Stays,
        "reverted" => Decided::Left(text("reason").to_owned()),
        _ => Decided::Pending("the node is back, and the version is on trial".to_owned()),
    }
}

pub(super) fn say(node: &Node, what: &str) {
    eprintln!("{}: {}", printable(&node.name), printable(what));
}

/// Runs `rollback`.
///
/// # Errors
/// A node refuses, or does not come back in time.
pub async fn rollback(routes: Vec<Route>) -> Result<(), Failure> {
    let body = api::RollbackRequest {};
    let answers = ask(routes, body, |mut client: Machine, request| async move {
        client.rollback(request).await
    })
    .await?;
    told(&answers, "returns to its previous version");
    answers.finish()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn verdict_of_the_node_decides_the_result_of_an_upgrade() {
        for (spec, expected) in [
            (json!({"verdict": "good"}), Decided::Stays),
            (
                json!({"verdict": "reverted", "reason": "after 900 s"}),
                Decided::Left("after 900 s".to_owned()),
            ),
        ] {
            assert_eq!(decided(&spec), expected);
        }
        let pending = decided(&json!({"verdict": "pending"}));
        assert!(matches!(pending, Decided::Pending(_)), "{pending:?}");
    }
}
