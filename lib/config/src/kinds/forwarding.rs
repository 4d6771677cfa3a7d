//! Calls forwarded by other nodes.

use crate::read::{choices, section};

section! {
    /// Calls that another node's API hands on to this node.
    pub struct ForwardingConfig {
        Acted "secrets" secrets: Forwarding = "Calls whose answers hold keys or secrets, and calls that make credentials";
        Acted "referenceNodes" reference_nodes: Forwarding = "Calls that a control plane node of the reference hands on, which does not prove its caller's roles";
    }
}

choices! {
    /// Whether the node answers such calls.
    pub enum Forwarding { Refuse = "refuse", Accept = "accept", }
}
