//! The node's certificates: checks of a config, renewal times, and the files of daemons. `corten-controllers` decides
//! when a certificate is made.

use std::io;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use corten_base::durable::{Access, remove_if_there, replace_now};
use corten_config::Document;
use corten_config::kinds::TrustedRootsConfig;
use corten_pki::{Ca, CertificateAndKey, PkiError};

/// Reason why a config does not let the node serve its API.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The config has no CA with a key.
    #[error("machine.ca has no key on this node")]
    NoCa,
    /// The CA cannot sign.
    #[error("machine.ca cannot sign")]
    Ca(#[source] PkiError),
    /// A worker's config has no usable CA.
    #[error("machine.ca.crt and machine.acceptedCAs: no certificate in them can be used")]
    Accepted(#[source] PkiError),
    /// A worker's config has no token for trustd.
    #[error(
        "machine.token is empty: a node without the key of machine.ca needs the token to request its certificate"
    )]
    NoToken,
    /// A certificate of a registry or of further CAs is unusable; with the name of the field.
    #[error("{0}: a certificate in it cannot be used")]
    Unusable(String, #[source] PkiError),
    /// A name is invalid.
    #[error("machine.certSANs: a name is invalid; use DNS names or IP addresses")]
    Names(#[source] PkiError),
}

/// Checks that a node can serve with this config: it can sign its certificate, or ask trustd for one.
///
/// # Errors
/// The missing or invalid part of the config.
pub fn check(document: &Document) -> Result<(), ConfigError> {
    let machine = &document.machine;
    // A discarded request validates the names as the real one will.
    corten_pki::server_request("", &machine.cert_sans).map_err(ConfigError::Names)?;
    check_cas(document)?;
    match signer(document) {
        Err(ConfigError::NoCa) => {}
        other => return other.map(drop),
    }
    let ca = machine
        .ca
        .iter()
        .map(|ca| &*ca.crt)
        .filter(|crt| !crt.is_empty());
    for crt in ca.chain(machine.accepted_cas.iter().map(|ca| &*ca.crt)) {
        check_pem(crt).map_err(ConfigError::Accepted)?;
    }
    if machine.token.is_empty() {
        return Err(ConfigError::NoToken);
    }
    Ok(())
}

/// A CA that containerd cannot parse would block all pulls from its registry.
fn check_cas(document: &Document) -> Result<(), ConfigError> {
    for roots in document.all::<TrustedRootsConfig>() {
        let field = || format!("TrustedRootsConfig {}: certificates", roots.name);
        check_pem(&roots.certificates).map_err(|error| ConfigError::Unusable(field(), error))?;
    }
    for (host, tls) in document.registries().tls {
        let crt = tls.client_identity.as_ref().map(|(crt, _)| crt);
        for (field, pem) in [("ca", tls.ca.as_ref()), ("clientIdentity", crt)] {
            let field = || format!("{field} of the registry {host}");
            pem.map_or(Ok(()), |pem| check_pem(pem))
                .map_err(|error| ConfigError::Unusable(field(), error))?;
        }
    }
    Ok(())
}

/// Checks that the PEM text has certificates and that all of them parse.
fn check_pem(pem: &str) -> Result<(), PkiError> {
    let found = corten_pki::certificates_from_pem(pem.as_bytes())?;
    found
        .iter()
        .try_for_each(|crt| corten_pki::validity(crt).map(drop))
}

/// The CA of the API.
///
/// # Errors
/// If the config has no CA that can sign.
pub fn signer(document: &Document) -> Result<Ca, ConfigError> {
    let ca = document.machine.ca.as_ref().filter(|ca| !ca.key.is_empty());
    let ca = ca.ok_or(ConfigError::NoCa)?;
    Ca::from_pem(&ca.crt, ca.key.expose()).map_err(ConfigError::Ca)
}

/// A certificate in use, and the parameters it was made for.
#[derive(Debug)]
pub struct Held<W> {
    made_for: W,
    from: SystemTime,
    renewal: SystemTime,
    until: SystemTime,
}

impl<W: PartialEq> Held<W> {
    /// Takes a certificate into use at `now`. Renewal is due after half of its remaining life. So a certificate from a
    /// node whose clock is far behind is not renewed again and again.
    ///
    /// # Errors
    /// If the certificate cannot be parsed.
    pub fn new(
        issued: &CertificateAndKey,
        made_for: W,
        now: SystemTime,
    ) -> Result<Held<W>, PkiError> {
        let chain = corten_pki::certificates_from_pem(issued.crt.as_bytes())?;
        let leaf = chain.first().ok_or(PkiError::NotACertificate)?;
        let (from, until) = corten_pki::validity(leaf)?;
        let life = until.duration_since(now).map_err(|_| PkiError::BadTime)?;
        Ok(Held {
            made_for,
            from,
            renewal: now + life / 2,
            until,
        })
    }

    /// Time until renewal, if the certificate fits `wanted`. `None` if a new one is due: the parameters changed, half
    /// of its life is over, or it is not valid at `now`.
    pub fn left(&self, wanted: &W, now: SystemTime) -> Option<Duration> {
        if self.made_for != *wanted || now < self.from {
            return None;
        }
        let left = self.renewal.duration_since(now).ok();
        left.filter(|left| !left.is_zero())
    }

    /// Whether the certificate was made for `wanted`.
    pub fn is_for(&self, wanted: &W) -> bool {
        self.made_for == *wanted
    }

    /// End of its validity in RFC 3339.
    pub fn not_after(&self) -> String {
        let since = self.until.duration_since(UNIX_EPOCH).unwrap_or_default();
        prost_types::Timestamp {
            seconds: i64::try_from(since.as_secs()).unwrap_or(i64::MAX),
            nanos: 0,
        }
        .to_string()
    }
}

/// Writes the files of a directory in this order. Each is replaced atomically and readable by `uid` only; a file
/// without text is removed.
///
/// # Errors
/// If a file cannot be written.
pub fn write_files(directory: &Path, uid: u32, files: &[(&str, Option<&str>)]) -> io::Result<()> {
    let access = Access {
        mode: 0o400,
        uid: Some(uid),
        gid: Some(uid),
    };
    for (name, text) in files {
        let path = directory.join(name);
        match text {
            Some(text) => replace_now(&path, text, access)?,
            None => remove_if_there(&path)?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use corten_pki::{Algorithm, NODE_LIFETIME};
    use std::fs;
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    const HOUR: Duration = Duration::from_secs(3600);

    fn now() -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(1_800_000_000)
    }

    fn ca() -> Ca {
        Ca::generate(Algorithm::Ed25519, "talos", "", now()).unwrap()
    }

    #[test]
    fn certificate_is_renewed_at_half_its_lifetime() {
        let issued = ca()
            .server("node", &["node".into()], now(), NODE_LIFETIME)
            .unwrap();
        let held = Held::new(&issued, "node", now()).unwrap();
        assert_eq!(held.left(&"node", now()), Some(12 * HOUR));
        assert_eq!(held.left(&"node", now() + 11 * HOUR), Some(HOUR));
        assert_eq!(held.left(&"node", now() + 12 * HOUR), None);
        assert_eq!(held.left(&"other", now()), None);
        // The clock was set back, or far ahead.
        assert_eq!(held.left(&"node", now() - 2 * HOUR), None);
        assert_eq!(held.left(&"node", now() + 1000 * HOUR), None);
        assert_eq!(held.not_after(), "2027-01-16T08:00:00Z");
        // Issued by a node whose clock is 20 hours behind.
        let held = Held::new(&issued, "node", now() + 20 * HOUR).unwrap();
        assert_eq!(held.left(&"node", now() + 20 * HOUR), Some(2 * HOUR));
    }

    #[test]
    fn cas_of_registries_and_roots_are_certificates() {
        let name_of = |more: &str| {
            let crt = encoded(&ca().pem().crt);
            let machine = format!("  token: a.b\n  ca: {{crt: {crt}}}");
            let error = check(&with("worker", &machine, more)).err();
            error.map(|error| error.to_string())
        };
        let quoted = |pem: &str| pem.replace('\n', "\\n");
        let good = quoted(&ca().pem().crt);
        let bad = quoted("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n");
        let roots = |pem: &str| format!("TrustedRootsConfig\nname: a\ncertificates: \"{pem}\"");
        let tls = |pem: &str| format!("RegistryTLSConfig\nname: h:5000\nca: \"{pem}\"");
        assert_eq!(name_of(&roots(&good)), None);
        assert_eq!(name_of(&tls(&good)), None);
        let why = "TrustedRootsConfig a: certificates: a certificate in it cannot be used";
        assert_eq!(name_of(&roots(&(good + &bad))).as_deref(), Some(why));
        let why = "ca of the registry h:5000: a certificate in it cannot be used";
        assert_eq!(name_of(&tls(&bad)).as_deref(), Some(why));
    }

    fn document(kind: &str, machine: &str) -> Document {
        with(kind, machine, "HostnameConfig\nauto: stable")
    }

    /// A config with another document, whose kind and fields are `more`.
    fn with(kind: &str, machine: &str, more: &str) -> Document {
        let text = format!(
            "version: v1alpha1\nmachine:\n  type: {kind}\n{machine}\ncluster:\n  controlPlane: {{endpoint: 'https://10.0.0.1:6443'}}\n---\napiVersion: v1alpha1\nkind: {more}\n"
        );
        Document::parse(text.as_bytes()).unwrap_or_else(|problems| panic!("{problems}"))
    }

    fn encoded(text: &str) -> String {
        use base64::Engine as _;
        base64::engine::general_purpose::STANDARD.encode(text)
    }

    #[test]
    fn a_worker_needs_a_ca_and_a_token() {
        let crt = encoded(&ca().pem().crt);
        let why = |machine: &str| check(&document("worker", machine)).unwrap_err().to_string();
        let good = format!("  ca: {{crt: {crt}}}\n  token: abcdef.0123456789abcdef");
        check(&document("worker", &good)).unwrap();
        let other = format!("  acceptedCAs: [{{crt: {crt}}}]\n  token: a");
        check(&document("worker", &other)).unwrap();
        assert!(why(&format!("  ca: {{crt: {crt}}}")).contains("machine.token"));
        let broken = encoded("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n");
        assert!(why(&format!("  ca: {{crt: {broken}}}\n  token: a")).contains("machine.ca.crt"));
        assert!(why(&format!("{good}\n  certSANs: ['a b']")).contains("machine.certSANs"));
    }

    #[test]
    fn control_plane_node_requires_a_matching_key() {
        let (one, two) = (ca(), ca());
        let pair = |crt: &str, key: &str| {
            format!("  ca: {{crt: {}, key: {}}}", encoded(crt), encoded(key))
        };
        let good = pair(&one.pem().crt, &one.pem().key);
        check(&document("controlplane", &good)).unwrap();
        let mixed = pair(&one.pem().crt, &two.pem().key);
        let error = check(&document("controlplane", &mixed)).unwrap_err();
        assert!(matches!(error, ConfigError::Ca(PkiError::KeyMismatch)));
    }

    #[test]
    fn rsa_machine_ca_signs_for_the_api() {
        let sample = |name| String::from_utf8(corten_corpus::sample("pki", name)).unwrap();
        let [crt, key, short] = ["rsa.crt", "rsa.key", "rsa-512.key"].map(sample);
        let machine =
            |key: &str| format!("  ca: {{crt: {}, key: {}}}", encoded(&crt), encoded(key));
        let good = document("controlplane", &machine(&key));
        check(&good).unwrap();
        let server = signer(&good)
            .unwrap()
            .server("node", &["node".into()], now(), NODE_LIFETIME)
            .unwrap();
        let anchors = corten_pki::certificates_from_pem(crt.as_bytes()).unwrap();
        corten_pki::verify_issued(&server, &anchors, now()).unwrap();
        let error = check(&document("controlplane", &machine(&short))).unwrap_err();
        assert!(matches!(error, ConfigError::Ca(PkiError::RsaSize(512))));
    }

    #[test]
    fn certificate_files_are_private_and_replaced_as_a_whole() {
        let dir = tempfile::tempdir().unwrap();
        let uid = fs::metadata(dir.path()).unwrap().uid();
        write_files(
            dir.path(),
            uid,
            &[("a.key", Some("1")), ("b.key", Some("2"))],
        )
        .unwrap();
        write_files(
            dir.path(),
            uid,
            &[("a.key", Some("3")), ("b.key", None), ("c", None)],
        )
        .unwrap();
        let key = dir.path().join("a.key");
        let mode = fs::metadata(&key).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o400);
        assert_eq!(fs::read_to_string(key).unwrap(), "3");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}
