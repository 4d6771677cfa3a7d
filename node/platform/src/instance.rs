//! Result of querying a platform.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;

use corten_seed::{SeedIdentity, SeedNetwork};

use crate::text::is_line;

/// Everything that a platform provides to a machine.
#[derive(Clone, Default, PartialEq)]
pub struct Instance {
    /// Machine config; absent if the user data are empty, for cloud-init, or unusable.
    pub config: Option<Vec<u8>>,
    /// Reason why data that are, or may be, a machine config are unusable. Only without a config.
    pub unusable: Option<String>,
    /// Identity of the machine.
    pub metadata: Metadata,
    /// Network of the machine.
    pub network: Network,
}

impl fmt::Debug for Instance {
    /// Omits the config, which contains keys.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Instance")
            .field("config", &self.config.as_ref().map(Vec::len))
            .field("unusable", &self.unusable)
            .field("metadata", &self.metadata)
            .field("network", &self.network)
            .finish()
    }
}

/// Identity of a machine. An empty field is unknown.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Metadata {
    /// Platform name, as in `corten.platform`.
    pub platform: String,
    /// Host name.
    pub hostname: String,
    /// Region: `eu-west-1`.
    pub region: String,
    /// Zone within the region: `eu-west-1a`.
    pub zone: String,
    /// Instance type: `m5.large`.
    pub instance_type: String,
    /// Instance id on the platform.
    pub instance_id: String,
    /// Provider id for the Kubernetes cloud controller.
    pub provider_id: String,
    /// Whether the platform may reclaim the machine at any time.
    pub spot: bool,
    /// DNS name inside the platform's network.
    pub internal_dns: String,
    /// Public DNS name.
    pub external_dns: String,
    /// Tags set by the owner.
    pub tags: BTreeMap<String, String>,
}

impl Metadata {
    /// Identity of a machine from cloud-init's `meta-data`. Other values than short lines are left out.
    #[must_use]
    pub fn of_seed(identity: &SeedIdentity) -> Metadata {
        let line = |text: &str| {
            Some(text)
                .filter(|text| is_line(text))
                .unwrap_or_default()
                .to_owned()
        };
        Metadata {
            hostname: identity.name().unwrap_or_default().to_owned(),
            region: line(&identity.region),
            zone: line(&identity.zone),
            instance_type: line(&identity.instance_type),
            instance_id: line(&identity.instance_id),
            provider_id: line(&identity.provider_id),
            internal_dns: line(&identity.internal_dns),
            external_dns: line(&identity.external_dns),
            ..Metadata::default()
        }
    }
}

/// The network of a machine.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Network {
    /// Links, addresses, routes, name servers.
    pub seed: SeedNetwork,
    /// Host name, if valid.
    pub hostname: Option<String>,
    /// Time servers.
    pub time_servers: Vec<String>,
    /// External addresses that the platform translates to the machine's.
    pub external: Vec<IpAddr>,
}

#[cfg(test)]
mod tests {
    use corten_seed::identity;

    use super::*;

    #[test]
    fn seed_identifies_the_machine() {
        let file = "local-hostname: node-1\ninstance-id: i-1\ninstance-type: m1\nprovider-id: x://i-1\nregion: r\n\
                    zone: z\ninternal-dns: node-1.internal\nexternal-dns: \"a\\nb\"\npublic-keys: {x: y}\n";
        let metadata = Metadata::of_seed(&identity(file.as_bytes()).unwrap());
        let expected = Metadata {
            hostname: "node-1".to_owned(),
            region: "r".to_owned(),
            zone: "z".to_owned(),
            instance_type: "m1".to_owned(),
            instance_id: "i-1".to_owned(),
            provider_id: "x://i-1".to_owned(),
            internal_dns: "node-1.internal".to_owned(),
            ..Metadata::default()
        };
        assert_eq!(metadata, expected);
    }
}
