//! The node's certificates and the accepted CAs, read from files that may change.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use corten_daemon::Reloaded;
use rustls::client::Resumption;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig, version};

/// The files of the directory. Maintenance mode does not read `ca.crt` and the client's files, and a worker has no
/// client's files.
const FILES: [&str; 5] = [
    "ca.crt",
    "client.crt",
    "client.key",
    "server.crt",
    "server.key",
];

/// TLS configurations made from the files.
#[derive(Debug)]
pub(crate) struct Current {
    /// TLS configuration of the server.
    pub(crate) server: Arc<ServerConfig>,
    /// TLS configuration for calls to other nodes; `None` on a worker and in maintenance mode.
    pub(crate) client: Option<Arc<ClientConfig>>,
    /// CAs of callers' certificates. Empty in maintenance mode.
    pub(crate) cas: Vec<CertificateDer<'static>>,
    /// The server's certificate, which holds the node's names.
    pub(crate) own: CertificateDer<'static>,
}

/// The configuration of the files' current content.
#[derive(Debug)]
pub(crate) struct Identity(Reloaded<Current, IdentityError, { FILES.len() }>);

/// Reason why there is no TLS configuration.
#[derive(Debug, thiserror::Error)]
pub(crate) enum IdentityError {
    #[error("cannot read {}: {source}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("{}: {source}", path.display())]
    Pki {
        path: PathBuf,
        source: corten_pki::PkiError,
    },
    #[error("the certificate and its key cannot be used: {0}")]
    Tls(#[from] rustls::Error),
    #[error("ca.crt cannot be used: {0}")]
    Ca(String),
}

impl Identity {
    pub(crate) fn load(directory: PathBuf, maintenance: bool) -> Result<Identity, IdentityError> {
        let read = move |directory: &Path| read(directory, maintenance);
        Reloaded::load("apid: the certificates", directory, FILES, read).map(Identity)
    }

    /// The current configuration.
    pub(crate) fn current(&self) -> Arc<Current> {
        self.0.current()
    }
}

/// machined writes `ca.crt`, `server.crt` and `server.key`, on a control plane node also `client.crt` and `client.key`.
/// Without a machine config (`maintenance`) callers show no certificate.
fn read(directory: &Path, maintenance: bool) -> Result<Current, IdentityError> {
    let provider = Arc::new(ring::default_provider());
    let (chain, key) = pair(directory, "server.crt", "server.key")?;
    let own = chain.first().cloned();
    let own = own.ok_or_else(|| IdentityError::Pki {
        path: directory.join("server.crt"),
        source: corten_pki::PkiError::NotACertificate,
    })?;
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&[&version::TLS13])?;
    let (builder, client, cas) = if maintenance {
        (builder.with_no_client_auth(), None, Vec::new())
    } else {
        let cas = certificates(directory, "ca.crt")?;
        let mut roots = RootCertStore::empty();
        for ca in &cas {
            roots.add(ca.clone())?;
        }
        let roots = Arc::new(roots);
        let verifier = WebPkiClientVerifier::builder_with_provider(roots.clone(), provider.clone())
            .build()
            .map_err(|error| IdentityError::Ca(error.to_string()))?;
        let client = client(directory, roots, provider)?;
        (builder.with_client_cert_verifier(verifier), client, cas)
    };
    let mut server = builder.with_single_cert(chain, key)?;
    server.alpn_protocols = vec![b"h2".to_vec()];
    // A resumed session would skip the check of the caller's certificate, which may be replaced, or whose CA may be
    // withdrawn.
    server.send_tls13_tickets = 0;
    Ok(Current {
        server: Arc::new(server),
        client,
        cas,
        own,
    })
}

/// TLS configuration for calls to other nodes, whose certificates must come from the same CAs.
fn client(
    directory: &Path,
    roots: Arc<RootCertStore>,
    provider: Arc<CryptoProvider>,
) -> Result<Option<Arc<ClientConfig>>, IdentityError> {
    if !directory.join("client.crt").exists() {
        return Ok(None);
    }
    let (chain, key) = pair(directory, "client.crt", "client.key")?;
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&version::TLS13])?
        .with_root_certificates(roots)
        .with_client_auth_cert(chain, key)?;
    config.alpn_protocols = vec![b"h2".to_vec()];
    config.resumption = Resumption::disabled();
    Ok(Some(Arc::new(config)))
}

fn pair(
    directory: &Path,
    certificate: &str,
    key: &str,
) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), IdentityError> {
    let chain = certificates(directory, certificate)?;
    let (path, text) = file(directory, key)?;
    let key = corten_pki::private_key_from_pem(&text)
        .map_err(|source| IdentityError::Pki { path, source })?;
    Ok((chain, key))
}

fn certificates(
    directory: &Path,
    name: &str,
) -> Result<Vec<CertificateDer<'static>>, IdentityError> {
    let (path, text) = file(directory, name)?;
    corten_pki::certificates_from_pem(&text).map_err(|source| IdentityError::Pki { path, source })
}

fn file(directory: &Path, name: &str) -> Result<(PathBuf, Vec<u8>), IdentityError> {
    let path = directory.join(name);
    match fs::read(&path) {
        Ok(bytes) => Ok((path, bytes)),
        Err(source) => Err(IdentityError::Read { path, source }),
    }
}
