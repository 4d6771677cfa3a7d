//! Requests for a server certificate: PKCS#10 (RFC 2986) in PEM.
//!
//! The requester keeps its key; the signer uses only the key, the names and the common name of a request.

use rcgen::{
    CertificateParams, CertificateSigningRequestParams, DnType, DnValue, IsCa, KeyPair,
    PublicKeyData, SanType,
};

use crate::keys::key_to_pem;
use crate::request::{KEYS, csr, read};
use crate::{PkiError, name};

/// Maximum number of names of a request. A node has an address per link and family, and some names.
pub const MAX_NAMES: usize = 128;

/// `ub-common-name` of RFC 5280, appendix A.1, in characters.
const COMMON_NAME: usize = 64;

/// Generates an Ed25519 key and a request for it; `names` as for [`crate::Ca::server`]. Returns the request and the
/// key, both PEM.
///
/// # Errors
/// [`PkiError::BadName`] for a name that is neither an address nor a DNS name.
pub fn server_request(common_name: &str, names: &[String]) -> Result<(String, String), PkiError> {
    let key = KeyPair::generate_for(&rcgen::PKCS_ED25519).map_err(PkiError::Signing)?;
    let request = csr(&key, name::subject(&[], common_name)?, names)?;
    Ok((request, key_to_pem(&key)?))
}

/// A checked request: the requester holds its key, and it does not ask for a CA certificate.
#[derive(Debug)]
pub struct ServerRequest {
    pub(crate) inner: CertificateSigningRequestParams,
    /// Common name of the subject; empty if it has no usable one. The rest of the subject is dropped.
    pub common_name: String,
    /// IP addresses and DNS names, in the order of the request.
    pub names: Vec<String>,
}

impl ServerRequest {
    /// Parses and checks a request.
    ///
    /// # Errors
    /// [`PkiError::Missing`] for text without a PEM request, [`PkiError::BadRequest`] for one that must not be signed;
    /// the text states the reason.
    pub fn from_pem(text: &[u8]) -> Result<ServerRequest, PkiError> {
        let (_, inner) = read(text)?;
        check_key(&inner)?;
        if matches!(inner.params.is_ca, IsCa::Ca(_)) {
            return Err(PkiError::BadRequest("asks for a CA certificate"));
        }
        let common_name = common_name(&inner.params);
        let names = names(&inner.params)?;
        Ok(ServerRequest {
            inner,
            common_name,
            names,
        })
    }
}

/// Checks lengths too: a key of another curve may be signed with a matching hash.
fn check_key(request: &CertificateSigningRequestParams) -> Result<(), PkiError> {
    let key = &request.public_key;
    let known = (key.algorithm() == &rcgen::PKCS_ED25519 && key.der_bytes().len() == 32)
        || (key.algorithm() == &rcgen::PKCS_ECDSA_P256_SHA256 && key.der_bytes().len() == 65);
    known.then_some(()).ok_or(PkiError::BadRequest(KEYS))
}

/// An unusable common name is dropped: clients verify a server by its alternative names.
fn common_name(params: &CertificateParams) -> String {
    let text = match params.distinguished_name.get(&DnType::CommonName) {
        Some(DnValue::Utf8String(text)) => text,
        Some(DnValue::PrintableString(text)) => text.as_str(),
        _ => "",
    };
    let fits = text.chars().count() <= COMMON_NAME && !text.chars().any(char::is_control);
    if fits { text.to_owned() } else { String::new() }
}

fn names(params: &CertificateParams) -> Result<Vec<String>, PkiError> {
    let names = &params.subject_alt_names;
    if names.is_empty() {
        return Err(PkiError::BadRequest(
            "names neither an address nor a DNS name",
        ));
    }
    if names.len() > MAX_NAMES {
        return Err(PkiError::BadRequest("has too many names"));
    }
    let text = |name: &SanType| match name {
        SanType::IpAddress(address) => Ok(address.to_string()),
        SanType::DnsName(name) if !name.as_str().contains('*') => Ok(name.as_str().to_owned()),
        SanType::DnsName(_) => Err(PkiError::BadRequest("has a wildcard among its names")),
        _ => Err(PkiError::BadRequest(
            "has a name that is neither an address nor a DNS name",
        )),
    };
    let names: Vec<String> = names.iter().map(text).collect::<Result<_, _>>()?;
    // A name that cannot be encoded again fails here, not at signing.
    name::alternatives(&names)?;
    Ok(names)
}
