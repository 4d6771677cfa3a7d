//! What the config calls links.

use corten_api::talos::resource::definitions::network::LinkAliasSpecSpec;
use corten_resources::{Definition, Spec};
use prost::Message as _;
use serde::Serialize;

use super::{column, open};

/// An alias there shall be; its id is the link's name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LinkAliasSpec {
    /// What the config calls the link.
    pub alias: String,
}

impl Spec for LinkAliasSpec {
    const DEFINITION: Definition = open(
        "LinkAliasSpecs.net.talos.dev",
        "network",
        &[],
        &[column("Alias", ".alias")],
    );

    fn to_proto(&self) -> Option<Vec<u8>> {
        let alias = self.alias.clone();
        Some(LinkAliasSpecSpec { alias }.encode_to_vec())
    }
}
