//! Data that a cloud provides to its machines: the machine config, names and the network.
//!
//! Owns: the table of platforms ([`PLATFORMS`]), requests, parsers, the HTTP client, and the polling ([`follow()`]).
//! Never: configures the network, validates a config, mounts a volume, or quotes a document (it may be a secret).

mod client;
mod documents;
mod follow;
mod guestinfo;
mod instance;
mod json;
mod links;
mod mime;
mod network_data;
mod notes;
mod platforms;
mod ready;
mod request;
mod round;
mod route;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod text;
mod udf;
mod user_data;

pub use client::Client;
pub use documents::{Card, Documents, Given};
pub use follow::{News, Pace, follow};
pub use guestinfo::{Port, guestinfo};
pub use instance::{Instance, Metadata, Network};
pub use platforms::{PLATFORMS, find};
pub use ready::report_ready;
pub use request::{Platform, Request, Volume};
pub use round::Local;
pub use route::await_route;
pub use udf::Udf;
pub use user_data::holds_no_config;
