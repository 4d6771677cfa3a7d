//! Serves the accounts of pods: one control plane node at a time, which holds a lock in etcd.

use std::convert::Infallible;
use std::net::IpAddr;
use std::path::Path;
use std::pin::pin;
use std::time::Duration;

use corten_config::Document;
use corten_credentials::certificates::signer;
use corten_credentials::{access, etcd};
use corten_etcd::EtcdError;
use corten_kubernetes::Settings;
use corten_kubernetes::pods::HOST_SECRETS;
use corten_manifests::ACCOUNTS_MANIFEST;
use corten_resources::controller::with_causes as describe;
use corten_resources::controller::{Context, Controller, Dependency, Failure, Input, Output};
use corten_supervisor::kubernetes::ETCD;
use corten_types::clock::TimeStatus;
use corten_types::kubernetes::ManifestStatus;
use corten_types::pod_access::PodAccessConfig;
use tokio::sync::watch;
use tokio::time::sleep;

use super::super::Complaints;
use super::enabled;
use super::grants::Signer;

/// The lock's name. It is the reference's, so that nodes of both systems do not serve at once.
const LOCK: &str = "talos:v1:serviceAccountCRDController";
/// Lease time of the lock: the time that no node serves after one that dies.
const LEASE: Duration = Duration::from_secs(60);
/// Timeout of a wait for the lock. Another node may hold it indefinitely; the wait then restarts.
const WAIT: Duration = Duration::from_secs(10 * 60);
/// Retry interval after a failure.
const PAUSE: Duration = Duration::from_secs(10);

#[derive(Debug, Clone)]
pub(super) struct Accounts {
    pub(super) config: watch::Receiver<Option<Document>>,
}

/// Inputs of the service of accounts; a change begins it anew.
#[derive(Debug, Clone, PartialEq)]
struct Inputs {
    rules: PodAccessConfig,
    /// Number of jumps of the clock, by which certificates expire.
    epoch: u64,
}

impl Inputs {
    /// `None` while there is nothing to serve: no access, no kind of accounts in the cluster, no right time.
    fn of(context: &Context) -> Result<Option<Inputs>, Failure> {
        let Some(rules) = enabled(context)? else {
            return Ok(None);
        };
        let applied = context.get::<ManifestStatus>(ManifestStatus::ID)?;
        let has_kind = applied.is_some_and(|status| {
            let mut ids = status.manifests_applied.iter();
            ids.any(|id| id == ACCOUNTS_MANIFEST)
        });
        let time = context.get::<TimeStatus>(TimeStatus::ID)?;
        let time = time.filter(|time| time.synced && has_kind);
        Ok(time.map(|time| Inputs {
            rules,
            epoch: time.epoch,
        }))
    }
}

impl Controller for Accounts {
    fn name(&self) -> &'static str {
        "kubeaccess.CRDController"
    }

    fn inputs(&self) -> Vec<Input> {
        vec![
            Input::of::<PodAccessConfig>(Dependency::Weak).with_id(PodAccessConfig::ID),
            Input::of::<ManifestStatus>(Dependency::Weak).with_id(ManifestStatus::ID),
            Input::of::<TimeStatus>(Dependency::Weak).with_id(TimeStatus::ID),
        ]
    }

    fn outputs(&self) -> Vec<Output> {
        vec![]
    }

    async fn run(mut self, context: &mut Context) -> Result<(), Failure> {
        let mut complaints = Complaints::default();
        loop {
            let config = self.config.borrow_and_update().clone();
            let (Some(config), Some(inputs)) = (config, Inputs::of(context)?) else {
                complaints.none();
                tokio::select! {
                    () = context.event() => {}
                    Ok(()) = self.config.changed() => {}
                }
                continue;
            };
            let mut serving = pin!(serve(&config, &inputs.rules));
            let trouble = loop {
                tokio::select! {
                    ended = &mut serving => match ended {
                        Ok(never) => match never {},
                        Err(why) => break Some(why),
                    },
                    () = context.event() => if Inputs::of(context)?.as_ref() != Some(&inputs) {
                        break None;
                    },
                    Ok(()) = self.config.changed() => break None,
                }
            };
            if let Some(why) = trouble {
                complaints.say("the accounts of pods", &why);
                sleep(PAUSE).await;
            }
        }
    }
}

/// Serves the accounts with these rules while this node has the lock. Returns the reason why it cannot go on.
async fn serve(config: &Document, rules: &PodAccessConfig) -> Result<Infallible, String> {
    let settings = Settings::of(config).map_err(|missing| missing.to_string())?;
    let signer = Signer {
        ca: signer(config).map_err(|error| describe(&error))?,
        rules: rules.clone(),
    };
    let secrets = Path::new(HOST_SECRETS).join(ETCD);
    let members = etcd::connect(&secrets, &[IpAddr::from([127, 0, 0, 1])]).await?;
    let mut lock = loop {
        match members.lock(LOCK, LEASE, WAIT).await {
            Ok(lock) => break lock,
            Err(EtcdError::LockHeld { .. }) => {}
            Err(error) => return Err(describe(&error)),
        }
    };
    let server = settings.local_endpoint();
    let cluster = access::connect_to_watch(config, &settings, &server)?;
    tokio::select! {
        ended = cluster.serve_accounts(&signer) => ended.map_err(|error| describe(&error)),
        () = lock.lost() => Err("the lock in etcd is lost".to_owned()),
    }
}
