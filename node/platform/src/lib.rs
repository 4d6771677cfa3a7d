//! What a cloud says of a machine that runs in it: the machine config, names, and the network it needs.
//!
//! Owns: the table of platforms ([`PLATFORMS`]), the requests that each needs and how its documents are read, the
//! decoding of user data, the HTTP client for metadata services, and asking until there is an answer ([`follow()`]).
//! Never does: configure the network, judge a machine config, or mount a volume; [`Local`] does what needs the machine.
//! Talks to: the metadata services of the table, and nobody else.
//! On a laptop: `cargo test -p corten-platform`.
//!
//! A platform is one file in `platforms/` and one line in [`PLATFORMS`]: a table of requests, and a function from
//! the documents to an [`Instance`]. That function is pure. It leaves out a field that is wrong, and names it.
//!
//! A metadata service is foreign: a document has at most 1 MiB, a request 10 s, a redirect stays on its host. A
//! document is never part of a message, because it may be a credential.

mod client;
mod documents;
mod follow;
mod guestinfo;
mod instance;
mod json;
mod links;
mod mime;
mod network_data;
mod platforms;
mod ready;
mod request;
mod round;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
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
