//! Actions that end the boot.

use std::sync::atomic::Ordering;

use corten_api::machine as api;
use corten_api::machine::reboot_request::Mode;
use corten_api::machine::reset_request::WipeMode;
use corten_volumes::{Disk, Target};
use tonic::{Code, Request};

use super::{wipe, world};
use crate::node::{Action, Reset};

/// The disk of `wipe::put_disks`.
fn vdb() -> Target {
    Target::Disk(Disk::new("vdb", wipe::number("vdb")))
}

#[tokio::test]
async fn an_action_is_submitted_once() {
    let mut world = world();
    let reply = world
        .client
        .reboot(api::RebootRequest::default())
        .await
        .unwrap()
        .into_inner();
    assert_eq!(reply.messages[0].actor_id.len(), 36);
    let refused = world
        .client
        .shutdown(api::ShutdownRequest::default())
        .await
        .unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);
    assert_eq!(*world.node.actions.lock().unwrap(), [Action::Reboot]);
}

#[tokio::test]
async fn caller_text_from_apid_is_forwarded_and_bounded() {
    let who = "roles=os:admin serial=0a1b from=10.0.0.9:4711 via=-";
    let long = "x".repeat(4000);
    for (told, kept) in [(None, ""), (Some(who), who), (Some(&*long), &long[..1024])] {
        let mut world = world();
        let mut request = Request::new(api::ResetRequest::default());
        if let Some(told) = told {
            let told = told.parse().unwrap();
            request.metadata_mut().insert("corten-caller", told);
        }
        let reply = world.client.reset(request).await.unwrap().into_inner();
        let actors = world.node.actors.lock().unwrap().clone();
        assert_eq!(actors[0].who, kept);
        assert_eq!(actors[0].id, reply.messages[0].actor_id);
    }
}

#[tokio::test]
async fn modes_of_a_reboot_reach_the_node() {
    for (mode, action) in [
        (Mode::Powercycle, Action::Reboot),
        (Mode::Force, Action::ForcedReboot),
    ] {
        let mut world = world();
        let request = api::RebootRequest { mode: mode.into() };
        world.client.reboot(request).await.unwrap();
        assert_eq!(*world.node.actions.lock().unwrap(), [action]);
    }
    let mut world = world();
    let request = api::ShutdownRequest { force: true };
    world.client.shutdown(request).await.unwrap();
    assert_eq!(
        *world.node.actions.lock().unwrap(),
        [Action::Shutdown { forced: true }]
    );
}

#[tokio::test]
async fn only_a_forced_call_takes_a_node_down_that_etcd_needs() {
    let mut world = world();
    world.node.is_needed.store(true, Ordering::SeqCst);
    let client = &mut world.client;
    let rebooted = client.reboot(api::RebootRequest::default()).await;
    let shut_down = client.shutdown(api::ShutdownRequest::default()).await;
    let rolled_back = client.rollback(api::RollbackRequest {}).await;
    let calls = [
        rebooted.unwrap_err(),
        shut_down.unwrap_err(),
        rolled_back.unwrap_err(),
    ];
    for refused in calls {
        assert_eq!(refused.code(), Code::FailedPrecondition);
        assert_eq!(refused.message(), "etcd needs this node");
    }
    assert_eq!(*world.node.actions.lock().unwrap(), []);
    let forced = api::ShutdownRequest { force: true };
    client.shutdown(forced).await.unwrap();
    let shutdown = Action::Shutdown { forced: true };
    assert_eq!(*world.node.actions.lock().unwrap(), [shutdown]);
}

#[tokio::test]
async fn graceful_reset_of_a_node_that_etcd_needs_is_refused_before_the_node_ends() {
    let mut world = world();
    world.node.is_needed.store(true, Ordering::SeqCst);
    let mut request = reset(&["EPHEMERAL"]);
    request.graceful = true;
    let refused = world.client.reset(request).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);
    assert_eq!(refused.message(), "etcd needs this node");
    assert_eq!(*world.node.actions.lock().unwrap(), []);
    world.client.reset(reset(&["EPHEMERAL"])).await.unwrap();
    assert_eq!(world.node.actions.lock().unwrap().len(), 1);
}

#[test]
fn reset_wipes_the_data_of_etcd_with_ephemeral_or_the_whole_disk() {
    for (target, wipes) in [
        (Target::SystemDisk, true),
        (Target::Partition("EPHEMERAL"), true),
        (Target::Partition("STATE"), false),
        (vdb(), false),
    ] {
        let reset = Reset {
            targets: vec![Target::Partition("META"), target],
            graceful: true,
            reboot: true,
        };
        assert_eq!(reset.wipes_ephemeral(), wipes, "{reset:?}");
    }
}

fn reset(labels: &[&str]) -> api::ResetRequest {
    let spec = |label: &&str| api::ResetPartitionSpec {
        label: (*label).to_owned(),
        wipe: true,
    };
    api::ResetRequest {
        reboot: true,
        system_partitions_to_wipe: labels.iter().map(spec).collect(),
        ..Default::default()
    }
}

#[tokio::test]
async fn a_reset_wipes_the_partitions_it_names() {
    let mut world = world();
    let mut request = reset(&["EPHEMERAL", "STATE", "META", "STATE"]);
    request.system_partitions_to_wipe[2].wipe = false;
    request.graceful = true;
    let reply = world.client.reset(request).await.unwrap().into_inner();
    assert_eq!(reply.messages[0].actor_id.len(), 36);
    let expected = Action::Reset(Reset {
        targets: vec![Target::Partition("EPHEMERAL"), Target::Partition("STATE")],
        graceful: true,
        reboot: true,
    });
    assert_eq!(*world.node.actions.lock().unwrap(), [expected]);
}

#[tokio::test]
async fn reset_without_partitions_wipes_the_whole_disk_last() {
    let cases: [(WipeMode, &[&str], Vec<Target>); 4] = [
        (WipeMode::All, &[], vec![Target::SystemDisk]),
        (WipeMode::SystemDisk, &[], vec![Target::SystemDisk]),
        (
            WipeMode::All,
            &["/dev/vdb", "/dev/vdb"],
            vec![vdb(), Target::SystemDisk],
        ),
        (WipeMode::UserDisks, &["/dev/vdb"], vec![vdb()]),
    ];
    for (mode, disks, targets) in cases {
        let mut world = world();
        wipe::put_disks(&world);
        let request = api::ResetRequest {
            mode: mode.into(),
            user_disks_to_wipe: disks.iter().map(|disk| (*disk).to_owned()).collect(),
            ..Default::default()
        };
        world.client.reset(request).await.unwrap();
        let expected = Action::Reset(Reset {
            targets,
            graceful: false,
            reboot: false,
        });
        assert_eq!(*world.node.actions.lock().unwrap(), [expected]);
    }
}

#[tokio::test]
async fn impossible_reset_is_refused_with_its_field() {
    let mut world = world();
    let with_disk = |mode: WipeMode, labels: &[&str]| api::ResetRequest {
        user_disks_to_wipe: vec!["/dev/sdz".to_owned()],
        mode: mode.into(),
        ..reset(labels)
    };
    let only_mode = |mode: WipeMode, labels: &[&str]| api::ResetRequest {
        mode: mode.into(),
        ..reset(labels)
    };
    let partitions = "system_partitions_to_wipe";
    let disks = "user_disks_to_wipe";
    for (request, code, field) in [
        (reset(&["STATE", "EFI"]), Code::InvalidArgument, partitions),
        (reset(&[""]), Code::InvalidArgument, partitions),
        (with_disk(WipeMode::All, &["STATE"]), Code::NotFound, disks),
        (
            with_disk(WipeMode::SystemDisk, &[]),
            Code::InvalidArgument,
            disks,
        ),
        (
            only_mode(WipeMode::UserDisks, &["STATE"]),
            Code::InvalidArgument,
            partitions,
        ),
        (
            only_mode(WipeMode::UserDisks, &[]),
            Code::InvalidArgument,
            disks,
        ),
        (
            api::ResetRequest {
                mode: 3,
                ..reset(&[])
            },
            Code::InvalidArgument,
            "mode: 3",
        ),
    ] {
        let refused = world.client.reset(request).await.unwrap_err();
        assert_eq!(refused.code(), code, "{refused}");
        assert!(refused.message().starts_with(field), "{refused}");
    }
    assert!(world.node.actions.lock().unwrap().is_empty());
}
