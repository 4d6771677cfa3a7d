//! What a node is known by on its network before it has an address.

use corten_api::talos::resource::definitions::network as wire;
use corten_resources::{Definition, Spec};
use serde::Serialize;

use super::message::hardware;
use super::open;

/// The hardware address of a link with a device; id [`HardwareAddress::FIRST`] for the first of them by name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HardwareAddress {
    /// The link's name.
    pub name: String,
    /// Hexadecimal, with colons.
    pub hardware_addr: String,
}

impl HardwareAddress {
    /// There is this one.
    pub const FIRST: &str = "first";
}

impl Spec for HardwareAddress {
    const DEFINITION: Definition = open("HardwareAddresses.net.talos.dev", "network", &[], &[]);

    type Message = wire::HardwareAddrSpec;

    fn message(&self) -> wire::HardwareAddrSpec {
        wire::HardwareAddrSpec {
            name: self.name.clone(),
            hardware_addr: hardware(&self.hardware_addr),
        }
    }
}
