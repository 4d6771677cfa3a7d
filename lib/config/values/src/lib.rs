//! Types of the values in the machine config, one per format.
//!
//! Owns: their parsers: names, addresses, sizes, URLs, paths, certificates, keys, secrets; expressions and their facts.
//! Never: reads files, uses the network, or shows a [`Secret`] in a message.

mod arguments;
mod credential;
mod expression;
mod extension;
mod facts;
mod kubernetes;
mod names;
mod network;
mod object;
mod pci;
mod places;
mod quantity;
mod secret;
mod text;
mod wireguard;

pub use arguments::{Arguments, check_protected};
pub use credential::{
    AcceptedCa, Base64Certificate, Base64Key, KeyPair, PemCertificates, PemKey, PemKeyPair,
    PemPublicKey,
};
pub use expression::{Expression, on_reader};
pub use extension::{ExtensionImage, ExtensionSource};
pub use facts::{DiskFacts, LinkFacts, Subject, VolumeFacts};
pub use kubernetes::{
    ObjectName, is_label_value, is_qualified_name, is_subdomain, is_taint, quantity,
};
pub use names::{
    Assignment, DriverName, HostName, HostOrAddress, LinkAlias, LinkName, LinkPattern, ModuleName,
    ModuleParameter, VolumeName, is_device_feature, is_file_name, is_host_name, is_kernel_setting,
    is_link_name, is_variable, vlan_name,
};
pub use network::{Cidr, Endpoint, Mac, Ports, SubnetMatch};
pub use object::Object;
pub use pci::PciAddress;
pub use places::{AbsolutePath, ClockDevice, HttpsUrl, TimeSource, Url, check_receiver, is_clock};
pub use quantity::{Comparison, FileMode, MatchSize, MaxSize, Size};
pub use secret::Secret;
pub use wireguard::{WireguardKey, WireguardSecret};
