use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use corten_base::sample;
use corten_meta::tags::{PLATFORM_NETWORK, UUID_OVERRIDE};
use corten_pki::{Algorithm, Ca};
use corten_server::node::{Node as _, Reset, SubmitError};
use corten_supervisor::supervisor::testing::world;
use corten_types::config::MachineConfig;
use corten_volumes::{DeviceWipe, Target};

use super::*;

/// Makes configs of a node with a CA, each with a line of its own.
fn with_ca() -> impl Fn(&str) -> Document {
    let ca = Ca::generate(Algorithm::Ed25519, "talos", "", SystemTime::now()).unwrap();
    let crt = STANDARD.encode(&ca.pem().crt);
    move |line| {
        sample::read(&format!(
            "version: v1alpha1\nmachine:\n  type: worker\n  token: a.b\n  ca: {{crt: {crt}}}\n  {line}\n\
             cluster:\n  controlPlane: {{endpoint: 'https://10.0.0.1:6443'}}\n"
        ))
    }
}

#[tokio::test]
async fn meta_follows_kept_configs_and_not_tried_ones() {
    let (node, _requests) = NodeState::new(world().supervisor.clone(), Events::default());
    let disk = tempfile::NamedTempFile::new().unwrap();
    disk.as_file().set_len(corten_meta::PARTITION).unwrap();
    node.meta.open(disk.path()).unwrap();
    let config = with_ca();
    node.set_config(config(""));
    let config = |passphrase: &str| {
        let keys = format!("[{{slot: 0, static: {{passphrase: {passphrase}}}}}]");
        let state = format!("{{provider: luks2, keys: {keys}}}");
        config(&format!("systemDiskEncryption: {{state: {state}}}"))
    };
    let known = || {
        let meta = Meta::default();
        meta.open(disk.path()).unwrap();
        let value = meta.watch().borrow().get(&STATE_ENCRYPTION).cloned();
        value.map(|value| String::from_utf8(value).unwrap())
    };
    let minute = Apply::Try(Duration::from_secs(60));
    node.apply_config(config("tried"), minute).unwrap();
    assert_eq!(known(), None);
    node.apply_config(config("kept"), Apply::Now).unwrap();
    let kept = known().unwrap();
    assert!(kept.contains("kept"), "{kept}");
    node.apply_config(config("tried"), minute).unwrap();
    // Like reverting to the previous config.
    node.set_config(config("kept"));
    assert_eq!(known(), Some(kept));
}

#[tokio::test]
async fn applied_config_is_shown_when_the_call_returns() {
    let (node, _requests) = NodeState::new(world().supervisor.clone(), Events::default());
    node.store().register::<MachineConfig>().unwrap();
    let config = with_ca();
    let shown = || {
        let shown = node.store().get_as::<MachineConfig>(MachineConfig::ID);
        shown.map(|shown| shown.source.clone())
    };
    // The first config ends the maintenance of the node, which shows none.
    node.apply_config(config(""), Apply::Now).unwrap();
    assert_eq!(shown(), None);
    node.set_config(config(""));
    for (name, how) in [
        ("kept", Apply::Now),
        ("tried", Apply::Try(Duration::from_secs(60))),
    ] {
        let line = format!("network: {{hostname: {name}}}");
        node.apply_config(config(&line), how).unwrap();
        assert!(shown().unwrap().contains(name));
    }
}

#[tokio::test]
async fn meta_refuses_values_that_the_node_cannot_use() {
    let (node, _requests) = NodeState::new(world().supervisor.clone(), Events::default());
    let disk = tempfile::NamedTempFile::new().unwrap();
    disk.as_file().set_len(corten_meta::PARTITION).unwrap();
    node.meta.open(disk.path()).unwrap();
    let change = |value: &str| {
        let value = value.as_bytes().to_vec();
        node.change_meta(PLATFORM_NETWORK, Some(value))
    };
    let refused = change("hostnames: a\n").unwrap_err().to_string();
    assert_eq!(
        refused,
        "META 0x0a stays as it is: line 1, column 12: hostnames must be a list"
    );
    assert!(node.meta.watch().borrow().is_empty());
    change("hostnames: [{hostname: a}]\n").unwrap();
    node.change_meta(PLATFORM_NETWORK, None).unwrap();
    // A value without an effect would mislead.
    let uuid = b"4c4c4544-0033-4d10-8051-b7c04f4b3532".to_vec();
    node.change_meta(UUID_OVERRIDE, Some(uuid)).unwrap_err();
}

fn reset() -> Action {
    Action::Reset(Reset {
        targets: vec![Target::Disk(corten_volumes::Disk::new("vdx", 0))],
        graceful: false,
        reboot: true,
    })
}

#[tokio::test]
async fn reset_and_wipe_exclude_each_other_and_end_with_the_node() {
    let (node, _requests) = NodeState::new(world().supervisor.clone(), Events::default());
    let busy = |done: Result<(), SubmitError>| done.unwrap_err().to_string();
    let wiping = node.wiping.lock().unwrap();
    let under_way = "a wipe of devices is already under way";
    assert_eq!(busy(node.submit(reset(), Actor::default())), under_way);
    assert_eq!(busy(node.wipe_devices(&[])), under_way);
    drop(wiping);
    node.wipe_devices(&[]).unwrap();
    node.submit(reset(), Actor::default()).unwrap();
    let wipe = DeviceWipe {
        device: "no-such-disk".to_owned(),
        partition_of: None,
        sequence: 0,
        zeros: false,
        drop_partition: false,
    };
    let ended = "the end of this boot is already under way";
    assert_eq!(busy(node.wipe_devices(std::slice::from_ref(&wipe))), ended);
    assert_eq!(busy(node.submit(Action::Reboot, Actor::default())), ended);
    // For any end of the boot.
    let (node, _requests) = NodeState::new(world().supervisor.clone(), Events::default());
    node.set_ending();
    assert_eq!(busy(node.submit(reset(), Actor::default())), ended);
}

#[tokio::test]
async fn forced_action_takes_over_the_end_until_the_services_stop() {
    let (node, mut requests) = NodeState::new(world().supervisor.clone(), Events::default());
    node.submit(Action::Reboot, Actor::default()).unwrap();
    let shutdown = Action::Shutdown { forced: true };
    for action in [shutdown.clone(), Action::ForcedReboot] {
        node.submit(action, Actor::default()).unwrap();
    }
    for action in [Action::Reboot, Action::Shutdown { forced: false }, reset()] {
        let refused = node.submit(action, Actor::default()).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "the end of this boot is already under way"
        );
    }
    for expected in [Action::Reboot, shutdown.clone(), Action::ForcedReboot] {
        let Some(Request::Act(action, _)) = requests.recv().await else {
            panic!("no {expected:?}");
        };
        assert_eq!(action, expected);
    }
    drop(requests);
    let refused = node.submit(shutdown, Actor::default()).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "the end of this boot is already under way"
    );
}

#[tokio::test]
async fn network_follows_an_installation_until_the_node_has_a_config() {
    let (node, _requests) = NodeState::new(world().supervisor.clone(), Events::default());
    let network = node.network_configs();
    let source = || {
        network
            .borrow()
            .as_ref()
            .map(|config| config.source().to_owned())
    };
    let [installation, own] = ["a", "b"]
        .map(|name| sample::kind(&format!("HostnameConfig\nhostname: {name}\nauto: 'off'")));
    node.prepare_network(Some(installation.clone()));
    assert_eq!(source().as_deref(), Some(installation.source()));
    assert!(node.config().is_none());
    node.prepare_network(None);
    assert_eq!(source(), None);
    node.set_config(own.clone());
    node.prepare_network(Some(installation));
    assert_eq!(source().as_deref(), Some(own.source()));
}
