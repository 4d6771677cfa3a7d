//! What apid serves with: a certificate of the machine config's authority, or, without a config, one of its
//! own whose fingerprint the console shows.

use std::fs;
use std::io;
use std::net::IpAddr;
use std::os::unix::fs::{OpenOptionsExt, chown};
use std::path::Path;
use std::time::{Duration, SystemTime};

use corten_api::roles::Role;
use corten_config::Document;
use corten_pki::{Ca, CertificateAndKey};

use crate::network::Status;

/// A certificate is replaced at half of its life.
pub const RENEW_AFTER: Duration = Duration::from_secs(corten_pki::NODE_LIFETIME.as_secs() / 2);

/// Why there is no certificate.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// The config lacks the authority's key.
    #[error(
        "the machine config has no machine.ca with a key, and a certificate from elsewhere needs trustd, which this version does not have"
    )]
    NoAuthority,
    /// The authority cannot sign.
    #[error("cannot make the API's certificate")]
    Pki(#[from] corten_pki::PkiError),
    /// The files cannot be written.
    #[error("cannot write the API's certificate")]
    Write(#[from] io::Error),
}

/// The files apid reads.
#[derive(Debug)]
pub struct Identity {
    /// Who may call: authorities of client certificates. Empty in maintenance.
    ca: String,
    server: CertificateAndKey,
    /// What apid shows to other nodes, so that they believe it whom it speaks for. Nodes of the control plane
    /// alone have one: a worker forwards nothing.
    client: Option<CertificateAndKey>,
}

/// Whether a node can serve by this config at all.
///
/// # Errors
/// The config has no authority that can sign.
pub fn check(document: &Document) -> Result<(), IdentityError> {
    signer(document).map(|_| ())
}

/// The authority of the API.
///
/// # Errors
/// The config has none that can sign.
pub fn signer(document: &Document) -> Result<Ca, IdentityError> {
    let authority = document.machine.ca.as_ref().filter(|ca| !ca.key.is_empty());
    let authority = authority.ok_or(IdentityError::NoAuthority)?;
    Ok(Ca::from_pem(&authority.crt, authority.key.expose())?)
}

impl Identity {
    /// Signed by the authority in the config.
    ///
    /// # Errors
    /// The config has no authority that can sign, or a name in it is none.
    pub fn from_config(
        document: &Document,
        network: &Status,
        now: SystemTime,
    ) -> Result<Identity, IdentityError> {
        let signer = signer(document)?;
        let names = names(network, &document.machine.cert_sans);
        let server = signer.server(&network.hostname, &names, now, corten_pki::NODE_LIFETIME)?;
        let ca = std::iter::once(&signer.pem().crt)
            .map(String::as_str)
            .chain(document.machine.accepted_cas.iter().map(|ca| &*ca.crt))
            .collect::<Vec<_>>()
            .join("\n");
        let speaks_for_others = document.machine.kind.is_control_plane();
        let client = speaks_for_others
            .then(|| {
                let roles = [Role::Impersonator.name()];
                signer.client(&roles, now, corten_pki::NODE_LIFETIME)
            })
            .transpose()?;
        Ok(Identity { ca, server, client })
    }

    /// Signed by itself.
    ///
    /// # Errors
    /// When the system's random source fails.
    pub fn of_maintenance(network: &Status, now: SystemTime) -> Result<Identity, IdentityError> {
        let server = corten_pki::maintenance(&names(network, &[]), now)?;
        Ok(Identity {
            ca: String::new(),
            server,
            client: None,
        })
    }

    /// What an operator compares: base64 of the SHA-256 of the certificate's public key.
    ///
    /// # Errors
    /// When the certificate cannot be read back.
    pub fn fingerprint(&self) -> Result<String, IdentityError> {
        let chain = corten_pki::certificates_from_pem(self.server.crt.as_bytes())?;
        let leaf = chain.first().ok_or(corten_pki::PkiError::NotACertificate)?;
        Ok(corten_pki::fingerprint(leaf)?)
    }

    /// Writes the files, each replaced at once, readable by `uid` only. Those of a client that this
    /// identity has not are removed.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn write(&self, directory: &Path, uid: u32) -> Result<(), IdentityError> {
        // A certificate after its key: whoever sees it new finds the key to it.
        let client = self.client.as_ref();
        for (name, text) in [
            ("ca.crt", Some(&self.ca)),
            ("client.key", client.map(|client| &client.key)),
            ("client.crt", client.map(|client| &client.crt)),
            ("server.key", Some(&self.server.key)),
            ("server.crt", Some(&self.server.crt)),
        ] {
            let Some(text) = text else {
                match fs::remove_file(directory.join(name)) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => {
                        return Err(error.into());
                    }
                    _ => continue,
                }
            };
            let new = directory.join(format!("{name}.new"));
            let _ = fs::remove_file(&new);
            let mut file = fs::OpenOptions::new()
                .write(true)
                .create_new(true)
                .mode(0o400)
                .open(&new)?;
            io::Write::write_all(&mut file, text.as_bytes())?;
            chown(&new, Some(uid), Some(uid))?;
            fs::rename(&new, directory.join(name))?;
        }
        Ok(())
    }
}

/// What the certificate is for: every address and name of the node, and the loopback's.
fn names(network: &Status, more: &[String]) -> Vec<String> {
    let addresses = network.addresses.iter().map(IpAddr::to_string);
    let loopback = ["127.0.0.1", "::1", "localhost"].map(str::to_owned);
    let hostname = [network.hostname.clone()]
        .into_iter()
        .filter(|name| !name.is_empty());
    let mut names: Vec<String> = addresses
        .chain(loopback)
        .chain(hostname)
        .chain(more.iter().cloned())
        .collect();
    names.sort();
    names.dedup();
    names
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    fn network() -> Status {
        Status {
            hostname: "node1".into(),
            addresses: vec!["10.0.2.15".parse().unwrap()],
        }
    }

    #[test]
    fn names_are_unique_and_complete() {
        let names = names(&network(), &["api.example.com".into(), "10.0.2.15".into()]);
        assert_eq!(
            names,
            [
                "10.0.2.15",
                "127.0.0.1",
                "::1",
                "api.example.com",
                "localhost",
                "node1"
            ]
        );
    }

    #[test]
    fn the_files_are_for_one_user_and_replaceable() {
        let dir = tempfile::tempdir().unwrap();
        let uid = fs::metadata(dir.path()).unwrap().uid();
        let first = Identity::of_maintenance(&network(), SystemTime::now()).unwrap();
        first.write(dir.path(), uid).unwrap();
        let second = Identity::of_maintenance(&network(), SystemTime::now()).unwrap();
        second.write(dir.path(), uid).unwrap();
        assert_ne!(first.fingerprint().unwrap(), second.fingerprint().unwrap());
        let key = dir.path().join("server.key");
        assert_eq!(
            fs::metadata(&key).unwrap().permissions().mode() & 0o777,
            0o400
        );
        assert_eq!(fs::read_to_string(key).unwrap(), second.server.key);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 3);
    }

    fn control_plane() -> Document {
        let ca = Ca::generate(
            corten_pki::Algorithm::Ed25519,
            "talos",
            "",
            SystemTime::now(),
        )
        .unwrap();
        let base64 = |text: &str| {
            use base64::Engine as _;
            base64::engine::general_purpose::STANDARD.encode(text)
        };
        let (crt, key) = (base64(&ca.pem().crt), base64(&ca.pem().key));
        let text = format!(
            "version: v1alpha1\nmachine:\n  type: controlplane\n  token: a.b\n  ca:\n    crt: {crt}\n    \
             key: {key}\ncluster:\n  controlPlane:\n    endpoint: https://10.0.0.10:6443\n"
        );
        Document::parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn a_node_of_the_control_plane_speaks_for_others_and_no_other_does() {
        let dir = tempfile::tempdir().unwrap();
        let uid = fs::metadata(dir.path()).unwrap().uid();
        let now = SystemTime::now();
        let identity = Identity::from_config(&control_plane(), &network(), now).unwrap();
        identity.write(dir.path(), uid).unwrap();
        let read = |name: &str| fs::read(dir.path().join(name)).unwrap();
        let chain = corten_pki::certificates_from_pem(&read("client.crt")).unwrap();
        let authorities = corten_pki::certificates_from_pem(&read("ca.crt")).unwrap();
        let roles = corten_pki::verify_client(&chain, &authorities, now).unwrap();
        assert_eq!(roles, ["os:impersonator"]);
        corten_pki::private_key_from_pem(&read("client.key")).unwrap();
        // Nothing of it is left when the next one has none.
        let without = Identity::of_maintenance(&network(), now).unwrap();
        without.write(dir.path(), uid).unwrap();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 3);
    }
}
