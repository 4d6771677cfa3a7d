//! Hardware addresses, which identify a node on its network before it has an IP address.

use corten_api::talos::resource::definitions::network as wire;
use corten_resources::{Definition, Spec};
use serde::Serialize;

use super::message::hardware;
use super::open;

/// Hardware address of a link with a device. Id [`HardwareAddress::FIRST`] is the first such link by name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HardwareAddress {
    /// Name of the link.
    pub name: String,
    /// Address, hexadecimal with colons.
    pub hardware_addr: String,
}

impl HardwareAddress {
    /// Id of the only resource of this type.
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
