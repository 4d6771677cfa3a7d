//! Configs, applied and tried.

use std::sync::{Arc, Barrier};
use std::time::Duration;

use corten_api::machine::apply_configuration_request::Mode;
use tokio::task::spawn_blocking;
use tonic::Code;

use super::{DEADLINE, applying, config_text, world};
use crate::node::{Action, Apply, Node as _};

#[tokio::test]
async fn a_config_is_applied_whole_or_not_at_all() {
    let mut world = world();
    let good = config_text();
    let broken = good
        .replace("hostname", "hostnam")
        .replace("controlplane", "master");
    let refused = world
        .client
        .apply_configuration(applying(&broken, Mode::Auto))
        .await;
    let refused = refused.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
    assert!(
        refused.message().contains("machine.network.hostnam"),
        "{refused}"
    );
    assert!(refused.message().contains("machine.type"), "{refused}");
    assert!(world.node.config().is_none());

    let mut dry = applying(&good, Mode::Auto);
    dry.dry_run = true;
    let reply = world
        .client
        .apply_configuration(dry)
        .await
        .unwrap()
        .into_inner();
    let details = &reply.messages[0].mode_details;
    assert!(details.contains("+        hostname: first"), "{details}");
    assert!(
        details.contains("no change found that cuts you off"),
        "{details}"
    );
    assert!(!details.contains("very.secret"), "{details}");
    assert!(world.node.config().is_none());

    let reply = world
        .client
        .apply_configuration(applying(&good, Mode::Auto))
        .await
        .unwrap();
    let reply = reply.into_inner().messages.remove(0);
    assert_eq!(reply.mode(), Mode::NoReboot);
    assert_eq!(reply.mode_details, "Applied configuration without a reboot");
    assert_eq!(reply.warnings.len(), 1);
    assert_eq!(world.node.config().unwrap().source(), good);

    let second = good.replace("first", "second");
    let mut dry = applying(&second, Mode::Reboot);
    dry.dry_run = true;
    world.client.apply_configuration(dry).await.unwrap();
    assert!(world.node.actions.lock().unwrap().is_empty());
    let reply = world
        .client
        .apply_configuration(applying(&second, Mode::Reboot))
        .await
        .unwrap();
    let reply = reply.into_inner().messages.remove(0);
    assert_eq!(reply.mode(), Mode::Reboot);
    assert_eq!(reply.mode_details, "Applied configuration with a reboot");
    assert_eq!(*world.node.actions.lock().unwrap(), [Action::Reboot]);
    assert_eq!(
        world.node.applied.lock().unwrap().last(),
        Some(&Apply::Staged)
    );
}

#[tokio::test]
async fn apply_modes_reach_the_node_and_a_dry_run_changes_nothing() {
    let mut world = world();
    let good = config_text();
    let mut long = applying(&good, Mode::Try);
    long.try_mode_timeout = prost_types::Duration::try_from(Duration::from_secs(300)).ok();
    let mut dry = applying(&good.replace("first", "second"), Mode::Staged);
    dry.dry_run = true;
    for (request, mode, details) in [
        (
            applying(&good, Mode::NoReboot),
            Mode::NoReboot,
            "without a reboot",
        ),
        (
            applying(&good, Mode::Staged),
            Mode::Staged,
            "after the next reboot",
        ),
        (applying(&good, Mode::Try), Mode::Try, "tried for 60 s"),
        (long, Mode::Try, "tried for 300 s"),
        (dry, Mode::Staged, "~ machine.network.hostname"),
    ] {
        let reply = world.client.apply_configuration(request).await.unwrap();
        let reply = reply.into_inner().messages.remove(0);
        assert_eq!(reply.mode(), mode);
        assert!(
            reply.mode_details.contains(details),
            "{}",
            reply.mode_details
        );
    }
    let applied = world.node.applied.lock().unwrap().clone();
    let tries = [60, 300].map(|seconds| Apply::Try(Duration::from_secs(seconds)));
    assert_eq!(applied, [Apply::Now, Apply::Staged, tries[0], tries[1]]);

    // A dry run refuses what the node would refuse.
    let mut impossible = applying(&good.replace("first", "impossible"), Mode::Auto);
    impossible.dry_run = true;
    let refused = world
        .client
        .apply_configuration(impossible)
        .await
        .unwrap_err();
    assert_eq!(refused.message(), "not that one");
    let mut never = applying(&good, Mode::Try);
    never.try_mode_timeout = Some(prost_types::Duration::default());
    let refused = world.client.apply_configuration(never).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
}

#[tokio::test]
async fn dry_run_warns_of_ignored_fields_and_names_restarted_services() {
    let mut world = world();
    let good = config_text();
    world
        .client
        .apply_configuration(applying(&good, Mode::Auto))
        .await
        .unwrap();
    let more = "machine:\n  env: {A: b}\n  install: {bootloader: true}\n";
    let mut dry = applying(&good.replace("machine:\n", more), Mode::Auto);
    dry.dry_run = true;
    let reply = world.client.apply_configuration(dry).await.unwrap();
    let reply = reply.into_inner().messages.remove(0);
    let kept = "kept, and not acted on by this version: machine.install.bootloader";
    assert_eq!(reply.warnings, [kept]);
    let details = &reply.mode_details;
    assert!(
        details.contains("\nrestarts: ext-hello, ext-lost, kubelet\n"),
        "{details}"
    );
}

#[tokio::test]
async fn config_of_a_disconnected_caller_is_applied_before_the_next_config() {
    let mut world = world();
    let slow = Arc::new(Barrier::new(2));
    *world.node.slow.lock().unwrap() = Some(slow.clone());
    let meet = || {
        let slow = slow.clone();
        spawn_blocking(move || {
            slow.wait();
        })
    };
    let good = config_text();
    let (mut caller, first) = (world.client.clone(), applying(&good, Mode::Auto));
    let call = tokio::spawn(async move { caller.apply_configuration(first).await });
    meet().await.unwrap();
    call.abort();
    assert!(call.await.unwrap_err().is_cancelled());
    // Calls after the cancellation on the same connection prove that the cancellation has arrived.
    for _ in 0..10 {
        world.client.service_list(()).await.unwrap();
    }
    let second = good.replace("first", "second");
    let retry = || applying(&second, Mode::Auto);
    let refused = world.client.apply_configuration(retry()).await;
    let refused = refused.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition, "{refused}");
    meet().await.unwrap();
    let applied = async {
        while let Err(refused) = world.client.apply_configuration(retry()).await {
            assert_eq!(refused.code(), Code::FailedPrecondition, "{refused}");
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(DEADLINE, applied).await.unwrap();
    assert_eq!(world.node.config().unwrap().hostname(), Some("second"));
    assert_eq!(world.node.applied.lock().unwrap().len(), 2);
}

#[tokio::test]
async fn config_requesting_an_installation_is_refused_or_stored_on_the_new_disk() {
    let mut world = world();
    *world.node.new_disk.lock().unwrap() = Some("vda".to_owned());
    let wish = |wipe: bool| {
        let fields = format!("install: {{disk: /dev/vda, wipe: {wipe}}}");
        corten_base::sample::text(&fields, "")
    };
    let refused = world
        .client
        .apply_configuration(applying(&wish(false), Mode::Auto))
        .await
        .unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);
    assert_eq!(
        refused.message(),
        "machine.install.disk: vda holds something"
    );
    assert!(world.node.config().is_none());
    let mut dry = applying(&wish(true), Mode::Auto);
    dry.dry_run = true;
    let reply = world.client.apply_configuration(dry).await.unwrap();
    let details = &reply.into_inner().messages[0].mode_details;
    assert!(details.ends_with("would be installed to vda"), "{details}");
    assert!(world.node.applied.lock().unwrap().is_empty());
    let reply = world
        .client
        .apply_configuration(applying(&wish(true), Mode::Auto))
        .await
        .unwrap();
    let reply = reply.into_inner().messages.remove(0);
    assert_eq!(reply.mode(), Mode::Reboot);
    assert!(
        reply.mode_details.contains("installed to vda"),
        "{}",
        reply.mode_details
    );
    // The node stores the config on the disk, so there is no warning.
    assert_eq!(reply.warnings, [""; 0]);
    assert_eq!(*world.node.applied.lock().unwrap(), [Apply::Install]);
}
