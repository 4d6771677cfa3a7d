//! Verification of clients and of issued certificates.

use std::time::{SystemTime, UNIX_EPOCH};

use rustls_pki_types::{CertificateDer, UnixTime};
use webpki::{ALL_VERIFICATION_ALGS, EndEntityCert, KeyUsage, anchor_from_trusted_cert};

use crate::inspect::public_key;
use crate::keys::{CertificateAndKey, certificates_from_pem, key_pair_from_pem};
use crate::{PkiError, has_exactly_client_auth, organizations};

/// Verifies a client's certificate against the accepted CAs at `now` and returns its organizations, the names of its
/// roles.
///
/// `chain` is the client's chain, leaf first. The leaf's extended key usage must be exactly `clientAuth`.
///
/// # Errors
/// [`PkiError::Rejected`] with the reason of the refusal.
pub fn verify_client(
    chain: &[CertificateDer<'_>],
    cas: &[CertificateDer<'_>],
    now: SystemTime,
) -> Result<Vec<String>, PkiError> {
    let leaf = verify(chain, cas, now, KeyUsage::client_auth())?;
    if !has_exactly_client_auth(leaf)? {
        return Err(PkiError::Rejected(
            "its extended key usage is not exactly clientAuth".into(),
        ));
    }
    organizations(leaf)
}

/// Verifies that `issued` (PEM, leaf first) is a server certificate of an accepted CA, valid at `now`, and belongs to
/// `key`.
///
/// # Errors
/// [`PkiError::Rejected`] with the reason of the refusal, [`PkiError::KeyMismatch`] for another key.
pub fn verify_issued(
    issued: &CertificateAndKey,
    cas: &[CertificateDer<'_>],
    now: SystemTime,
) -> Result<(), PkiError> {
    let chain = certificates_from_pem(issued.crt.as_bytes())?;
    let leaf = verify(&chain, cas, now, KeyUsage::server_auth())?;
    let key = key_pair_from_pem(issued.key.as_bytes())?;
    if public_key(leaf)? != key.public_key_raw() {
        return Err(PkiError::KeyMismatch);
    }
    Ok(())
}

fn verify<'a>(
    chain: &'a [CertificateDer<'a>],
    cas: &[CertificateDer<'_>],
    now: SystemTime,
    usage: KeyUsage,
) -> Result<&'a CertificateDer<'a>, PkiError> {
    let (leaf, intermediates) = chain
        .split_first()
        .ok_or_else(|| PkiError::Rejected("none was presented".into()))?;
    let anchors = cas
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
        usage,
        None,
        None,
    )
    .map_err(|error| PkiError::Rejected(error.to_string()))?;
    Ok(leaf)
}
