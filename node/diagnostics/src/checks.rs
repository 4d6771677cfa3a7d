//! The checks: from what the node knows to a fault, or none.

use std::fmt::Display;

use corten_kubernetes::Settings;
use corten_types::diagnostic::Diagnostic;
use corten_types::network::NodeAddress;

/// Limit of named requests.
const NAMED: usize = 8;

/// The fault of a node that has addresses, and none outside the subnets of pods and services.
pub(crate) fn address_overlap(
    all: &NodeAddress,
    outside: &NodeAddress,
    settings: &Settings,
) -> Option<Diagnostic> {
    let overlaps = !all.addresses.is_empty() && outside.addresses.is_empty();
    overlaps.then(|| Diagnostic {
        message: "the node has no address outside the subnets of pods and services".to_owned(),
        details: vec![
            format!("addresses of the node: {}", list(&all.addresses)),
            format!("podSubnets: {}", list(&settings.pods)),
            format!("serviceSubnets: {}", list(&settings.services)),
            "give the node another address, or the cluster other subnets".to_owned(),
        ],
    })
}

/// The fault of a kubelet without a serving certificate whose requests for one nobody has approved.
pub(crate) fn kubelet_csr(requests: &[String]) -> Option<Diagnostic> {
    let more = match requests.len().checked_sub(NAMED) {
        Some(more @ 1..) => format!(" and {more} more"),
        _ => String::new(),
    };
    let named = requests.get(..NAMED).unwrap_or(requests);
    (!requests.is_empty()).then(|| Diagnostic {
        message: "the kubelet has no serving certificate: nobody approves its request".to_owned(),
        details: vec![
            format!("unapproved requests: {}{more}", list(named)),
            "run an approver for the signer kubernetes.io/kubelet-serving, approve a request with `kubectl certificate \
             approve`, or turn serverTLSBootstrap off"
                .to_owned(),
        ],
    })
}

fn list<T: Display>(items: &[T]) -> String {
    let items: Vec<String> = items.iter().map(ToString::to_string).collect();
    items.join(", ")
}
