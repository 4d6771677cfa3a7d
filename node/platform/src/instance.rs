//! What a platform says, as the node uses it.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;

use corten_config::platform::SeedNetwork;

/// All that a platform says of a machine.
#[derive(Clone, Default, PartialEq)]
pub struct Instance {
    /// The machine config; absent: the user data are empty, or for another system.
    pub config: Option<Vec<u8>>,
    /// Who the machine is.
    pub metadata: Metadata,
    /// The network it needs.
    pub network: Network,
}

impl fmt::Debug for Instance {
    /// Without the config, which holds keys.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Instance")
            .field("config", &self.config.as_ref().map(Vec::len))
            .field("metadata", &self.metadata)
            .field("network", &self.network)
            .finish()
    }
}

/// Who a machine is. What is empty was not said.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Metadata {
    /// As in `corten.platform`.
    pub platform: String,
    /// The machine's name.
    pub hostname: String,
    /// Where it is: `eu-west-1`.
    pub region: String,
    /// Where in that: `eu-west-1a`.
    pub zone: String,
    /// How large it is: `m5.large`.
    pub instance_type: String,
    /// Its number there.
    pub instance_id: String,
    /// By which Kubernetes' cloud controller knows it.
    pub provider_id: String,
    /// Whether the platform may take it away at any time.
    pub spot: bool,
    /// Its name inside the platform's network.
    pub internal_dns: String,
    /// Its name outside.
    pub external_dns: String,
    /// What its owner says of it.
    pub tags: BTreeMap<String, String>,
}

/// The network of a machine.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Network {
    /// Links, addresses, routes, name servers.
    pub seed: SeedNetwork,
    /// The machine's name, if it is one.
    pub hostname: Option<String>,
    /// Who tells the time.
    pub time_servers: Vec<String>,
    /// Addresses that the platform translates to the machine's.
    pub external: Vec<IpAddr>,
}
