//! Verbs about the client config.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use corten_client::endpoint::Endpoint;
use corten_client::flags::Output;
use corten_client::units::parse_duration;

/// `config`.
#[derive(Debug, Subcommand)]
pub(crate) enum Config {
    /// Add a context from PEM files
    Add(ConfigAdd),
    /// Set the current context
    #[command(visible_alias = "use-context")]
    Context {
        /// Name of the context
        name: String,
    },
    /// List the contexts
    #[command(visible_alias = "get-contexts")]
    Contexts(Output),
    /// Set the endpoints of the context; without an argument, remove them
    #[command(visible_alias = "endpoints")]
    Endpoint {
        /// Hosts, tried in order
        // The flag of this name is another argument.
        #[arg(id = "new_endpoints", value_name = "ENDPOINTS")]
        endpoints: Vec<Endpoint>,
    },
    /// Show the context and the expiry of its certificate
    Info(Output),
    /// Merge the contexts of another file; a name that exists gets a number
    Merge {
        /// The other client config
        file: PathBuf,
    },
    /// Let a control plane node make a client config
    New(ConfigNew),
    /// Set the nodes that answer calls of the context; without an argument, the endpoint answers
    #[command(visible_alias = "nodes")]
    Node {
        /// Names or addresses
        #[arg(id = "new_nodes", value_name = "NODES")]
        nodes: Vec<String>,
    },
    /// Remove a context and its key
    Remove(ConfigRemove),
}

/// `config add`.
#[derive(Debug, Args)]
pub(crate) struct ConfigAdd {
    /// The context's name
    pub(crate) name: String,
    /// The certificate of the machine CA, PEM
    #[arg(long, value_name = "FILE")]
    pub(crate) ca: PathBuf,
    /// The client's certificate, PEM
    #[arg(long, value_name = "FILE")]
    pub(crate) crt: PathBuf,
    /// The client's key, PEM
    #[arg(long, value_name = "FILE")]
    pub(crate) key: PathBuf,
    /// Overwrite an existing context; its key is lost
    #[arg(long)]
    pub(crate) force: bool,
}

/// `config new`.
#[derive(Debug, Args)]
pub(crate) struct ConfigNew {
    /// The file to write; - is standard output
    #[arg(default_value = "cortenconfig")]
    pub(crate) file: PathBuf,
    /// Roles in the certificate
    #[arg(long, value_delimiter = ',', default_value = "os:admin")]
    pub(crate) roles: Vec<String>,
    /// Lifetime of the certificate
    #[arg(long, value_name = "DURATION", default_value = "8760h", value_parser = parse_duration)]
    pub(crate) crt_ttl: Duration,
    /// Overwrite the file; its key is lost
    #[arg(long)]
    pub(crate) force: bool,
}

/// `config remove`.
#[derive(Debug, Args)]
pub(crate) struct ConfigRemove {
    /// Name of the context, or a pattern with *; the current context stays
    pub(crate) name: String,
    /// Remove without confirmation
    #[arg(short = 'y', long)]
    pub(crate) noconfirm: bool,
    /// Only print the contexts that would be removed
    #[arg(long)]
    pub(crate) dry_run: bool,
}
