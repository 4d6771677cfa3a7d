//! Device settings of links.

use std::collections::BTreeMap;

use crate::read::{Reader, choices, section};
use crate::tree::Node;
use crate::v1alpha1::names_are;
use crate::values::{LinkName, is_device_feature};

section! {
    /// Settings of a link's device; `cortenctl get ethtool LINK -o yaml` shows what it has.
    pub struct EthernetConfig [check_ethernet] {
        Acted "name" name: LinkName = "The link's name or alias", required;
        Acted "features" features: BTreeMap<String, bool> = "Offload features, by the kernel's names";
        Acted "rings" rings: EthernetRings = "Packets that wait";
        Acted "channels" channels: EthernetChannels = "Queues";
        Acted "wakeOnLan" wake_on_lan: Option<Vec<WakeUp>> = "The events that wake the machine; an empty list: none; absent: unchanged", even_empty;
    }
}

fn check_ethernet(_: &EthernetConfig, node: &Node, reader: &mut Reader<'_>) {
    names_are(node, "features", is_device_feature, reader);
}

section! {
    /// Ring sizes; absent ones are unchanged.
    pub struct EthernetRings {
        Acted "rx" rx: Option<u32> = "Packets received";
        Acted "tx" tx: Option<u32> = "Packets to send";
        Acted "rx-mini" rx_mini: Option<u32> = "Small packets received";
        Acted "rx-jumbo" rx_jumbo: Option<u32> = "Large packets received";
        Acted "rx-buf-len" rx_buf_len: Option<u32> = "Bytes of a buffer for packets received";
        Acted "cqe-size" cqe_size: Option<u32> = "Bytes of a note that a packet is done";
        Acted "tx-push" tx_push: Option<bool> = "Whether the device is handed what is to be sent";
        Acted "rx-push" rx_push: Option<bool> = "Whether the device is handed where to put what it receives";
        Acted "tx-push-buf-len" tx_push_buf_len: Option<u32> = "Bytes of a packet that are handed to the device";
        Acted "tcp-data-split" tcp_data_split: Option<bool> = "Separation of TCP headers and data";
    }
}

section! {
    /// Numbers of queues; absent ones are unchanged.
    pub struct EthernetChannels {
        Acted "rx" rx: Option<u32> = "Queues that receive";
        Acted "tx" tx: Option<u32> = "Queues that send";
        Acted "other" other: Option<u32> = "Queues for something else";
        Acted "combined" combined: Option<u32> = "Queues that do both";
    }
}

choices! {
    /// Events that wake the machine.
    pub enum WakeUp {
        Phy = "phy", Unicast = "unicast", Multicast = "multicast", Broadcast = "broadcast", Arp = "arp",
        Magic = "magic", MagicSecure = "magicsecure", Filter = "filter",
    }
}
