//! The files that machined provides: the CA, the token, the server's certificate. All of them may change.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use corten_daemon::Reloaded;
use corten_pki::{Ca, PkiError};
use rustls::crypto::ring;
use rustls::{ServerConfig, version};
use subtle::ConstantTimeEq as _;

use crate::names::Names;

const NAMES: [&str; 6] = [
    "ca.crt",
    "ca.key",
    "names",
    "token",
    "server.crt",
    "server.key",
];

/// Parsed content of the files.
#[derive(Debug)]
pub(crate) struct Trust {
    /// TLS configuration of the server.
    pub(crate) tls: Arc<ServerConfig>,
    /// The signing CA.
    pub(crate) ca: Ca,
    /// The CAs that the cluster accepts, PEM. The signing one is first.
    pub(crate) cas: String,
    /// Secret that a joining node must show.
    pub(crate) token: Token,
    /// Filter of the names in a request.
    pub(crate) names: Names,
}

/// The secret of joining nodes.
pub(crate) struct Token(Vec<u8>);

impl Token {
    /// Compares in constant time. An empty token matches nothing.
    pub(crate) fn is(&self, shown: &[u8]) -> bool {
        !self.0.is_empty() && bool::from(self.0.ct_eq(shown))
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<secret>")
    }
}

/// Reason why the files are unusable.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FilesError {
    #[error("cannot read {}: {source}", path.display())]
    Read {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("{}: {source}", path.display())]
    Pki { path: PathBuf, source: PkiError },
    #[error("{}: {why}", path.display())]
    Names { path: PathBuf, why: String },
    #[error("the certificate and its key cannot be used: {0}")]
    Tls(#[from] rustls::Error),
}

/// The current content of the files.
#[derive(Debug)]
pub(crate) struct Files(Reloaded<Trust, FilesError, { NAMES.len() }>);

impl Files {
    pub(crate) fn load(directory: PathBuf) -> Result<Files, FilesError> {
        let what = "trustd: the CA, the token and the certificate";
        Reloaded::load(what, directory, NAMES, read).map(Files)
    }

    /// The trust for a new connection.
    pub(crate) fn trust(&self) -> Arc<Trust> {
        self.0.current()
    }
}

/// machined writes the files. `ca.crt` has the signing CA, then the other accepted ones; `names` the control plane's
/// names, and this node's networks.
fn read(directory: &Path) -> Result<Trust, FilesError> {
    let file = |name: &str| {
        let path = directory.join(name);
        fs::read_to_string(&path).map_err(|source| FilesError::Read { path, source })
    };
    let pki = |name: &str| {
        let path = directory.join(name);
        move |source| FilesError::Pki { path, source }
    };
    let cas = file("ca.crt")?;
    let ca = Ca::from_pem(&cas, &file("ca.key")?).map_err(pki("ca.key"))?;
    let token = Token(file("token")?.trim().as_bytes().to_vec());
    let chain = corten_pki::certificates_from_pem(file("server.crt")?.as_bytes())
        .map_err(pki("server.crt"))?;
    let key = corten_pki::private_key_from_pem(file("server.key")?.as_bytes())
        .map_err(pki("server.key"))?;
    let leaf = chain.first().ok_or(PkiError::NotACertificate);
    let own_names = leaf
        .and_then(|leaf| corten_pki::names(leaf))
        .map_err(pki("server.crt"))?;
    let path = directory.join("names");
    let names =
        Names::parse(&file("names")?, &own_names).map_err(|why| FilesError::Names { path, why })?;

    let mut tls = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(&[&version::TLS13])?
        .with_no_client_auth()
        .with_single_cert(chain, key)?;
    tls.alpn_protocols = vec![b"h2".to_vec()];
    // No client returns soon enough to resume a session.
    tls.send_tls13_tickets = 0;
    Ok(Trust {
        tls: Arc::new(tls),
        ca,
        cas,
        token,
        names,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_matches_only_itself() {
        let token = Token(b"abcdef.0123456789abcdef".to_vec());
        assert!(token.is(b"abcdef.0123456789abcdef"));
        for other in [
            "",
            "abcdef.0123456789abcdee",
            "abcdef.0123456789abcdef0",
            "a",
        ] {
            assert!(!token.is(other.as_bytes()), "{other:?}");
        }
        assert!(!Token(Vec::new()).is(b""));
        assert!(!format!("{token:?}").contains("abcdef"));
    }
}
