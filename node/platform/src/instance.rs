//! Result of querying a platform.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;

use corten_config::platform::SeedNetwork;

/// Everything that a platform provides to a machine.
#[derive(Clone, Default, PartialEq)]
pub struct Instance {
    /// Machine config; absent if the user data are empty or for another system.
    pub config: Option<Vec<u8>>,
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
