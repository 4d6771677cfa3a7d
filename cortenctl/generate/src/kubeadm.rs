//! Reads the PKI of a control plane node of kubeadm: three CAs and the key of service account tokens.

use std::fmt::Display;
use std::path::Path;
use std::time::SystemTime;

use anyhow::{Context as _, anyhow, bail, ensure};
use corten_client::files;
use corten_pki::{Ca, Leaf, NODE_LIFETIME, PkiError, Usage, certificates_from_pem, check_key};

use super::secrets::Secrets;

/// The largest file read, in bytes; a chain with a key of 4096 bits is about 10 kB.
const MAX_SIZE: u64 = 1024 * 1024;

const KUBERNETES: &str = "ca";
const AGGREGATOR: &str = "front-proxy-ca";
const ETCD: &str = "etcd/ca";
const SERVICE_ACCOUNT: &str = "sa.key";

/// What to do when a file is missing or holds something else.
const COPY: &str = "copy /etc/kubernetes/pki of a control plane node as root; kubeadm keeps no key of an external CA or of \
    an external etcd there: add it";

/// Secrets of a cluster with the CAs and the service account key of `directory`, and with `token` as the bootstrap
/// token. All other secrets are new. No error quotes a file.
pub(super) fn read(
    directory: &Path,
    token: Option<&str>,
    now: SystemTime,
) -> anyhow::Result<Secrets> {
    check_files(directory)?;
    let ca = |name: &str| read_ca(directory, name, now);
    let new = Secrets::generate(now)?;
    Ok(Secrets {
        kubernetes: ca(KUBERNETES)?,
        aggregator: ca(AGGREGATOR)?,
        etcd: ca(ETCD)?,
        service_account_key: read_service_account_key(&directory.join(SERVICE_ACCOUNT))?,
        bootstrap_token: token.map_or(new.bootstrap_token, str::to_owned),
        ..new
    })
}

/// Names every missing file at once.
fn check_files(directory: &Path) -> anyhow::Result<()> {
    ensure!(
        directory.is_dir(),
        "{} is not a directory that can be read; {COPY}",
        directory.display()
    );
    let cas = [KUBERNETES, AGGREGATOR, ETCD];
    let pairs = cas.map(|ca| [format!("{ca}.crt"), format!("{ca}.key")]);
    let mut missing: Vec<String> = pairs.into_iter().flatten().collect();
    missing.push(SERVICE_ACCOUNT.to_owned());
    missing.retain(|name| !directory.join(name).exists());
    ensure!(
        missing.is_empty(),
        "{} lacks {}; {COPY}",
        directory.display(),
        missing.join(", ")
    );
    Ok(())
}

fn read_ca(directory: &Path, name: &str, now: SystemTime) -> anyhow::Result<Ca> {
    let [crt, key] = ["crt", "key"].map(|suffix| directory.join(format!("{name}.{suffix}")));
    let text = |path: &Path| files::read(path, MAX_SIZE).map_err(|error| with_remedy(&error));
    let (crt_text, key_text) = (text(&crt)?, text(&key)?);
    let ca = Ca::from_pem(&crt_text, &key_text).map_err(|error| match error {
        PkiError::KeyMismatch => anyhow!(
            "{}: {error} {}; copy both files from the same control plane node, and put the certificate of the key first",
            key.display(),
            crt.display()
        ),
        PkiError::Missing("certificate") | PkiError::NotACertificate => {
            with_remedy(&format!("{}: {error}", crt.display()))
        }
        PkiError::NotACa => anyhow!(
            "{}: {error}; put the certificate of the CA first in the file",
            crt.display()
        ),
        PkiError::Missing(_) => with_remedy(&format!("{}: {error}", key.display())),
        _ => anyhow!("{}: {error}", key.display()),
    })?;
    check_ca(&ca, now).with_context(|| crt.display().to_string())?;
    Ok(ca)
}

/// Checks that clients will accept what the CA signs. A node would find out only when its control plane fails.
fn check_ca(ca: &Ca, now: SystemTime) -> anyhow::Result<()> {
    let chain = certificates_from_pem(ca.pem().crt.as_bytes())?;
    let own = chain.first().context("it has no certificate")?;
    let (_, end) = corten_pki::validity(own)?;
    ensure!(
        now < end,
        "the CA has expired: replace it in the cluster before you import it"
    );
    let probe = Leaf {
        common_name: "probe",
        organizations: &[],
        names: &["localhost".to_owned()],
        usage: Usage::Server,
    };
    let signed = ca.leaf(&probe, now, NODE_LIFETIME)?;
    if let Err(error) = corten_pki::verify_issued(&signed, std::slice::from_ref(own), now) {
        bail!(
            "a certificate that this CA signs would be refused ({error}): a node cannot use a CA whose subject has an \
             attribute twice; replace the CA in the cluster before you import it"
        );
    }
    Ok(())
}

fn read_service_account_key(path: &Path) -> anyhow::Result<String> {
    let text = files::read(path, MAX_SIZE).map_err(|error| with_remedy(&error))?;
    check_key(text.as_bytes()).map_err(|error| match error {
        PkiError::Missing(_) => with_remedy(&format!("{}: {error}", path.display())),
        _ => anyhow!("{}: {error}", path.display()),
    })?;
    Ok(text)
}

fn with_remedy(error: &dyn Display) -> anyhow::Error {
    anyhow!("{error:#}; {COPY}")
}

#[cfg(test)]
#[path = "kubeadm_tests.rs"]
mod tests;
