//! Shows the metadata that the platform gives for the machine: its identity and its external addresses.

use std::collections::BTreeMap;
use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use corten_base::cmdline::Cmdline;
use corten_base::sysfs;
use corten_network_controllers::EXTERNAL;
use corten_platform::{Instance, Metadata};
use corten_resources::Draft;
use corten_resources::controller::{Context, Controller, Failure, Output};
use corten_types::network::AddressStatus;
use corten_types::runtime::PlatformMetadata;
use tokio::sync::watch;

#[derive(Debug, Clone)]
pub(super) struct Platform {
    /// `/`, except in tests.
    root: PathBuf,
    instance: watch::Receiver<Option<Arc<Instance>>>,
}

impl Platform {
    /// Of this machine.
    pub(super) fn of(instance: watch::Receiver<Option<Arc<Instance>>>) -> Platform {
        let root = "/".into();
        Platform { root, instance }
    }
}

impl Controller for Platform {
    fn name(&self) -> &'static str {
        "runtime.PlatformController"
    }

    fn outputs(&self) -> Vec<Output> {
        vec![
            Output::exclusive::<PlatformMetadata>(),
            Output::shared::<AddressStatus>(),
        ]
    }

    async fn run(mut self, context: &mut Context) -> Result<(), Failure> {
        let cmdline = fs::read_to_string(self.root.join("proc/cmdline"));
        let cmdline = cmdline.map_err(|error| format!("cannot read /proc/cmdline: {error}"))?;
        let unsaid = unsaid(&self.root, &Cmdline::parse(cmdline.trim()));
        loop {
            let instance = self.instance.borrow_and_update().clone();
            let metadata = match &instance {
                Some(instance) => said(instance.metadata.clone()),
                None => unsaid.clone(),
            };
            context.put(Draft::new(PlatformMetadata::ID, metadata))?;
            context.start_outputs();
            let translated = instance.iter().flat_map(|said| &said.network.external);
            for address in translated {
                let status = external(*address);
                let id = format!("{EXTERNAL}/{}", status.address);
                context.put(Draft::new(&id, status))?;
            }
            context.remove_others::<AddressStatus>()?;
            if self.instance.changed().await.is_err() {
                return Ok(());
            }
        }
    }
}

/// The metadata while no platform gives any.
fn unsaid(root: &Path, cmdline: &Cmdline) -> PlatformMetadata {
    let platform = cmdline.platform();
    // Elsewhere the platform itself numbers its machines.
    let instance_id = match platform {
        "metal" => sysfs::read(&root.join("sys/class/dmi/id/product_uuid")),
        _ => String::new(),
    };
    PlatformMetadata {
        platform: platform.to_owned(),
        hostname: cmdline.ours("hostname").unwrap_or_default().to_owned(),
        instance_id,
        ..PlatformMetadata::default()
    }
}

fn said(said: Metadata) -> PlatformMetadata {
    PlatformMetadata {
        platform: said.platform,
        hostname: said.hostname,
        region: said.region,
        zone: said.zone,
        instance_type: said.instance_type,
        instance_id: said.instance_id,
        provider_id: said.provider_id,
        spot: said.spot,
        internal_dns: said.internal_dns,
        external_dns: said.external_dns,
        tags: BTreeMap::from_iter(said.tags),
    }
}

fn external(address: IpAddr) -> AddressStatus {
    let (prefix, family) = if address.is_ipv4() {
        (32, "inet4")
    } else {
        (128, "inet6")
    };
    AddressStatus {
        address: format!("{address}/{prefix}"),
        local: String::new(),
        broadcast: String::new(),
        link_index: 0,
        link_name: EXTERNAL.to_owned(),
        family,
        scope: "global",
        flags: String::new(),
    }
}

#[cfg(test)]
mod tests {
    use corten_platform::Network;
    use corten_resources::Store;
    use corten_resources::controller::Runtime;

    use super::*;

    async fn shown(cmdline: &str, instance: Option<Instance>) -> Store {
        let root = tempfile::tempdir().unwrap();
        for (name, text) in [
            ("proc/cmdline", cmdline),
            ("sys/class/dmi/id/product_uuid", "4c4c4544-0050\n"),
        ] {
            let path = root.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let store = Store::new();
        let mut runtime = Runtime::new(store.clone());
        let root = root.path().to_owned();
        let instance = watch::Sender::new(instance.map(Arc::new)).subscribe();
        runtime.add(Platform { root, instance }).unwrap();
        runtime.run(|notice| panic!("{notice}")).await;
        store
    }

    fn metadata(store: &Store) -> PlatformMetadata {
        let found = store.get_as::<PlatformMetadata>(PlatformMetadata::ID);
        (*found.unwrap()).clone()
    }

    #[tokio::test]
    async fn instance_id_on_metal_is_the_machine_uuid() {
        let store = shown("quiet talos.hostname=n1 console=ttyS0\n", None).await;
        let platform = metadata(&store);
        assert_eq!((&*platform.platform, &*platform.hostname), ("metal", "n1"));
        assert_eq!(platform.instance_id, "4c4c4544-0050");
    }

    #[tokio::test]
    async fn missing_instance_id_of_a_platform_stays_empty() {
        let store = shown("corten.platform=nocloud", None).await;
        let platform = metadata(&store);
        assert_eq!(platform.platform, "nocloud");
        assert!(platform.instance_id.is_empty() && platform.hostname.is_empty());
    }

    #[tokio::test]
    async fn platform_metadata_is_shown_with_external_addresses() {
        let instance = Instance {
            metadata: Metadata {
                platform: "aws".to_owned(),
                provider_id: "aws:///us-east-1a/i-1".to_owned(),
                spot: true,
                ..Metadata::default()
            },
            network: Network {
                external: vec![
                    "203.0.113.7".parse().unwrap(),
                    "2001:db8::7".parse().unwrap(),
                ],
                ..Network::default()
            },
            ..Instance::default()
        };
        let store = shown("corten.platform=aws", Some(instance)).await;
        let platform = metadata(&store);
        assert_eq!(platform.provider_id, "aws:///us-east-1a/i-1");
        assert!(platform.spot);
        let status = store.get_as::<AddressStatus>("external/203.0.113.7/32");
        assert_eq!(status.unwrap().scope, "global");
        assert!(
            store
                .get_as::<AddressStatus>("external/2001:db8::7/128")
                .is_some()
        );
    }
}
