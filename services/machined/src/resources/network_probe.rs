//! Connections whose success says that the network works.

use corten_resources::{Definition, Spec};
use serde::Serialize;

use super::network_spec::Layer;
use super::{column, open};

const NAMESPACE: &str = "network";

/// A probe there shall be; its id is `tcp:` and the endpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ProbeSpec {
    /// How often it is tried.
    #[serde(serialize_with = "duration")]
    pub interval: std::time::Duration,
    /// So many failures in a row are one.
    pub failure_threshold: u32,
    /// What is tried.
    pub tcp: TcpProbe,
    /// Who said so.
    pub layer: Layer,
}

/// A connection to a port.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TcpProbe {
    /// `host:port`.
    pub endpoint: String,
    /// How long it may take.
    #[serde(serialize_with = "duration")]
    pub timeout: std::time::Duration,
}

fn duration<S: serde::Serializer>(
    value: &std::time::Duration,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&format!("{value:?}"))
}

impl Spec for ProbeSpec {
    const DEFINITION: Definition = open("ProbeSpecs.net.talos.dev", NAMESPACE, &[], &[]);
}

/// What came of a [`ProbeSpec`]; same id.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ProbeStatus {
    /// Whether the network works, as far as this probe goes.
    pub success: bool,
    /// Why not; empty after a success.
    pub last_error: String,
}

impl Spec for ProbeStatus {
    const DEFINITION: Definition = open(
        "ProbeStatuses.net.talos.dev",
        NAMESPACE,
        &["probe", "probes"],
        &[column("Success", ".success")],
    );
}
