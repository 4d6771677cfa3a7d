//! Link aliases from the config.

use corten_api::talos::resource::definitions::network::LinkAliasSpecSpec;
use corten_resources::{Definition, Spec};
use serde::Serialize;

use super::{column, open};

/// A desired link alias; its id is the link's name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LinkAliasSpec {
    /// Alias from the config.
    pub alias: String,
}

impl Spec for LinkAliasSpec {
    const DEFINITION: Definition = open(
        "LinkAliasSpecs.net.talos.dev",
        "network",
        &[],
        &[column("Alias", ".alias")],
    );

    type Message = LinkAliasSpecSpec;

    fn message(&self) -> LinkAliasSpecSpec {
        let alias = self.alias.clone();
        LinkAliasSpecSpec { alias }
    }
}
