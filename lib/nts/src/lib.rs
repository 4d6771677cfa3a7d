//! Network Time Security (RFC 8915), the client's side: a time server proves whose answers are.
//!
//! Owns: the key exchange over TLS 1.3, its records, the extension fields of a protected packet, and the keys.
//! Never does: ask for the time, resolve names, open connections, set the clock.
//! Talks to: the stream it is given.
//! On a laptop: `cargo test -p corten-nts`.
//!
//! No kept crate fits a node: `ntp-proto` has the client behind a feature for itself alone, and takes the system's clock
//! and verifier for a server's certificate.

mod exchange;
mod fields;
mod records;
mod seal;
mod session;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;
mod trust;

pub use exchange::{ExchangeError, exchange};
pub use fields::BadFields;
pub use records::BadRecords;
pub use session::{Question, Session};
pub use trust::{Trust, TrustError};

/// Where servers exchange keys (RFC 8915, section 4).
pub const PORT: u16 = 4460;
/// A packet of NTP without extension fields.
pub const HEADER: usize = 48;
