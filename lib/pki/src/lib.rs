//! Certificates of the node API: who a node is, and who may call it.
//!
//! Owns: making a certificate authority, server, client and maintenance
//! certificates; making, checking and signing requests for server certificates;
//! reading roles and fingerprints out of certificates; checking chains.
//! Never does: files, sockets, clocks. The time is an argument.
//! Talks to: nobody. Keys are made by ring; RSA is not supported.
//! On a laptop: `cargo test -p corten-pki`.
//!
//! API keys are Ed25519. Kubernetes' and etcd's authorities are ECDSA P-256,
//! because their clients do not all speak Ed25519. Certificates are valid from
//! [`CLOCK_SKEW`] before the moment they are made, so that a peer whose clock
//! is behind accepts them.

mod ca;
mod inspect;
mod keys;
mod name;
mod request;
mod server_request;
#[cfg(test)]
mod server_request_tests;
#[cfg(test)]
mod tests;
mod verify;

use std::time::Duration;

pub use ca::{Algorithm, Ca, Leaf, Usage, maintenance};
pub use inspect::{
    fingerprint, has_exactly_client_auth, is_control_planes, is_for, names, organizations, serial,
    validity,
};
pub use keys::{
    CertificateAndKey, certificate_from_der, certificates_from_pem, private_key_from_pem, to_pem,
};
pub use request::{new_key, request};
pub use server_request::{MAX_NAMES, ServerRequest, server_request};
pub use verify::{verify_client, verify_issued};

/// How far `notBefore` lies before the moment a certificate is made. Nodes
/// boot with clocks that are minutes off before the time is synchronised, and
/// an operator's laptop may be as wrong.
pub const CLOCK_SKEW: Duration = Duration::from_secs(60 * 60);

/// Lifetime of an authority: ten years (87 600 h).
pub const CA_LIFETIME: Duration = Duration::from_secs(87_600 * 60 * 60);

/// Lifetime of a node's own certificates: a day, renewed at half of it.
pub const NODE_LIFETIME: Duration = Duration::from_secs(24 * 60 * 60);

/// Lifetime of the operator's certificate in a generated client config: a year
/// (8 760 h).
pub const OPERATOR_LIFETIME: Duration = Duration::from_secs(8_760 * 60 * 60);

/// The name in a maintenance certificate.
pub const MAINTENANCE_NAME: &str = "maintenance-service.talos.dev";

/// What can go wrong. No message contains key material.
#[derive(Debug, thiserror::Error)]
pub enum PkiError {
    /// The text is not PEM, or lacks what was looked for.
    #[error("no {0} in the PEM text")]
    Missing(&'static str),
    /// A certificate that cannot be parsed.
    #[error("not a certificate")]
    NotACertificate,
    /// A certificate that may sign no others.
    #[error("the certificate is not that of an authority")]
    NotAnAuthority,
    /// A private key that cannot be used: wrong type, or damaged.
    #[error("not a usable private key (Ed25519 or ECDSA P-256 in PKCS#8)")]
    NotAKey,
    /// The private key belongs to another certificate.
    #[error("the private key does not belong to the certificate")]
    KeyMismatch,
    /// A subject alternative name that is neither an address nor a DNS name.
    #[error("{0:?} is neither an IP address nor a DNS name")]
    BadName(String),
    /// A time outside of what certificates can say.
    #[error("the time does not fit into a certificate")]
    BadTime,
    /// A request that must not be signed; the text says why.
    #[error("the certificate request {0}")]
    BadRequest(&'static str),
    /// The system's random source failed.
    #[error("no random numbers")]
    NoRandom,
    /// More roles than a subject can hold here.
    #[error("at most {0} roles fit into one certificate")]
    TooManyRoles(usize),
    /// The signing library refused.
    #[error("making the certificate failed")]
    Signing(#[source] rcgen::Error),
    /// A chain that does not verify; the text says why.
    #[error("the certificate is not acceptable: {0}")]
    Rejected(String),
}
