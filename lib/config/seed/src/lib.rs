//! What a platform says of a machine: its network and its name.
//!
//! Owns: reading and checking cloud-init's `network-config` and `meta-data` of a NoCloud seed ([`network`],
//! [`identity`]), and the network in META 0x0a ([`PlatformNetwork`]).
//! Never does: files, network. The caller resolves links, because it knows those of the machine.
//! Talks to: nothing. Platforms, the layers of the network and the start of a node without a config use it.
//! On a laptop: `cargo test -p corten-seed`.
//!
//! Both are parsed like a config: all problems are reported at once with their places. Unsupported settings of META are
//! refused. Those of `network-config`, which is written for other systems too, are left out and reported
//! ([`SeedNetwork::left_out`]).

mod bond;
mod bridge;
mod cloud;
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
