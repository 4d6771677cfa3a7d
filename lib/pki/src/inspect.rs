//! Inspection of certificates.

use std::net::IpAddr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustls_pki_types::{CertificateDer, ServerName};
use webpki::EndEntityCert;
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::FromDer as _;

use crate::PkiError;
use crate::name::MARK;

fn parse(der: &[u8]) -> Result<X509Certificate<'_>, PkiError> {
    match X509Certificate::from_der(der) {
        Ok(([], certificate)) => Ok(certificate),
        _ => Err(PkiError::NotACertificate),
    }
}

/// The organizations of a certificate's subject, which are role names.
///
/// # Errors
/// [`PkiError::NotACertificate`] for other bytes.
pub fn organizations(der: &[u8]) -> Result<Vec<String>, PkiError> {
    let certificate = parse(der)?;
    let names = certificate.subject().iter_organization();
    Ok(names
        .filter_map(|name| name.as_str().ok())
        .map(str::to_owned)
        .collect())
}

/// The common name of a certificate's subject; empty if it has none.
///
/// # Errors
/// [`PkiError::NotACertificate`] for other bytes.
pub fn common_name(der: &[u8]) -> Result<String, PkiError> {
    let certificate = parse(der)?;
    let mut names = certificate.subject().iter_common_name();
    let name = names.next().and_then(|name| name.as_str().ok());
    Ok(name.unwrap_or_default().to_owned())
}

/// Whether the extended key usage is exactly `clientAuth`. A server's certificate must not open the API.
///
/// # Errors
/// [`PkiError::NotACertificate`] for other bytes.
pub fn has_exactly_client_auth(der: &[u8]) -> Result<bool, PkiError> {
    let certificate = parse(der)?;
    let usage = certificate
        .extended_key_usage()
        .map_err(|_| PkiError::NotACertificate)?;
    Ok(usage.is_some_and(|extension| {
        let u = extension.value;
        let more = u.any
            || u.server_auth
            || u.code_signing
            || u.email_protection
            || u.time_stamping
            || u.ocsp_signing
            || !u.other.is_empty();
        u.client_auth && !more
    }))
}

/// The serial number of a certificate in hexadecimal, two digits per byte.
///
/// # Errors
/// [`PkiError::NotACertificate`] for other bytes.
pub fn serial(der: &[u8]) -> Result<String, PkiError> {
    Ok(parse(der)?.raw_serial_as_string().replace(':', ""))
}

/// Whether a server's certificate covers `name`, an IP address or a DNS name.
///
/// # Errors
/// [`PkiError::NotACertificate`] for other bytes.
pub fn is_for(der: &CertificateDer<'_>, name: &str) -> Result<bool, PkiError> {
    let end = EndEntityCert::try_from(der).map_err(|_| PkiError::NotACertificate)?;
    Ok(ServerName::try_from(name)
        .is_ok_and(|name| end.verify_is_valid_for_subject_name(&name).is_ok()))
}

/// Start and end of a certificate's validity.
///
/// # Errors
/// [`PkiError::NotACertificate`] for other bytes, [`PkiError::BadTime`] for times before 1970.
pub fn validity(der: &[u8]) -> Result<(SystemTime, SystemTime), PkiError> {
    let certificate = parse(der)?;
    let at = |seconds: i64| {
        let seconds = u64::try_from(seconds).map_err(|_| PkiError::BadTime)?;
        UNIX_EPOCH
            .checked_add(Duration::from_secs(seconds))
            .ok_or(PkiError::BadTime)
    };
    let validity = certificate.validity();
    Ok((
        at(validity.not_before.timestamp())?,
        at(validity.not_after.timestamp())?,
    ))
}

/// The fingerprint that an operator compares: base64 of the SHA-256 of the subject public key info.
///
/// # Errors
/// [`PkiError::NotACertificate`] for other bytes.
pub fn fingerprint(der: &[u8]) -> Result<String, PkiError> {
    let certificate = parse(der)?;
    let digest = ring::digest::digest(&ring::digest::SHA256, certificate.public_key().raw);
    Ok(STANDARD.encode(digest))
}

/// Whether a certificate belongs to a CA.
pub(crate) fn is_ca(der: &[u8]) -> Result<bool, PkiError> {
    Ok(parse(der)?.is_ca())
}

/// The IP addresses and DNS names of a certificate as text; other kinds of names are skipped.
///
/// # Errors
/// [`PkiError::NotACertificate`] for other bytes.
pub fn names(der: &[u8]) -> Result<Vec<String>, PkiError> {
    let certificate = parse(der)?;
    let extension = certificate
        .subject_alternative_name()
        .map_err(|_| PkiError::NotACertificate)?;
    let text = |name: &GeneralName<'_>| match name {
        GeneralName::DNSName(name) => Some((*name).to_owned()),
        GeneralName::IPAddress(bytes) => match <[u8; 4]>::try_from(*bytes) {
            Ok(four) => Some(IpAddr::from(four).to_string()),
            Err(_) => <[u8; 16]>::try_from(*bytes)
                .ok()
                .map(|sixteen| IpAddr::from(sixteen).to_string()),
        },
        _ => None,
    };
    let names = extension
        .iter()
        .flat_map(|found| &found.value.general_names);
    Ok(names.filter_map(text).collect())
}

/// Whether a certificate carries the mark of a control plane node: the alternative name `urn:corten:control-plane`, a
/// URI. Only a holder of the CA's key sets it; a certificate signed on request never has it.
///
/// # Errors
/// [`PkiError::NotACertificate`] for other bytes.
pub fn is_control_planes(der: &[u8]) -> Result<bool, PkiError> {
    let certificate = parse(der)?;
    let extension = certificate
        .subject_alternative_name()
        .map_err(|_| PkiError::NotACertificate)?;
    let mut names = extension
        .iter()
        .flat_map(|found| &found.value.general_names);
    Ok(names.any(|name| matches!(name, GeneralName::URI(uri) if *uri == MARK)))
}

/// The bytes of the public key, without its algorithm.
pub(crate) fn public_key(der: &[u8]) -> Result<Vec<u8>, PkiError> {
    Ok(parse(der)?.public_key().subject_public_key.data.to_vec())
}
