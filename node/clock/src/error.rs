//! Errors of queries, and the timeouts that their texts name.

use std::io;
use std::time::Duration;

use corten_base::bulkhead::Refused;
use corten_nts::{BadFields, ExchangeError, TrustError};
use corten_pki::PkiError;

use super::sntp::BadAnswer;

/// Timeout of a name resolution, and of an answer.
pub const PATIENCE: Duration = Duration::from_secs(5);
/// Timeout of the connection, and then of the key exchange.
pub(super) const EXCHANGE: Duration = Duration::from_secs(10);

/// Failure of a query.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// The server's name cannot be resolved.
    #[error("its name cannot be resolved: {0}")]
    Name(io::Error),
    /// The name resolution got no thread, or did not end in time.
    #[error("its name cannot be resolved: {0}")]
    Unresolved(Refused),
    /// Error of the network or the device.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// All addresses of the server asked for a pause.
    #[error("the server asked for a pause in queries")]
    Rests,
    /// The file is not a clock device.
    #[error("is not a clock device, such as /dev/ptp0")]
    NoClock,
    /// No answer arrived in time.
    #[error("no answer within {} s", PATIENCE.as_secs())]
    Silent,
    /// The answer is useless.
    #[error(transparent)]
    Bad(#[from] BadAnswer),
    /// The answer has no valid proof of its origin.
    #[error(transparent)]
    Proof(#[from] ProofError),
}

/// Failure of an authenticated query.
#[derive(Debug, thiserror::Error)]
pub enum ProofError {
    /// No connection to the server.
    #[error("cannot connect to its NTS port {port}: {0}", port = corten_nts::PORT)]
    Connection(io::Error),
    /// The key exchange timed out.
    #[error("no NTS keys within {} s", EXCHANGE.as_secs())]
    Silent,
    /// The key exchange failed.
    #[error("no NTS keys: {0}")]
    Exchange(#[from] ExchangeError),
    /// The CA certificates cannot be read.
    #[error("its certificate cannot be verified: {0}")]
    Cas(String),
    /// The query cannot be built.
    #[error("the request cannot be built")]
    Question,
    /// The server refused the packet.
    #[error(transparent)]
    Packet(BadFields),
    /// The server's certificate is not valid at the server's own time.
    #[error("refused: its certificate is not valid at its own time")]
    Validity,
}

impl From<TrustError> for ProofError {
    fn from(error: TrustError) -> ProofError {
        ProofError::Cas(error.to_string())
    }
}

impl From<PkiError> for ProofError {
    fn from(error: PkiError) -> ProofError {
        ProofError::Cas(error.to_string())
    }
}
