//! The way from the operator's machine to nodes, and from their answers to the terminal.
//!
//! Owns: the client config file, connections, calls to one node or many, patches of configs, and the forms of output.
//! Never: knows a verb, writes on a terminal what could control it, or prints a secret in an error.

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
pub mod interrupts;
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
