//! The network and the name that a platform gives a machine: `network-config` and `meta-data` of cloud-init, META 0x0a.
//!
//! Owns: their parsers ([`network`], [`identity`], [`PlatformNetwork`]), which report all problems; [`SeedNetwork`] as JSON.
//! Never: reads files or uses the network. The caller resolves links, because it knows those of the machine.

mod bond;
mod bridge;
mod cloud;
mod forms;
mod limits;
mod meta;
mod meta_link;
mod model;
#[cfg(test)]
mod tests;
mod v1;
mod v2;
mod values;

pub use cloud::{SeedIdentity, identity, network};
pub use limits::LARGEST;
pub use meta::*;
pub use meta_link::*;
pub use model::{SeedDhcp, SeedLink, SeedMatch, SeedNetwork, SeedRoute, SeedRule, SeedShape};
