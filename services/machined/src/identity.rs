//! What apid serves with: a certificate of the machine config's authority, or, without a config, one of its
//! own whose fingerprint the console shows.

use std::fs;
use std::io;
use std::net::IpAddr;
use std::os::unix::fs::{OpenOptionsExt, chown};
use std::path::Path;
use std::time::{Duration, SystemTime};

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
}

/// Whether a node can serve by this config at all.
///
/// # Errors
/// The config has no authority that can sign.
pub fn check(document: &Document) -> Result<(), IdentityError> {
    signer(document).map(|_| ())
}

fn signer(document: &Document) -> Result<Ca, IdentityError> {
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
        Ok(Identity { ca, server })
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

    /// Writes the files, each replaced at once, readable by `uid` only.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn write(&self, directory: &Path, uid: u32) -> Result<(), IdentityError> {
        // The certificate last: whoever sees it new finds the key to it.
        for (name, text) in [
            ("ca.crt", &self.ca),
            ("server.key", &self.server.key),
            ("server.crt", &self.server.crt),
        ] {
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
}
