//! Tells the other members of etcd the addresses of this node's member when they change.

use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::time::Duration;

use corten_base::console;
use corten_credentials::etcd::connect;
use corten_kubernetes::etcd::peer_urls;
use corten_kubernetes::pods::HOST_SECRETS;
use corten_resources::controller::with_causes as describe;
use corten_resources::controller::{Context, Controller, Dependency, Failure, Input, Output};
use corten_supervisor::kubernetes::ETCD;
use corten_types::etcd::{EtcdMember, EtcdSpec};
use tokio::time::sleep;

use super::Complaints;

/// Retry interval after a failure.
const PAUSE: Duration = Duration::from_secs(10);

#[derive(Debug, Clone)]
pub(super) struct AdvertisedPeers;

impl Controller for AdvertisedPeers {
    fn name(&self) -> &'static str {
        "etcd.AdvertisedPeerController"
    }

    fn inputs(&self) -> Vec<Input> {
        vec![
            Input::of::<EtcdSpec>(Dependency::Weak).with_id(EtcdSpec::ID),
            // A member without a vote cannot change the list of members.
            Input::of::<EtcdMember>(Dependency::Weak).with_id(EtcdMember::ID),
        ]
    }

    fn outputs(&self) -> Vec<Output> {
        vec![]
    }

    async fn run(self, context: &mut Context) -> Result<(), Failure> {
        let mut complaints = Complaints::default();
        loop {
            let is_waiting = complaints.is_some();
            tokio::select! {
                () = context.event() => {}
                () = sleep(PAUSE), if is_waiting => {}
            }
            let spec = context.get::<EtcdSpec>(EtcdSpec::ID)?;
            let member = context.get::<EtcdMember>(EtcdMember::ID)?;
            let (Some(spec), Some(_)) = (spec, member) else {
                continue;
            };
            match advertise(&spec.advertised_addresses).await {
                Ok(()) => complaints.none(),
                Err(why) => complaints.say("the addresses of this node's etcd member", &why),
            }
        }
    }
}

async fn advertise(addresses: &[IpAddr]) -> Result<(), String> {
    let secrets = Path::new(HOST_SECRETS).join(ETCD);
    let client = connect(&secrets, &[Ipv4Addr::LOCALHOST.into()]).await?;
    let urls = peer_urls(addresses);
    let changed = client.advertise(&urls).await;
    if changed.map_err(|error| describe(&error))? {
        console::say(&format!(
            "etcd: the other members now reach this node at {}",
            urls.join(", ")
        ));
    }
    Ok(())
}
