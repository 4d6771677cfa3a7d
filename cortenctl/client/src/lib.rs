//! The way from the operator's machine to nodes, and from their answers to the terminal.
//!
//! Owns: the client config file, connections to endpoints, calls to one node or many, the reading and patching of
//! machine configs, and the forms in which answers are printed.
//! Never does: know a verb, write on a terminal what could control it, or print a secret in an error.
//! Talks to: apid on port 50000 of one or more nodes, over mutual TLS.
//! On a laptop: `cargo test -p corten-client`.

pub mod answers;
pub mod clientconfig;
pub mod clients;
pub mod configfile;
pub mod connect;
pub mod endpoint;
pub mod failure;
pub mod files;
pub mod flags;
pub mod format;
pub mod kubeconfig;
pub mod messages;
pub mod output;
pub mod path;
pub mod progress;
pub mod resources;
pub mod status;
pub mod stream;
pub mod table;
pub mod tls;
pub mod units;
pub mod yaml;
