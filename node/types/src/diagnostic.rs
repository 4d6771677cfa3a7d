//! Known misconfigurations that a node finds by itself.

use corten_api::talos::resource::definitions::runtime as wire;
use corten_resources::{Definition, Spec};
use serde::Serialize;

use super::{column, open};

/// A misconfiguration that the node has found; it exists as long as the fault. Its id names the fault.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Diagnostic {
    /// The fault, in one line.
    pub message: String,
    /// The values that are wrong, and what to do.
    pub details: Vec<String>,
}

impl Diagnostic {
    /// Id of the fault that the node has no address outside the subnets of pods and services.
    pub const ADDRESS_OVERLAP: &str = "address-overlap";
    /// Id of the fault that nobody approves the kubelet's request for a serving certificate.
    pub const KUBELET_CSR: &str = "kubelet-csr";
}

impl Spec for Diagnostic {
    const DEFINITION: Definition = open(
        "Diagnostics.runtime.talos.dev",
        "runtime",
        &[],
        &[column("Message", ".message")],
    );

    type Message = wire::DiagnosticSpec;

    fn message(&self) -> wire::DiagnosticSpec {
        wire::DiagnosticSpec {
            message: self.message.clone(),
            details: self.details.clone(),
        }
    }
}
