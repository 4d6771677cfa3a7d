//! Calls forwarded by other nodes.

use corten_yaml::{choices, section};

section! {
    /// Handling of calls that another node's API forwards to this node.
    pub struct ForwardingConfig {
        Acted "secrets" secrets: Forwarding = "Calls that return keys or secrets, and calls that create credentials";
        Acted "referenceNodes" reference_nodes: Forwarding = "Calls forwarded by a control plane node of the reference, which does not prove its caller's roles";
    }
}

choices! {
    /// Whether the node answers such calls.
    pub enum Forwarding { Refuse = "refuse", Accept = "accept", }
}
