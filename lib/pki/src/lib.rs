//! Certificates of the node API: the identity of nodes, and the rights of their callers.
//!
//! Owns: making CAs, certificates and requests; checking and signing requests; reading roles; verifying chains.
//! Never: reads files, opens sockets or reads the clock; the time is an argument.

mod ca;
mod encodings;
mod inspect;
mod keys;
mod name;
mod request;
#[cfg(test)]
mod rsa_tests;
mod server_request;
#[cfg(test)]
mod server_request_tests;
#[cfg(test)]
mod tests;
mod verify;

use std::time::Duration;

pub use ca::{Algorithm, Ca, Leaf, Usage, maintenance};
pub use inspect::{
    common_name, fingerprint, has_exactly_client_auth, is_control_planes, is_for, names,
    organizations, serial, validity,
};
pub use keys::{
    CertificateAndKey, certificate_from_der, certificates_from_pem, check_key,
    private_key_from_pem, to_pem,
};
pub use request::{new_key, request};
pub use server_request::{MAX_NAMES, ServerRequest, server_request};
pub use verify::{verify_client, verify_issued};

/// Interval between `notBefore` and the creation of a certificate. A node boots with a clock that is minutes off until
/// it is synchronised, and an operator's laptop may be as wrong. A peer with a slow clock accepts the certificate.
pub const CLOCK_SKEW: Duration = Duration::from_secs(60 * 60);

/// Lifetime of a CA: ten years (87 600 h).
pub const CA_LIFETIME: Duration = Duration::from_secs(87_600 * 60 * 60);

/// Lifetime of a node's own certificates: a day; they are renewed at half of it.
pub const NODE_LIFETIME: Duration = Duration::from_secs(24 * 60 * 60);

/// Lifetime of the operator's certificate in a generated client config: a year (8 760 h).
pub const OPERATOR_LIFETIME: Duration = Duration::from_secs(8_760 * 60 * 60);

/// The DNS name in a maintenance certificate.
pub const MAINTENANCE_NAME: &str = "maintenance-service.talos.dev";

/// An error of this crate. No message contains key material.
#[derive(Debug, thiserror::Error)]
pub enum PkiError {
    /// The text is not PEM, or lacks the wanted block.
    #[error("no {0} in the PEM text")]
    Missing(&'static str),
    /// The bytes are not a certificate.
    #[error("not a certificate")]
    NotACertificate,
    /// The certificate may not sign others.
    #[error("the certificate is not a CA certificate")]
    NotACa,
    /// The private key is damaged or of an unsupported type.
    #[error(
        "the private key is damaged, or neither Ed25519, ECDSA on P-256 or P-384, nor RSA of 2048 to 4096 bits: copy it \
         again, or use such a key"
    )]
    NotAKey,
    /// The RSA key is too short or too long; with its size in bits.
    #[error("the RSA key has {0} bits: use one of 2048 to 4096 bits")]
    RsaSize(usize),
    /// The private key needs a passphrase, which nobody enters on a node.
    #[error(
        "the private key is encrypted: decrypt it, as with `openssl pkey -in KEY -out DECRYPTED`"
    )]
    Encrypted,
    /// The private key belongs to another certificate.
    #[error("the private key does not belong to the certificate")]
    KeyMismatch,
    /// A subject alternative name that is neither an address nor a DNS name.
    #[error("{0:?} is neither an IP address nor a DNS name")]
    BadName(String),
    /// The time cannot be represented in a certificate.
    #[error("the time does not fit into a certificate")]
    BadTime,
    /// The request must not be signed; the text states the reason.
    #[error("the certificate request {0}")]
    BadRequest(&'static str),
    /// The system's random source failed.
    #[error("the system provides no random numbers")]
    NoRandom,
    /// The subject cannot hold more roles.
    #[error("at most {0} roles fit into one certificate")]
    TooManyRoles(usize),
    /// The signing library failed.
    #[error("the certificate cannot be created")]
    Signing(#[source] rcgen::Error),
    /// The chain was rejected; the text states the reason.
    #[error("the certificate is not acceptable: {0}")]
    Rejected(String),
}
