//! Upgrades and rollbacks.

use std::sync::atomic::Ordering;

use corten_api::common::{ContainerdInstance, ContainerdNamespace};
use corten_api::machine as api;
use corten_api::machine::lifecycle_service_client::LifecycleServiceClient;
use corten_api::machine::lifecycle_service_install_progress::Response as Part;
use corten_base::sample;
use tokio_stream::StreamExt as _;
use tonic::Code;

use super::{World, world};
use crate::node::{Action, Install, Upgrade};

/// All messages of the answer.
async fn upgrade(world: &World, image: &str) -> Vec<Part> {
    let request = api::LifecycleServiceUpgradeRequest {
        containerd: Some(ContainerdInstance {
            namespace: ContainerdNamespace::NsSystem.into(),
            ..ContainerdInstance::default()
        }),
        source: Some(api::InstallArtifactsSource {
            image_name: image.to_owned(),
        }),
        staged: image == "staged",
    };
    let mut client = LifecycleServiceClient::new(world.channel.clone());
    let answers = client.upgrade(request).await.unwrap().into_inner();
    let part = |answer: Result<api::LifecycleServiceUpgradeResponse, _>| {
        answer.unwrap().progress.unwrap().response.unwrap()
    };
    answers.map(part).collect().await
}

#[tokio::test]
async fn upgrade_streams_progress_and_ends_with_an_exit_code_and_no_reboot() {
    let world = world();
    let line = |text: &str| Part::Message(text.to_owned());
    assert_eq!(
        upgrade(&world, "installer:2").await,
        [line("taking it"), Part::ExitCode(0)]
    );
    assert_eq!(
        upgrade(&world, "broken").await,
        [
            line("taking it"),
            line("the disk is full"),
            Part::ExitCode(7)
        ]
    );
    assert_eq!(
        upgrade(&world, "foreign").await,
        [
            line("taking it"),
            line("another key has signed it"),
            Part::ExitCode(4)
        ]
    );
    assert!(world.node.actions.lock().unwrap().is_empty());
    upgrade(&world, "staged").await;
    let staged = world.node.upgrades.lock().unwrap();
    let staged = staged.iter().map(|upgrade| upgrade.staged);
    assert_eq!(staged.collect::<Vec<_>>(), [false, false, false, true]);
}

#[tokio::test]
async fn older_upgrade_call_drains_and_reboots_unless_the_upgrade_is_staged_or_failed() {
    for (image, stage, expected) in [
        ("installer:2", false, Ok(vec![Action::Upgrade])),
        ("installer:2", true, Ok(vec![])),
        ("broken", false, Err(Code::Internal)),
        ("foreign", false, Err(Code::FailedPrecondition)),
        ("", false, Err(Code::InvalidArgument)),
    ] {
        let mut world = world();
        let request = api::UpgradeRequest {
            image: image.to_owned(),
            stage,
            force: true,
            ..api::UpgradeRequest::default()
        };
        let ended = world.client.upgrade(request).await;
        let actions = world.node.actions.lock().unwrap().clone();
        match ended {
            Ok(reply) => {
                let message = reply.into_inner().messages.remove(0);
                assert!(message.ack.contains("version 2.0"), "{}", message.ack);
                assert_eq!(message.actor_id.is_empty(), stage);
                assert_eq!(Ok(actions), expected);
                let asked = Upgrade {
                    image: image.to_owned(),
                    namespace: "system",
                    force: true,
                    staged: stage,
                };
                assert_eq!(*world.node.upgrades.lock().unwrap(), [asked]);
            }
            Err(status) => {
                assert_eq!(Err(status.code()), expected);
                assert!(actions.is_empty());
            }
        }
    }
}

#[tokio::test]
async fn rollback_reboots_the_node() {
    let mut world = world();
    let reply = world
        .client
        .rollback(api::RollbackRequest {})
        .await
        .unwrap();
    assert_eq!(reply.into_inner().messages.len(), 1);
    assert_eq!(*world.node.actions.lock().unwrap(), [Action::Reboot]);
}

#[tokio::test]
async fn refused_rollback_keeps_no_other_node_from_going_down() {
    let mut world = world();
    world.node.has_one_version.store(true, Ordering::SeqCst);
    let refused = world.client.rollback(api::RollbackRequest {}).await;
    assert_eq!(refused.unwrap_err().message(), "no other version");
    assert!(!world.node.leaves.load(Ordering::SeqCst));
    assert_eq!(*world.node.actions.lock().unwrap(), []);
}

#[tokio::test]
async fn rollback_on_a_node_that_goes_down_leaves_its_announcement() {
    let mut world = world();
    world.node.is_ending.store(true, Ordering::SeqCst);
    let refused = world.client.rollback(api::RollbackRequest {}).await;
    assert_eq!(refused.unwrap_err().code(), Code::FailedPrecondition);
    assert!(world.node.leaves.load(Ordering::SeqCst));
}

/// All messages of the answer.
async fn install(world: &World, disk: &str, image: &str) -> Vec<Part> {
    let request = api::LifecycleServiceInstallRequest {
        source: Some(api::InstallArtifactsSource {
            image_name: image.to_owned(),
        }),
        destination: Some(api::InstallDestination {
            disk: disk.to_owned(),
        }),
        containerd: Some(ContainerdInstance {
            namespace: ContainerdNamespace::NsSystem.into(),
            ..ContainerdInstance::default()
        }),
    };
    let mut client = LifecycleServiceClient::new(world.channel.clone());
    let answers = client.install(request).await.unwrap().into_inner();
    let part = |answer: Result<api::LifecycleServiceInstallResponse, _>| {
        answer.unwrap().progress.unwrap().response.unwrap()
    };
    answers.map(part).collect().await
}

#[tokio::test]
async fn installation_streams_progress_and_reboots_only_a_node_without_an_owner() {
    let line = |text: &str| Part::Message(text.to_owned());
    let world = world();
    assert_eq!(
        install(&world, "/dev/used", "").await,
        [
            line("writing it"),
            line("it holds something"),
            Part::ExitCode(4)
        ]
    );
    assert!(world.node.actions.lock().unwrap().is_empty());
    // Without a config.
    assert_eq!(
        install(&world, "/dev/vda", "").await,
        [
            line("writing it"),
            line("rebooting into it"),
            Part::ExitCode(0)
        ]
    );
    assert_eq!(*world.node.actions.lock().unwrap(), [Action::Reboot]);
    let asked = Install {
        disk: "/dev/vda".to_owned(),
        image: None,
    };
    assert_eq!(world.node.installs.lock().unwrap().last(), Some(&asked));

    let world = super::world();
    *world.node.config.lock().unwrap() = Some(sample::config("", ""));
    assert_eq!(
        install(&world, "/dev/vda", "installer:1").await,
        [line("writing it"), Part::ExitCode(0)]
    );
    assert!(world.node.actions.lock().unwrap().is_empty());
    let image = world.node.installs.lock().unwrap()[0].image.clone();
    assert_eq!(image.as_deref(), Some("installer:1"));
}

#[tokio::test]
async fn installation_needs_a_disk_and_an_image_in_the_system_namespace() {
    let world = world();
    let mut client = LifecycleServiceClient::new(world.channel.clone());
    let cri = ContainerdInstance {
        namespace: ContainerdNamespace::NsCri.into(),
        ..ContainerdInstance::default()
    };
    for (containerd, field) in [(None, "destination.disk"), (Some(cri), "containerd")] {
        let request = api::LifecycleServiceInstallRequest {
            containerd,
            ..api::LifecycleServiceInstallRequest::default()
        };
        let refused = client.install(request).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument);
        assert!(refused.message().contains(field), "{}", refused.message());
    }
    assert!(world.node.installs.lock().unwrap().is_empty());
}
