//! Address and credentials of an API server.

use std::time::Duration;
use std::{fmt, fs};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::Uri;
use kube::Config;
use kube::config::Kubeconfig;
use secrecy::ExposeSecret as _;

use crate::{ClusterError, PATIENCE};

/// Address and credentials of an API server.
#[derive(Clone, PartialEq, Eq)]
pub struct Access {
    /// URL, such as `https://127.0.0.1:6443`.
    pub server: String,
    /// Name that the server's certificate must have; `None` for the host of the URL.
    pub server_name: Option<String>,
    /// CA certificates for the server's certificate, in PEM.
    pub ca: String,
    /// Client certificate with its chain, in PEM.
    pub crt: String,
    /// Private key of the client certificate, in PEM.
    pub key: String,
}

/// Omits the key, and the certificates, whose fields may contain a key by mistake.
impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("Access");
        debug.field("server", &self.server).finish_non_exhaustive()
    }
}

impl Access {
    /// The client's config; a connection ends after `silence` without a byte from the server.
    pub(crate) fn config(&self, silence: Duration) -> Result<Config, ClusterError> {
        let uri: Result<Uri, _> = self.server.parse();
        let uri = uri.map_err(|error| ClusterError::access("the address of the server", error))?;
        // Without TLS there is no client certificate, and machined could send secrets to any server.
        if uri.scheme_str() != Some("https") {
            return Err(ClusterError::access(
                "the address of the server",
                "it is not https://",
            ));
        }
        let mut config = Config::new(uri);
        config.tls_server_name.clone_from(&self.server_name);
        config.root_cert = Some(blocks(&self.ca, "the CA certificate", is_certificate)?);
        blocks(&self.crt, "the client certificate", is_certificate)?;
        blocks(&self.key, "the client key", is_key)?;
        config.auth_info.client_certificate_data = Some(STANDARD.encode(&self.crt));
        config.auth_info.client_key_data = Some(STANDARD.encode(&self.key).into());
        config.connect_timeout = Some(PATIENCE);
        config.read_timeout = Some(silence);
        config.write_timeout = Some(PATIENCE);
        // Errors are returned at once; a caller that waits has its own time limit.
        config.default_retry = false;
        Ok(config)
    }
}

fn is_certificate(tag: &str) -> bool {
    tag == "CERTIFICATE"
}

fn is_key(tag: &str) -> bool {
    tag.ends_with("PRIVATE KEY")
}

/// Contents of the wanted PEM blocks; at least one.
fn blocks(
    text: &str,
    field: &'static str,
    wanted: fn(&str) -> bool,
) -> Result<Vec<Vec<u8>>, ClusterError> {
    let all = pem::parse_many(text).map_err(|error| ClusterError::access(field, error))?;
    let blocks: Vec<Vec<u8>> = all
        .into_iter()
        .filter(|block| wanted(block.tag()))
        .map(pem::Pem::into_contents)
        .collect();
    if blocks.is_empty() {
        return Err(ClusterError::access(
            field,
            "the text has no PEM block of this type",
        ));
    }
    Ok(blocks)
}

/// Access from the current context of a kubeconfig (YAML or JSON). Files that the kubeconfig refers to need absolute
/// paths, because a text has no directory of its own. A file may hold certificate and key together, as kubelet's does.
///
/// # Errors
/// [`ClusterError::Kubeconfig`]: the kubeconfig is invalid, or lacks the context or a client certificate.
pub fn from_kubeconfig(text: &str) -> Result<Access, ClusterError> {
    let config = Kubeconfig::from_yaml(text).map_err(ClusterError::kubeconfig)?;
    let current = config.current_context.unwrap_or_default();
    let context = config.contexts.into_iter().find(|one| one.name == current);
    let context = context.and_then(|one| one.context);
    let context = context.ok_or_else(|| missing("context", &current))?;
    let cluster = config
        .clusters
        .into_iter()
        .find(|one| one.name == context.cluster);
    let cluster = cluster.and_then(|one| one.cluster);
    let cluster = cluster.ok_or_else(|| missing("cluster", &context.cluster))?;
    let name = context.user.unwrap_or_default();
    let user = config.auth_infos.into_iter().find(|one| one.name == name);
    let user = user.and_then(|one| one.auth_info);
    let user = user.ok_or_else(|| missing("user", &name))?;

    let server = cluster
        .server
        .ok_or_else(|| missing("server of cluster", &context.cluster))?;
    let (inline, path) = (
        cluster.certificate_authority_data,
        cluster.certificate_authority,
    );
    let ca = text_of("certificate-authority", inline, path)?;
    let (inline, path) = (user.client_certificate_data, user.client_certificate);
    let crt = text_of("client-certificate", inline, path)?;
    let inline = user.client_key_data;
    let inline = inline.map(|secret| secret.expose_secret().to_owned());
    let key = text_of("client-key", inline, user.client_key)?;
    Ok(Access {
        server,
        server_name: cluster.tls_server_name,
        ca,
        crt: only(&crt, "client-certificate", is_certificate)?,
        key: only(&key, "client-key", is_key)?,
    })
}

fn missing(what: &str, name: &str) -> ClusterError {
    ClusterError::kubeconfig(format!("it has no {what} {name:?}"))
}

/// A text from base64 in the kubeconfig, or from a file.
fn text_of(
    field: &str,
    inline: Option<String>,
    path: Option<String>,
) -> Result<String, ClusterError> {
    let bytes = match (inline, path) {
        (Some(inline), _) => {
            let bytes = STANDARD.decode(inline.trim());
            bytes.map_err(|error| ClusterError::kubeconfig(format!("{field}-data: {error}")))?
        }
        (None, Some(path)) if path.starts_with('/') => {
            let bytes = fs::read(&path);
            bytes.map_err(|error| {
                ClusterError::kubeconfig(format!("{field}, file {path}: {error}"))
            })?
        }
        (None, Some(path)) => {
            let why = format!("{field}: {path:?} is not an absolute path");
            return Err(ClusterError::kubeconfig(why));
        }
        (None, None) => return Err(ClusterError::kubeconfig(format!("it has no {field}"))),
    };
    String::from_utf8(bytes).map_err(|_| ClusterError::kubeconfig(format!("{field} is not PEM")))
}

/// The wanted PEM blocks of a text.
fn only(text: &str, field: &str, wanted: fn(&str) -> bool) -> Result<String, ClusterError> {
    let all = pem::parse_many(text);
    let all = all.map_err(|error| ClusterError::kubeconfig(format!("{field}: {error}")))?;
    let some: Vec<pem::Pem> = all
        .into_iter()
        .filter(|block| wanted(block.tag()))
        .collect();
    if some.is_empty() {
        return Err(ClusterError::kubeconfig(format!(
            "{field} has no PEM block of this type"
        )));
    }
    Ok(pem::encode_many(&some))
}
