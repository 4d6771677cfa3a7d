//! Creation of certificates.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rcgen::{
    BasicConstraints, Certificate, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, PublicKeyData, SerialNumber,
};
use ring::rand::{SecureRandom as _, SystemRandom};
use time::OffsetDateTime;

use crate::keys::{CertificateAndKey, key_pair_from_pem, key_to_pem, to_pem};
use crate::{CA_LIFETIME, CLOCK_SKEW, MAINTENANCE_NAME, NODE_LIFETIME, PkiError, ServerRequest};
use crate::{certificates_from_pem, name};

/// Algorithm of a new key. Not all clients of Kubernetes and etcd support Ed25519. [`Ca::from_pem`] reads RSA and P-384
/// as well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Algorithm {
    /// Ed25519: the node API.
    Ed25519,
    /// ECDSA on P-256: Kubernetes and etcd.
    EcdsaP256,
}

impl Algorithm {
    pub(crate) fn key(self) -> Result<KeyPair, PkiError> {
        let algorithm = match self {
            Algorithm::Ed25519 => &rcgen::PKCS_ED25519,
            Algorithm::EcdsaP256 => &rcgen::PKCS_ECDSA_P256_SHA256,
        };
        KeyPair::generate_for(algorithm).map_err(PkiError::Signing)
    }
}

/// Content of a certificate of Kubernetes or etcd.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Leaf<'a> {
    /// Kubernetes user, or name of the server.
    pub common_name: &'a str,
    /// Kubernetes groups.
    pub organizations: &'a [&'a str],
    /// IP addresses and DNS names of the server.
    pub names: &'a [String],
    /// Allowed side of a connection.
    pub usage: Usage,
}

/// The side of a connection that may present a certificate (RFC 5280, section 4.2.1.12).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Usage {
    /// The client.
    Client,
    /// The server.
    Server,
    /// Both sides.
    Both,
}

/// A CA that can sign. `Debug` hides the key.
pub struct Ca {
    issuer: Issuer<'static, KeyPair>,
    pem: CertificateAndKey,
}

impl fmt::Debug for Ca {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ca")
            .field("pem", &self.pem)
            .finish_non_exhaustive()
    }
}

impl Ca {
    /// Generates a self-signed CA with the subject `organization` and `common_name`; either may be empty. Valid for
    /// [`CA_LIFETIME`].
    ///
    /// # Errors
    /// The time does not fit into a certificate, or the system's random source fails.
    pub fn generate(
        algorithm: Algorithm,
        organization: &str,
        common_name: &str,
        now: SystemTime,
    ) -> Result<Ca, PkiError> {
        Ca::generate_for(algorithm, organization, common_name, now, CA_LIFETIME)
    }

    /// [`Ca::generate`] with another lifetime.
    ///
    /// # Errors
    /// Those of [`Ca::generate`].
    pub fn generate_for(
        algorithm: Algorithm,
        organization: &str,
        common_name: &str,
        now: SystemTime,
        lifetime: Duration,
    ) -> Result<Ca, PkiError> {
        let key = algorithm.key()?;
        let organizations: &[&str] = if organization.is_empty() {
            &[]
        } else {
            &[organization]
        };
        let mut params = CertificateParams::default();
        params.distinguished_name = name::subject(organizations, common_name)?;
        set_validity(&mut params, now, lifetime)?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![
            KeyUsagePurpose::DigitalSignature,
            KeyUsagePurpose::KeyCertSign,
            KeyUsagePurpose::CrlSign,
        ];
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        let certificate = params.self_signed(&key).map_err(PkiError::Signing)?;
        let pem = CertificateAndKey {
            crt: certificate_pem(&certificate),
            key: key_to_pem(&key)?,
        };
        Ok(Ca {
            issuer: Issuer::new(params, key),
            pem,
        })
    }

    /// Reads a CA from its PEM certificate and key: Ed25519, ECDSA on P-256 or P-384, or RSA of 2048 to 4096 bits.
    ///
    /// # Errors
    /// Either cannot be read, the key belongs to another certificate, or the certificate is not a CA certificate.
    pub fn from_pem(crt: &str, key: &str) -> Result<Ca, PkiError> {
        let certificates = certificates_from_pem(crt.as_bytes())?;
        let certificate = certificates
            .first()
            .ok_or(PkiError::Missing("certificate"))?;
        let pair = key_pair_from_pem(key.as_bytes())?;
        if crate::inspect::public_key(certificate)? != pair.public_key_raw() {
            return Err(PkiError::KeyMismatch);
        }
        if !crate::inspect::is_ca(certificate)? {
            return Err(PkiError::NotACa);
        }
        let issuer =
            Issuer::from_ca_cert_der(certificate, pair).map_err(|_| PkiError::NotACertificate)?;
        Ok(Ca {
            issuer,
            pem: CertificateAndKey {
                crt: crt.to_owned(),
                key: key.to_owned(),
            },
        })
    }

    /// The PEM certificate and key of the CA.
    #[must_use]
    pub fn pem(&self) -> &CertificateAndKey {
        &self.pem
    }

    /// Issues a server certificate of the API. `names` are IP addresses and DNS names; `common_name` is usually the
    /// host name. Ed25519, `serverAuth` only.
    ///
    /// # Errors
    /// [`PkiError::BadName`] for a name that is neither.
    pub fn server(
        &self,
        common_name: &str,
        names: &[String],
        now: SystemTime,
        lifetime: Duration,
    ) -> Result<CertificateAndKey, PkiError> {
        self.issue(server(common_name, names)?, now, lifetime)
    }

    /// [`Ca::server`] for a control plane node; the certificate carries [the mark](crate::is_control_planes).
    ///
    /// # Errors
    /// Those of [`Ca::server`].
    pub fn control_plane_server(
        &self,
        common_name: &str,
        names: &[String],
        now: SystemTime,
        lifetime: Duration,
    ) -> Result<CertificateAndKey, PkiError> {
        let mut params = server(common_name, names)?;
        params.subject_alt_names.push(name::mark()?);
        self.issue(params, now, lifetime)
    }

    /// Issues a client certificate with one role and [the mark](crate::is_control_planes). A control plane node uses it
    /// to call other nodes on behalf of its callers.
    ///
    /// # Errors
    /// Those of [`Ca::client`].
    pub fn control_plane_client(
        &self,
        role: &str,
        now: SystemTime,
        lifetime: Duration,
    ) -> Result<CertificateAndKey, PkiError> {
        let mut params = client(&[role])?;
        params.subject_alt_names.push(name::mark()?);
        self.issue(params, now, lifetime)
    }

    /// Issues a client certificate of the API; the roles are its organizations. Ed25519, `clientAuth` only.
    ///
    /// # Errors
    /// [`PkiError::TooManyRoles`] for more than two roles.
    pub fn client(
        &self,
        roles: &[&str],
        now: SystemTime,
        lifetime: Duration,
    ) -> Result<CertificateAndKey, PkiError> {
        self.issue(client(roles)?, now, lifetime)
    }

    /// Issues a certificate of Kubernetes or etcd: ECDSA on P-256.
    ///
    /// # Errors
    /// [`PkiError::BadName`] for a name that is neither an address nor a DNS name, [`PkiError::TooManyRoles`] for more
    /// than two organizations.
    pub fn leaf(
        &self,
        leaf: &Leaf<'_>,
        now: SystemTime,
        lifetime: Duration,
    ) -> Result<CertificateAndKey, PkiError> {
        let mut params = CertificateParams::default();
        params.distinguished_name = name::subject(leaf.organizations, leaf.common_name)?;
        params.subject_alt_names = name::alternatives(leaf.names)?;
        params.extended_key_usages = match leaf.usage {
            Usage::Client => vec![ExtendedKeyUsagePurpose::ClientAuth],
            Usage::Server => vec![ExtendedKeyUsagePurpose::ServerAuth],
            Usage::Both => vec![
                ExtendedKeyUsagePurpose::ServerAuth,
                ExtendedKeyUsagePurpose::ClientAuth,
            ],
        };
        let key = Algorithm::EcdsaP256.key()?;
        Ok(CertificateAndKey {
            crt: self.sign_leaf(params, &key, now, lifetime)?,
            key: key_to_pem(&key)?,
        })
    }

    /// Signs a request as a server certificate for `names`, a selection of the caller from the request's names.
    ///
    /// Only key and common name come from the request. The certificate has `serverAuth` only, no organization, and
    /// never the rights of a CA. Returns PEM.
    ///
    /// # Errors
    /// [`PkiError::BadName`] for a name that is neither an address nor a DNS name.
    pub fn sign_server(
        &self,
        request: &ServerRequest,
        names: &[String],
        now: SystemTime,
        lifetime: Duration,
    ) -> Result<String, PkiError> {
        let mut params = CertificateParams::default();
        params.distinguished_name = name::subject(&[], &request.common_name)?;
        params.subject_alt_names = name::alternatives(names)?;
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        self.sign_leaf(params, &request.inner.public_key, now, lifetime)
    }

    fn issue(
        &self,
        params: CertificateParams,
        now: SystemTime,
        lifetime: Duration,
    ) -> Result<CertificateAndKey, PkiError> {
        let key = Algorithm::Ed25519.key()?;
        Ok(CertificateAndKey {
            crt: self.sign_leaf(params, &key, now, lifetime)?,
            key: key_to_pem(&key)?,
        })
    }

    /// Signs a certificate without the right to sign others. Returns PEM.
    pub(crate) fn sign_leaf(
        &self,
        mut params: CertificateParams,
        key: &impl PublicKeyData,
        now: SystemTime,
        lifetime: Duration,
    ) -> Result<String, PkiError> {
        // The default serial is derived from the key, and one key may be signed twice (RFC 5280, section 4.1.2.2).
        params.serial_number = Some(random_serial()?);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.is_ca = IsCa::ExplicitNoCa;
        params.use_authority_key_identifier_extension = true;
        set_validity(&mut params, now, lifetime)?;
        let certificate = params
            .signed_by(key, &self.issuer)
            .map_err(PkiError::Signing)?;
        Ok(certificate_pem(&certificate))
    }
}

/// Parameters of a server certificate of the API.
fn server(common_name: &str, names: &[String]) -> Result<CertificateParams, PkiError> {
    let mut params = CertificateParams::default();
    params.distinguished_name = name::subject(&[], common_name)?;
    params.subject_alt_names = name::alternatives(names)?;
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    Ok(params)
}

/// Parameters of a client certificate of the API.
fn client(roles: &[&str]) -> Result<CertificateParams, PkiError> {
    let mut params = CertificateParams::default();
    params.distinguished_name = name::subject(roles, "")?;
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    Ok(params)
}

fn random_serial() -> Result<SerialNumber, PkiError> {
    let mut bytes = [0; 16];
    SystemRandom::new()
        .fill(&mut bytes)
        .map_err(|_| PkiError::NoRandom)?;
    // A serial number must be a positive INTEGER.
    bytes[0] &= 0x7f;
    Ok(SerialNumber::from_slice(&bytes))
}

/// Creates a self-signed certificate for a node without a config. No client can verify it; the operator compares its
/// [fingerprint](crate::fingerprint) with the one on the console. `names` as for [`Ca::server`].
///
/// # Errors
/// [`PkiError::BadName`] for a name that is neither an address nor a DNS name.
pub fn maintenance(names: &[String], now: SystemTime) -> Result<CertificateAndKey, PkiError> {
    let key = Algorithm::Ed25519.key()?;
    let mut params = CertificateParams::default();
    params.distinguished_name = name::subject(&[], MAINTENANCE_NAME)?;
    params.subject_alt_names = name::alternatives(names)?;
    params
        .subject_alt_names
        .extend(name::alternatives(&[MAINTENANCE_NAME.to_owned()])?);
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.is_ca = IsCa::ExplicitNoCa;
    set_validity(&mut params, now, NODE_LIFETIME)?;
    let certificate = params.self_signed(&key).map_err(PkiError::Signing)?;
    Ok(CertificateAndKey {
        crt: certificate_pem(&certificate),
        key: key_to_pem(&key)?,
    })
}

fn certificate_pem(certificate: &Certificate) -> String {
    to_pem("CERTIFICATE", certificate.der())
}

fn set_validity(
    params: &mut CertificateParams,
    now: SystemTime,
    lifetime: Duration,
) -> Result<(), PkiError> {
    // With a clock near the epoch the start must not become negative.
    let start = now
        .checked_sub(CLOCK_SKEW)
        .unwrap_or(UNIX_EPOCH)
        .max(UNIX_EPOCH);
    params.not_before = moment(start)?;
    params.not_after = moment(now.checked_add(lifetime).ok_or(PkiError::BadTime)?)?;
    Ok(())
}

fn moment(time: SystemTime) -> Result<OffsetDateTime, PkiError> {
    let seconds = time
        .duration_since(UNIX_EPOCH)
        .map_err(|_| PkiError::BadTime)?
        .as_secs();
    let seconds = i64::try_from(seconds).map_err(|_| PkiError::BadTime)?;
    OffsetDateTime::from_unix_timestamp(seconds).map_err(|_| PkiError::BadTime)
}
