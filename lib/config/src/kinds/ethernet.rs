//! Device settings of links.

use std::collections::BTreeMap;

use corten_values::{LinkName, is_device_feature};
use corten_yaml::read::Reader;
use corten_yaml::tree::Node;
use corten_yaml::{choices, section};

use crate::v1alpha1::names::names_are;

section! {
    /// Settings of a link's device; `cortenctl get ethtool LINK -o yaml` shows the present ones.
    pub struct EthernetConfig [check_ethernet] {
        Acted "name" name: LinkName = "Name or alias of the link", required;
        Acted "features" features: BTreeMap<String, bool> = "Offload features, by the kernel's names";
        Acted "rings" rings: EthernetRings = "Sizes of the rings";
        Acted "channels" channels: EthernetChannels = "Numbers of queues";
        Acted "wakeOnLan" wake_on_lan: Option<Vec<WakeUp>> = "Events that wake the machine; an empty list: none; absent: unchanged", even_empty;
    }
}

fn check_ethernet(_: &EthernetConfig, node: &Node, reader: &mut Reader<'_>) {
    names_are(node, "features", is_device_feature, reader);
}

section! {
    /// Ring sizes; absent ones are unchanged.
    pub struct EthernetRings {
        Acted "rx" rx: Option<u32> = "Ring size for received packets";
        Acted "tx" tx: Option<u32> = "Ring size for packets to send";
        Acted "rx-mini" rx_mini: Option<u32> = "Ring size for small received packets";
        Acted "rx-jumbo" rx_jumbo: Option<u32> = "Ring size for large received packets";
        Acted "rx-buf-len" rx_buf_len: Option<u32> = "Size of a receive buffer in bytes";
        Acted "cqe-size" cqe_size: Option<u32> = "Size of a completion queue entry in bytes";
        Acted "tx-push" tx_push: Option<bool> = "Whether the driver pushes packets to the device (`tx-push`)";
        Acted "rx-push" rx_push: Option<bool> = "Whether the driver pushes receive descriptors to the device (`rx-push`)";
        Acted "tx-push-buf-len" tx_push_buf_len: Option<u32> = "Bytes of a packet that are pushed to the device";
        Acted "tcp-data-split" tcp_data_split: Option<bool> = "Whether TCP headers and data are separated";
    }
}

section! {
    /// Numbers of queues; absent ones are unchanged.
    pub struct EthernetChannels {
        Acted "rx" rx: Option<u32> = "Number of receive queues";
        Acted "tx" tx: Option<u32> = "Number of transmit queues";
        Acted "other" other: Option<u32> = "Number of other queues";
        Acted "combined" combined: Option<u32> = "Number of combined queues";
    }
}

choices! {
    /// Events that wake the machine.
    pub enum WakeUp {
        Phy = "phy", Unicast = "unicast", Multicast = "multicast", Broadcast = "broadcast", Arp = "arp",
        Magic = "magic", MagicSecure = "magicsecure", Filter = "filter",
    }
}
