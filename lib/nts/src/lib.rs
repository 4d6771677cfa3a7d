//! Network Time Security (RFC 8915), the client's side: it authenticates the responses of a time server.
//!
//! Owns: the key exchange over TLS 1.3, its records, the extension fields of a protected packet, and the keys.
//! Never: queries the time, resolves names, opens connections, or sets the clock.

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

/// Default port of the key exchange (RFC 8915, section 4).
pub const PORT: u16 = 4460;
/// Length of an NTP packet without extension fields.
pub const HEADER: usize = 48;
