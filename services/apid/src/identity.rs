//! Our certificate, and whose callers we accept: files that may change.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use rustls::crypto::ring;
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, version};

/// The directory's files. `ca.crt` is not read in maintenance.
const FILES: [&str; 3] = ["ca.crt", "server.crt", "server.key"];

/// The TLS configuration made from a directory, made again when it changes.
#[derive(Debug)]
pub(crate) struct Identity {
    directory: PathBuf,
    maintenance: bool,
    current: Mutex<(Stamp, Arc<ServerConfig>)>,
}

/// What tells one version of the files from another: time, inode (they are
/// replaced by renaming) and length.
type Stamp = [Option<(SystemTime, u64, u64)>; 3];

/// Why there is no TLS configuration.
#[derive(Debug, thiserror::Error)]
pub(crate) enum IdentityError {
    #[error("cannot read {}: {source}", path.display())]
    Read {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("{}: {source}", path.display())]
    Pki {
        path: PathBuf,
        source: corten_pki::PkiError,
    },
    #[error("the certificate and its key cannot be used: {0}")]
    Tls(#[from] rustls::Error),
    #[error("ca.crt cannot be used: {0}")]
    Authority(String),
}

impl Identity {
    pub(crate) fn load(directory: PathBuf, maintenance: bool) -> Result<Identity, IdentityError> {
        let stamp = stamp(&directory);
        let config = read(&directory, maintenance)?;
        Ok(Identity {
            directory,
            maintenance,
            current: Mutex::new((stamp, config)),
        })
    }

    /// The configuration for a connection made now. Files that changed and
    /// cannot be used leave the last good ones in force.
    pub(crate) fn config(&self) -> Arc<ServerConfig> {
        let stamp = stamp(&self.directory);
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if current.0 != stamp {
            match read(&self.directory, self.maintenance) {
                Ok(config) => {
                    println!("apid: read the certificates again");
                    *current = (stamp, config);
                }
                Err(error) => {
                    eprintln!("apid: the new certificates are not used: {error}");
                    // Said once per change, not once per connection.
                    current.0 = stamp;
                }
            }
        }
        current.1.clone()
    }
}

fn stamp(directory: &Path) -> Stamp {
    FILES.map(|name| {
        let metadata = fs::metadata(directory.join(name)).ok()?;
        Some((metadata.modified().ok()?, metadata.ino(), metadata.len()))
    })
}

fn read(directory: &Path, maintenance: bool) -> Result<Arc<ServerConfig>, IdentityError> {
    let file = |name: &str| {
        let path = directory.join(name);
        match fs::read(&path) {
            Ok(bytes) => Ok((path, bytes)),
            Err(source) => Err(IdentityError::Read { path, source }),
        }
    };
    let (path, text) = file("server.crt")?;
    let chain = corten_pki::certificates_from_pem(&text)
        .map_err(|source| IdentityError::Pki { path, source })?;
    let (path, text) = file("server.key")?;
    let key = corten_pki::private_key_from_pem(&text)
        .map_err(|source| IdentityError::Pki { path, source })?;

    let provider = Arc::new(ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&[&version::TLS13])?;
    let builder = if maintenance {
        builder.with_no_client_auth()
    } else {
        let (path, text) = file("ca.crt")?;
        let authorities = corten_pki::certificates_from_pem(&text)
            .map_err(|source| IdentityError::Pki { path, source })?;
        let mut roots = RootCertStore::empty();
        for authority in authorities {
            roots.add(authority)?;
        }
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
            .build()
            .map_err(|error| IdentityError::Authority(error.to_string()))?;
        builder.with_client_cert_verifier(verifier)
    };
    let mut config = builder.with_single_cert(chain, key)?;
    config.alpn_protocols = vec![b"h2".to_vec()];
    // A resumed session would skip the look at the caller's certificate, which
    // may have been replaced, or its authority withdrawn, since.
    config.send_tls13_tickets = 0;
    Ok(Arc::new(config))
}
