//! The kubelet's client certificate, and the serving certificate that it makes itself.
//!
//! A running kubelet reads none of these files again: after each change it must restart.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, symlink};
use std::path::Path;
use std::time::SystemTime;

use corten_base::durable::remove_if_there;
use corten_kubernetes::certificates::{kubelet_certificate, kubelet_user};
use corten_pki::{
    Ca, CertificateAndKey, certificates_from_pem, common_name, names, validity, verify_client,
};
use corten_resources::controller::with_causes as describe;

/// Name that the kubelet reads. It must be a symbolic link, which the kubelet replaces at each renewal (client-go,
/// `util/certificate/certificate_store.go`).
pub const CURRENT: &str = "kubelet-client-current.pem";
/// The kubelet's serving certificate and its key. It makes them at its start if there are none, valid for a year, and
/// never renews them (Kubernetes, `cmd/kubelet/app/server.go`, `InitializeTLS`).
const SERVING: [&str; 2] = ["kubelet.crt", "kubelet.key"];
/// File of an issued certificate and its key.
const ISSUED: &str = "kubelet-client-issued.pem";

/// Issues a certificate for this node unless `directory` has one that the CAs (PEM) accept. Returns whether it issued
/// one.
///
/// Only a control plane node issues it, because it has the key of the Kubernetes CA. The kubelet then registers as soon
/// as the API server answers, without a bootstrap token or an approval. It renews the certificate itself.
///
/// # Errors
/// The certificate cannot be made or written.
pub fn ensure(
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

/// The name in Kubernetes for which the client certificate was issued; `None` without a readable certificate.
#[must_use]
pub fn registered_name(directory: &Path) -> Option<String> {
    let found = fs::read(directory.join(CURRENT)).ok()?;
    let chain = certificates_from_pem(&found).ok()?;
    let user = common_name(chain.first()?).ok()?;
    let name = user.strip_prefix(&kubelet_user(""))?;
    (!name.is_empty()).then(|| name.to_owned())
}

/// Removes the certificate that the cluster issued, and `kubeconfig`, which names it, unless one of the CAs (PEM) has
/// signed the certificate for a node of this name. Returns whether it removed them.
///
/// The cluster rejects a worker's certificate after a rotation of the CA, and the kubelet cannot renew it. Without its
/// files, the kubelet bootstraps again.
///
/// # Errors
/// A file cannot be read or removed.
pub fn forget(
    directory: &Path,
    kubeconfig: &Path,
    accepted: &str,
    nodename: &str,
) -> io::Result<bool> {
    let certificate = directory.join(CURRENT);
    let found = match fs::read(&certificate) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        read => read?,
    };
    if is_signed(&found, accepted, nodename) {
        return Ok(false);
    }
    // The certificate last: after a power cut in between, the next call repeats both steps.
    remove_if_there(kubeconfig)?;
    remove_if_there(&certificate)?;
    Ok(true)
}

/// Removes the serving certificate once half of its lifetime has passed, if it is not valid yet because it was made
/// under a wrong clock, or if it is for another name than the node's. The kubelet then makes a new one. Returns whether
/// it removed one.
///
/// # Errors
/// A file cannot be read or removed.
pub fn forget_serving(directory: &Path, nodename: &str, now: SystemTime) -> io::Result<bool> {
    let [certificate, key] = SERVING.map(|name| directory.join(name));
    let found = match fs::read(&certificate) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        read => read?,
    };
    let chain = certificates_from_pem(&found).unwrap_or_default();
    let leaf = chain.first();
    let dates = leaf.and_then(|leaf| validity(leaf).ok());
    let names = leaf.and_then(|leaf| names(leaf).ok()).unwrap_or_default();
    let is_named = names.iter().any(|name| name == nodename);
    let is_fresh = |(from, until): (SystemTime, SystemTime)| {
        let life = until.duration_since(from).unwrap_or_default();
        (from..from + life / 2).contains(&now)
    };
    // The kubelet reports a damaged one.
    if dates.is_none_or(|dates| is_named && is_fresh(dates)) {
        return Ok(false);
    }
    // The certificate last: after a power cut in between, the next call repeats both steps.
    remove_if_there(&key)?;
    remove_if_there(&certificate)?;
    Ok(true)
}

/// Whether one of the CAs (PEM) has signed the certificate for a node of this name. An expired certificate counts: the
/// kubelet replaces it at its start, and the clock of a worker may not be set yet.
fn is_signed(pem: &[u8], accepted: &str, nodename: &str) -> bool {
    let (Ok(chain), Ok(cas)) = (
        certificates_from_pem(pem),
        certificates_from_pem(accepted.as_bytes()),
    ) else {
        return false;
    };
    let begin = chain.first().and_then(|leaf| validity(leaf).ok());
    is_for(&chain, nodename)
        && begin.is_some_and(|(begin, _)| verify_client(&chain, &cas, begin).is_ok())
}

fn is_good(pem: &[u8], accepted: &str, nodename: &str, now: SystemTime) -> bool {
    let (Ok(chain), Ok(cas)) = (
        certificates_from_pem(pem),
        certificates_from_pem(accepted.as_bytes()),
    ) else {
        return false;
    };
    is_for(&chain, nodename) && verify_client(&chain, &cas, now).is_ok()
}

/// Whether the first certificate is the one of a node of this name.
fn is_for<C: AsRef<[u8]>>(chain: &[C], nodename: &str) -> bool {
    let user = chain
        .first()
        .and_then(|leaf| common_name(leaf.as_ref()).ok());
    user.is_some_and(|user| user == kubelet_user(nodename))
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

    fn new_ca(now: SystemTime) -> Ca {
        Ca::generate(Algorithm::EcdsaP256, "kubernetes", "", now).unwrap()
    }

    #[test]
    fn certificate_is_issued_once_and_again_when_it_cannot_be_used() {
        let scratch = tempfile::tempdir().unwrap();
        let directory = scratch.path().join("pki");
        let now = SystemTime::now();
        let (ca, other) = (new_ca(now), new_ca(now));
        let issue =
            |ca: &Ca, name: &str, now| ensure(&directory, (ca, &ca.pem().crt), name, now).unwrap();
        assert!(issue(&ca, "a", now));
        let link = directory.join(CURRENT);
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        let text = fs::read_to_string(&link).unwrap();
        assert!(text.contains("PRIVATE KEY"), "{text}");
        let chain = certificates_from_pem(text.as_bytes()).unwrap();
        let cas = certificates_from_pem(ca.pem().crt.as_bytes()).unwrap();
        let groups = verify_client(&chain, &cas, now).unwrap();
        assert_eq!(groups, ["system:nodes"]);
        assert!(!issue(&ca, "a", now));
        assert_eq!(registered_name(&directory).as_deref(), Some("a"));
        assert_eq!(registered_name(scratch.path()), None);
        // Another name; expired; another CA; damaged.
        assert!(issue(&ca, "b", now));
        let late = now + Duration::from_secs(9000 * 60 * 60);
        assert!(issue(&ca, "b", late));
        assert!(issue(&other, "b", late));
        fs::write(&link, "damaged").unwrap();
        assert!(issue(&other, "b", late));
        assert!(!issue(&other, "b", late));
    }

    #[test]
    fn certificate_of_a_removed_ca_is_forgotten_on_a_worker() {
        let scratch = tempfile::tempdir().unwrap();
        let (directory, kubeconfig) = (scratch.path().join("pki"), scratch.path().join("k"));
        let now = SystemTime::now();
        let (old, new) = (new_ca(now), new_ca(now));
        let both = format!("{}{}", new.pem().crt, old.pem().crt);
        let forget = |accepted: &str| forget(&directory, &kubeconfig, accepted, "a").unwrap();
        let link = directory.join(CURRENT);
        let bootstrapped = || {
            ensure(&directory, (&old, &old.pem().crt), "a", now).unwrap();
            fs::write(&kubeconfig, "x").unwrap();
        };
        // A kubelet that has no certificate yet.
        fs::write(&kubeconfig, "x").unwrap();
        assert!(!forget(&new.pem().crt) && kubeconfig.exists());
        bootstrapped();
        for accepted in [&old.pem().crt, &both] {
            assert!(!forget(accepted) && link.exists() && kubeconfig.exists());
        }
        assert!(forget(&new.pem().crt));
        assert!(!link.exists() && !kubeconfig.exists());
        assert!(!forget(&new.pem().crt));
        bootstrapped();
        fs::write(&link, "damaged").unwrap();
        assert!(forget(&old.pem().crt) && !link.exists());
    }

    #[test]
    fn serving_certificate_is_removed_after_half_of_its_life() {
        let scratch = tempfile::tempdir().unwrap();
        let directory = scratch.path();
        let now = SystemTime::now();
        assert!(!forget_serving(directory, "a", now).unwrap());
        let ca = new_ca(now);
        let year = Duration::from_secs(365 * 24 * 60 * 60);
        let serving = |ca: &Ca, now| ca.server("a@1", &["a".to_owned()], now, year).unwrap();
        let served = serving(&ca, now);
        let [certificate, key] = SERVING.map(|name| directory.join(name));
        fs::write(&certificate, &served.crt).unwrap();
        fs::write(&key, &served.key).unwrap();
        let days = |number: u32| now + Duration::from_secs(24 * 60 * 60) * number;
        assert!(!forget_serving(directory, "a", days(150)).unwrap() && certificate.exists());
        assert!(forget_serving(directory, "a", days(200)).unwrap());
        assert!(!certificate.exists() && !key.exists());
        // Made while the clock was years ahead.
        let future = serving(&new_ca(days(800)), days(800));
        fs::write(&certificate, &future.crt).unwrap();
        assert!(forget_serving(directory, "a", now).unwrap() && !certificate.exists());
        // Made under another name of the node.
        fs::write(&certificate, &served.crt).unwrap();
        assert!(forget_serving(directory, "b", now).unwrap() && !certificate.exists());
        fs::write(&certificate, "damaged").unwrap();
        assert!(!forget_serving(directory, "a", days(200)).unwrap() && certificate.exists());
    }

    #[test]
    fn expired_certificate_of_a_worker_is_left_to_the_kubelet() {
        let scratch = tempfile::tempdir().unwrap();
        let long_ago = SystemTime::now() - Duration::from_secs(20_000 * 60 * 60);
        let ca = new_ca(long_ago);
        let accepted = &ca.pem().crt;
        ensure(scratch.path(), (&ca, accepted), "a", long_ago).unwrap();
        let kubeconfig = scratch.path().join("k");
        assert!(!forget(scratch.path(), &kubeconfig, accepted, "a").unwrap());
        // The API server refuses the certificate of another node.
        assert!(forget(scratch.path(), &kubeconfig, accepted, "b").unwrap());
    }
}
