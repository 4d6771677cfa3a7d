//! Whether META is loaded; its values are [`super::runtime::MetaKey`].

use corten_api::talos::resource::definitions::runtime as wire;
use corten_resources::{Definition, Spec};
use serde::Serialize;

use super::{column, open};

/// Marks all values of META as loaded, or META as absent; id [`MetaLoaded::ID`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MetaLoaded {
    /// Always true: the resource does not exist earlier.
    pub done: bool,
}

impl MetaLoaded {
    /// Id of the only resource of this type.
    pub const ID: &str = "meta-loaded";
}

impl Spec for MetaLoaded {
    const DEFINITION: Definition = open(
        "MetaLoads.runtime.talos.dev",
        "runtime",
        &[],
        &[column("Done", ".done")],
    );

    type Message = wire::MetaLoadedSpec;

    fn message(&self) -> wire::MetaLoadedSpec {
        wire::MetaLoadedSpec { done: self.done }
    }
}
