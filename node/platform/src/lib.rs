//! Data that a cloud provides to its machines: the machine config, names and the network.
//!
//! Owns: the table of platforms ([`PLATFORMS`]), their requests and parsers, the decoding of user data, the HTTP client
//! for metadata services, and the polling ([`follow()`]).
//! Never does: configure the network, validate a machine config, or mount a volume; [`Local`] provides access to the
//! machine.
//! Talks to: the metadata services of the table only.
//! On a laptop: `cargo test -p corten-platform`.
//!
//! A platform is one file in `platforms/` and one line in [`PLATFORMS`]: a table of requests, and a pure function from
//! the documents to an [`Instance`]. The function leaves out invalid fields and reports them by name.
//!
//! Metadata services are untrusted: a document has at most 1 MiB, a request takes at most 10 s, and a redirect stays on
//! its host. Messages never quote a document, because it may be a credential.

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
