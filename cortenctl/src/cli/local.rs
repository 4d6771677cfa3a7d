//! Verbs about files on this machine: the client config, keys and certificates.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};

use super::{Output, parse_duration};
use crate::endpoint::Endpoint;

/// `config`.
#[derive(Debug, Subcommand)]
pub(crate) enum Config {
    /// Add a context out of PEM files
    Add(ConfigAdd),
    /// Choose the context that is used when none is named
    #[command(visible_alias = "use-context")]
    Context {
        /// Its name
        name: String,
    },
    /// List the contexts
    #[command(visible_alias = "get-contexts")]
    Contexts(Output),
    /// Set who takes the calls of the context; none given: nobody
    #[command(visible_alias = "endpoints")]
    Endpoint {
        /// Hosts, tried in turn
        // The flag of this name is another argument.
        #[arg(id = "new_endpoints", value_name = "ENDPOINTS")]
        endpoints: Vec<Endpoint>,
    },
    /// What the context is and until when its certificate is valid
    Info(Output),
    /// Take the contexts of another file over; a name that is taken gets a number
    Merge {
        /// The other client config
        file: PathBuf,
    },
    /// Have a control plane node make a client config
    New(ConfigNew),
    /// Set who answers the calls of the context; none given: the endpoint
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
    /// The certificate of the cluster's authority, PEM
    #[arg(long, value_name = "FILE")]
    pub(crate) ca: PathBuf,
    /// The client's certificate, PEM
    #[arg(long, value_name = "FILE")]
    pub(crate) crt: PathBuf,
    /// The client's key, PEM
    #[arg(long, value_name = "FILE")]
    pub(crate) key: PathBuf,
    /// Overwrite a context of this name: its key is lost
    #[arg(long)]
    pub(crate) force: bool,
}

/// `config new`.
#[derive(Debug, Args)]
pub(crate) struct ConfigNew {
    /// The file to write; - is standard output
    #[arg(default_value = "cortenconfig")]
    pub(crate) file: PathBuf,
    /// What its owner may do
    #[arg(long, value_delimiter = ',', default_value = "os:admin")]
    pub(crate) roles: Vec<String>,
    /// How long its certificate is valid
    #[arg(long, value_name = "DURATION", default_value = "8760h", value_parser = parse_duration)]
    pub(crate) crt_ttl: Duration,
    /// Overwrite the file: the key in it is lost
    #[arg(long)]
    pub(crate) force: bool,
}

/// `config remove`.
#[derive(Debug, Args)]
pub(crate) struct ConfigRemove {
    /// The context's name
    pub(crate) name: String,
    /// Do not ask
    #[arg(short = 'y', long)]
    pub(crate) noconfirm: bool,
    /// Only say what would be removed
    #[arg(long)]
    pub(crate) dry_run: bool,
}

/// `gen ca`.
#[derive(Debug, Args)]
pub(crate) struct GenCa {
    /// Who it is: its organization, and the name of the files
    #[arg(long, value_name = "NAME")]
    pub(crate) organization: String,
    /// Hours it is valid
    #[arg(long, default_value_t = 87_600, value_parser = hours())]
    pub(crate) hours: u64,
    /// Overwrite files: the key in them is lost
    #[arg(short, long)]
    pub(crate) force: bool,
}

/// `gen key`.
#[derive(Debug, Args)]
pub(crate) struct GenKey {
    /// The name of the file, to which .key is added
    #[arg(long)]
    pub(crate) name: String,
    /// Overwrite the file: the key in it is lost
    #[arg(short, long)]
    pub(crate) force: bool,
}

/// `gen csr`.
#[derive(Debug, Args)]
pub(crate) struct GenCsr {
    /// The key it is for, PEM
    #[arg(long, value_name = "FILE")]
    pub(crate) key: PathBuf,
    /// An address the certificate shall name; may be repeated
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) ip: Vec<IpAddr>,
    /// What its owner may do; at most two
    #[arg(long, value_delimiter = ',', default_value = "os:admin")]
    pub(crate) roles: Vec<String>,
    /// Overwrite the file
    #[arg(short, long)]
    pub(crate) force: bool,
}

/// `gen crt`.
#[derive(Debug, Args)]
pub(crate) struct GenCrt {
    /// The authority that signs: NAME.crt and NAME.key are read
    #[arg(long, value_name = "NAME")]
    pub(crate) ca: PathBuf,
    /// The request, PEM
    #[arg(long, value_name = "FILE")]
    pub(crate) csr: PathBuf,
    /// The name of the file, to which .crt is added
    #[arg(long)]
    pub(crate) name: String,
    /// Hours it is valid
    #[arg(long, default_value_t = 24, value_parser = hours())]
    pub(crate) hours: u64,
    /// Overwrite the file
    #[arg(short, long)]
    pub(crate) force: bool,
}

/// At most a thousand years: certificates end in the year 9999.
fn hours() -> clap::builder::RangedU64ValueParser {
    clap::value_parser!(u64).range(1..=8_760_000)
}
