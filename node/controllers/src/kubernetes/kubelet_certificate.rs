//! Issues the kubelet's client certificate on a control plane node, which has the key of the Kubernetes CA.
//!
//! The kubelet then registers as soon as the API server answers. It needs no bootstrap token, request or approval. It
//! renews the certificate itself; a new one is issued only when the kubelet cannot.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, symlink};
use std::path::Path;
use std::time::SystemTime;

use corten_base::durable::remove_if_there;
use corten_kubernetes::certificates::{kubelet_certificate, kubelet_user};
use corten_pki::{Ca, CertificateAndKey, certificates_from_pem, common_name, verify_client};
use corten_resources::controller::with_causes as describe;

/// Name that the kubelet reads. It must be a symbolic link, which the kubelet replaces at each renewal (client-go,
/// `util/certificate/certificate_store.go`).
pub(super) const CURRENT: &str = "kubelet-client-current.pem";
/// File of an issued certificate and its key.
const ISSUED: &str = "kubelet-client-issued.pem";

/// Issues a certificate for this node unless `directory` has one that the authorities (PEM) accept. Returns whether it
/// issued one.
pub(super) fn ensure(
    directory: &Path,
    (ca, accepted): (&Ca, &str),
    nodename: &str,
    now: SystemTime,
) -> Result<bool, String> {
    let found = fs::read(directory.join(CURRENT)).unwrap_or_default();
    if is_good(&found, accepted, nodename, now) {
        return Ok(false);
    }
    let issued = kubelet_certificate(ca, nodename, now).map_err(|error| describe(&error))?;
    write(directory, &issued).map_err(|error| format!("the kubelet's certificate: {error}"))?;
    Ok(true)
}

fn is_good(pem: &[u8], accepted: &str, nodename: &str, now: SystemTime) -> bool {
    let (Ok(chain), Ok(authorities)) = (
        certificates_from_pem(pem),
        certificates_from_pem(accepted.as_bytes()),
    ) else {
        return false;
    };
    let user = chain.first().and_then(|leaf| common_name(leaf).ok());
    user.is_some_and(|user| user == kubelet_user(nodename))
        && verify_client(&chain, &authorities, now).is_ok()
}

/// Writes the certificate, and then has the link point to it. A power cut leaves no link or a complete file.
fn write(directory: &Path, issued: &CertificateAndKey) -> io::Result<()> {
    fs::create_dir_all(directory)?;
    let (file, link) = (directory.join(ISSUED), directory.join("issued.unfinished"));
    remove_if_there(&file)?;
    let mut options = OpenOptions::new();
    let mut out = options
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&file)?;
    out.write_all(issued.crt.as_bytes())?;
    out.write_all(issued.key.as_bytes())?;
    out.sync_all()?;
    remove_if_there(&link)?;
    symlink(ISSUED, &link)?;
    fs::rename(&link, directory.join(CURRENT))?;
    fs::File::open(directory)?.sync_all()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use corten_pki::Algorithm;

    use super::*;

    fn authority(now: SystemTime) -> Ca {
        Ca::generate(Algorithm::EcdsaP256, "kubernetes", "", now).unwrap()
    }

    #[test]
    fn certificate_is_issued_once_and_again_when_it_cannot_be_used() {
        let scratch = tempfile::tempdir().unwrap();
        let directory = scratch.path().join("pki");
        let now = SystemTime::now();
        let (ca, other) = (authority(now), authority(now));
        let issue =
            |ca: &Ca, name: &str, now| ensure(&directory, (ca, &ca.pem().crt), name, now).unwrap();
        assert!(issue(&ca, "a", now));
        let link = directory.join(CURRENT);
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        let text = fs::read_to_string(&link).unwrap();
        assert!(text.contains("PRIVATE KEY"), "{text}");
        let chain = certificates_from_pem(text.as_bytes()).unwrap();
        let authorities = certificates_from_pem(ca.pem().crt.as_bytes()).unwrap();
        let groups = verify_client(&chain, &authorities, now).unwrap();
        assert_eq!(groups, ["system:nodes"]);
        assert!(!issue(&ca, "a", now));
        // Another name; expired; another authority; damaged.
        assert!(issue(&ca, "b", now));
        let late = now + Duration::from_secs(9000 * 60 * 60);
        assert!(issue(&ca, "b", late));
        assert!(issue(&other, "b", late));
        fs::write(&link, "damaged").unwrap();
        assert!(issue(&other, "b", late));
        assert!(!issue(&other, "b", late));
    }
}
