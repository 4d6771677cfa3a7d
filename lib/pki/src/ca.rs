//! Making certificates.

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

/// The kind of an authority's key.
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

/// What a certificate of Kubernetes or etcd says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Leaf<'a> {
    /// The user of Kubernetes, or the server's name.
    pub common_name: &'a str,
    /// The groups of Kubernetes.
    pub organizations: &'a [&'a str],
    /// Addresses and DNS names of the server.
    pub names: &'a [String],
    /// Which side of a connection shows it.
    pub usage: Usage,
}

/// Which side of a connection shows a certificate (RFC 5280, section 4.2.1.12).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Usage {
    /// Who calls.
    Client,
    /// Who answers.
    Server,
    /// Either.
    Both,
}

/// An authority that can sign. `Debug` hides the key.
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
    /// A new self-signed authority: `organization` and `common_name` make its
    /// subject, either may be empty. Valid for [`CA_LIFETIME`].
    ///
    /// # Errors
    /// When the time does not fit or the system's random source fails.
    pub fn generate(
        algorithm: Algorithm,
        organization: &str,
        common_name: &str,
        now: SystemTime,
    ) -> Result<Ca, PkiError> {
        Ca::generate_for(algorithm, organization, common_name, now, CA_LIFETIME)
    }

    /// The same with another lifetime.
    ///
    /// # Errors
    /// As [`Ca::generate`].
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

    /// An authority from its PEM certificate and key.
    ///
    /// # Errors
    /// When either cannot be read, the key belongs to another certificate, or that is no authority's.
    pub fn from_pem(crt: &str, key: &str) -> Result<Ca, PkiError> {
        let certificates = certificates_from_pem(crt.as_bytes())?;
        let certificate = certificates
            .first()
            .ok_or(PkiError::Missing("certificate"))?;
        let pair = key_pair_from_pem(key.as_bytes())?;
        if crate::inspect::public_key(certificate)? != pair.public_key_raw() {
            return Err(PkiError::KeyMismatch);
        }
        if !crate::inspect::is_authority(certificate)? {
            return Err(PkiError::NotAnAuthority);
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

    /// The authority itself.
    #[must_use]
    pub fn pem(&self) -> &CertificateAndKey {
        &self.pem
    }

    /// A certificate to serve the API with: `names` are IP addresses and DNS
    /// names, `common_name` usually the host name. Ed25519, `serverAuth` only.
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

    /// The same for a control plane node: it carries [the mark](crate::is_control_planes).
    ///
    /// # Errors
    /// As [`Ca::server`].
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

    /// A certificate with which a control plane node calls others in the name of its callers: it has one role and
    /// carries [the mark](crate::is_control_planes).
    ///
    /// # Errors
    /// As [`Ca::client`].
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

    /// A certificate to call the API with: the roles are its organizations.
    /// Ed25519, `clientAuth` only.
    ///
    /// # Errors
    /// [`PkiError::TooManyRoles`] for more than two.
    pub fn client(
        &self,
        roles: &[&str],
        now: SystemTime,
        lifetime: Duration,
    ) -> Result<CertificateAndKey, PkiError> {
        self.issue(client(roles)?, now, lifetime)
    }

    /// A certificate of Kubernetes or etcd: ECDSA on P-256.
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

    /// Signs a request as a server's certificate for `names`, which the caller has chosen among those of the
    /// request. Of the request it takes the key and the common name: `serverAuth` only, no organization, never
    /// an authority. Returns PEM.
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

    /// Signs a certificate that may sign no others. Returns PEM.
    pub(crate) fn sign_leaf(
        &self,
        mut params: CertificateParams,
        key: &impl PublicKeyData,
        now: SystemTime,
        lifetime: Duration,
    ) -> Result<String, PkiError> {
        // By default it is made from the key, and one key may be shown twice (RFC 5280, section 4.1.2.2).
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

/// Of a certificate to serve the API with.
fn server(common_name: &str, names: &[String]) -> Result<CertificateParams, PkiError> {
    let mut params = CertificateParams::default();
    params.distinguished_name = name::subject(&[], common_name)?;
    params.subject_alt_names = name::alternatives(names)?;
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    Ok(params)
}

/// Of a certificate to call the API with.
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
    // Positive, as an INTEGER must be that is a serial number.
    bytes[0] &= 0x7f;
    Ok(SerialNumber::from_slice(&bytes))
}

/// A self-signed certificate for a node without a config: nobody can verify
/// it, an operator compares its [fingerprint](crate::fingerprint) with the one
/// on the console. `names` as for [`Ca::server`].
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
    // A clock at or near the epoch must not make the start negative.
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
