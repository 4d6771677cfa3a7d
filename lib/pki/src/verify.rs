//! Checking who calls.

use std::time::{SystemTime, UNIX_EPOCH};

use rustls_pki_types::{CertificateDer, UnixTime};
use webpki::{ALL_VERIFICATION_ALGS, EndEntityCert, KeyUsage, anchor_from_trusted_cert};

use crate::{PkiError, has_exactly_client_auth, organizations};

/// Verifies a client's certificate against the accepted authorities at `now`
/// and returns its organizations: the names of its roles.
///
/// `chain` is what the client sent, leaf first. The leaf's extended key usage
/// must be exactly `clientAuth`.
///
/// # Errors
/// [`PkiError::Rejected`] says why a chain was refused.
pub fn verify_client(
    chain: &[CertificateDer<'_>],
    authorities: &[CertificateDer<'_>],
    now: SystemTime,
) -> Result<Vec<String>, PkiError> {
    let (leaf, intermediates) = chain
        .split_first()
        .ok_or_else(|| PkiError::Rejected("none was presented".into()))?;
    let anchors = authorities
        .iter()
        .map(anchor_from_trusted_cert)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|_| PkiError::NotACertificate)?;
    let time = now
        .duration_since(UNIX_EPOCH)
        .map_err(|_| PkiError::BadTime)?;
    let end = EndEntityCert::try_from(leaf).map_err(|_| PkiError::NotACertificate)?;
    end.verify_for_usage(
        ALL_VERIFICATION_ALGS,
        &anchors,
        intermediates,
        UnixTime::since_unix_epoch(time),
        KeyUsage::client_auth(),
        None,
        None,
    )
    .map_err(|error| PkiError::Rejected(error.to_string()))?;
    if !has_exactly_client_auth(leaf)? {
        return Err(PkiError::Rejected(
            "its extended key usage is not exactly clientAuth".into(),
        ));
    }
    organizations(leaf)
}
