//! Flags that several verbs share.

use std::path::PathBuf;

use clap::Args;

use crate::clientconfig::ForwardThrough;
use crate::endpoint::Endpoint;
use crate::format::Format;

/// Flags of every verb.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Cluster and nodes")]
pub struct Global {
    /// Endpoints: nodes that receive the call, tried in order [port: 50000]
    #[arg(
        short,
        long,
        global = true,
        value_delimiter = ',',
        value_name = "HOST[:PORT]"
    )]
    pub endpoints: Vec<Endpoint>,
    /// Nodes that answer the call; the endpoint forwards it to them
    #[arg(short, long, global = true, value_delimiter = ',', value_name = "HOST")]
    pub nodes: Vec<String>,
    /// The client config file
    #[arg(
        long,
        visible_alias = "talosconfig",
        global = true,
        value_name = "FILE"
    )]
    pub cortenconfig: Option<PathBuf>,
    /// The context of the client config
    #[arg(long, global = true, value_name = "NAME")]
    pub context: Option<String>,
    /// Endpoints that may forward the call to other nodes [default: the context's, or control-plane]
    #[arg(long, global = true, value_name = "WHICH", value_enum)]
    pub forward_through: Option<ForwardThrough>,
    /// Call a node without a config, or a locked node; verify no certificate
    #[arg(long, global = true)]
    pub insecure: bool,
    /// With --insecure: accept only the certificate with this fingerprint (the node's console shows it)
    #[arg(long, global = true, value_name = "BASE64")]
    pub cert_fingerprint: Vec<String>,
}

/// The output format.
#[derive(Debug, Default, Args)]
pub struct Output {
    /// Output format: table, yaml, json or jsonpath=EXPRESSION
    #[arg(short, long, value_name = "FORM", default_value = "table")]
    pub output: Format,
}

/// The short form of `--insecure`, for verbs that a node without a config answers.
/// For other verbs the letter has another meaning.
#[derive(Debug, Args)]
pub struct Short {
    /// The same as --insecure
    #[arg(short = 'i', hide = true, id = "short_insecure")]
    pub insecure: bool,
}
