//! Whether META was read; its values are [`super::runtime::MetaKey`].

use corten_api::talos::resource::definitions::runtime as wire;
use corten_resources::{Definition, Spec};
use serde::Serialize;

use super::{column, open};

/// The values of META are all known, or there is no META; id [`MetaLoaded::ID`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MetaLoaded {
    /// There is none before.
    pub done: bool,
}

impl MetaLoaded {
    /// There is one.
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
