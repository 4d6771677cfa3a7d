//! Requests the node's certificate from trustd, for a node that cannot sign its own.
//!
//! The key is generated here and never leaves the node. Only the config's CAs are trusted (`machine.ca`,
//! `machine.acceptedCAs`), not those in trustd's answer.

use std::io;
use std::time::{Duration, SystemTime};

use corten_api::securityapi::CertificateRequest;
use corten_api::securityapi::security_service_client::SecurityServiceClient;
use corten_dial::authority;
use corten_pki::{CertificateAndKey, PkiError};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tonic::Request;
use tonic::transport::{Certificate, ClientTlsConfig, Uri};

/// Timeout of one control plane node (the reference's value).
const PATIENCE: Duration = Duration::from_secs(10);
/// Part of that for connecting to all addresses of a name, so that an answer still has time.
const CONNECT: Duration = Duration::from_secs(5);
/// Limit of control plane nodes asked in one round.
const MOST: usize = 8;

/// Parameters of a certificate request.
#[derive(Debug, Clone)]
pub struct Asked {
    /// Addresses or names of the control plane nodes, in order of preference.
    pub endpoints: Vec<String>,
    /// Port of trustd.
    pub port: u16,
    /// Trusted CAs, PEM.
    pub cas: String,
    /// Secret of joining nodes.
    pub token: corten_values::Secret,
    /// Common name of the certificate: the node's name.
    pub common_name: String,
    /// Names and addresses in the certificate.
    pub names: Vec<String>,
}

/// Reason why one control plane node gave no certificate.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// The node's names do not make a valid request.
    #[error("cannot create the certificate request")]
    Request(#[source] PkiError),
    /// The token is not valid metadata.
    #[error("machine.token has characters that cannot be sent")]
    Token,
    /// The node is unreachable, or its certificate is not trusted.
    #[error("cannot connect")]
    Connect(#[from] tonic::transport::Error),
    /// The node refused the request.
    #[error("it refused: {0}")]
    Refused(String),
    /// The certificate in the answer is unusable.
    #[error("the certificate in its answer cannot be used")]
    Answer(#[source] PkiError),
    /// The node did not answer in time.
    #[error("no answer within {} s", PATIENCE.as_secs())]
    Silent,
}

/// The certificate, and its issuer.
#[derive(Debug)]
pub struct Joined {
    /// The certificate and its new key.
    pub issued: CertificateAndKey,
    /// The endpoint whose trustd signed it.
    pub endpoint: String,
}

/// Asks the control plane nodes one after the other until one returns a certificate that is usable at `now`.
///
/// # Errors
/// The failures of all nodes in one text.
pub async fn ask(asked: &Asked, now: SystemTime) -> Result<Joined, String> {
    let mut failures = Vec::new();
    for endpoint in asked.endpoints.iter().take(MOST) {
        let answer = tokio::time::timeout(PATIENCE, ask_one(endpoint, asked, now)).await;
        match answer.unwrap_or(Err(JoinError::Silent)) {
            Ok(issued) => {
                return Ok(Joined {
                    issued,
                    endpoint: endpoint.clone(),
                });
            }
            Err(error) => failures.push(format!(
                "trustd at {}: {}",
                authority(endpoint, asked.port),
                corten_resources::controller::with_causes(&error)
            )),
        }
    }
    if failures.is_empty() {
        failures.push("no address of the control plane is known".to_owned());
    }
    Err(failures.join("; "))
}

async fn ask_one(
    endpoint: &str,
    asked: &Asked,
    now: SystemTime,
) -> Result<CertificateAndKey, JoinError> {
    let (csr, key) =
        corten_pki::server_request(&asked.common_name, &asked.names).map_err(JoinError::Request)?;
    let mut request = Request::new(CertificateRequest {
        csr: csr.into_bytes(),
    });
    let token = asked.token.expose().parse().map_err(|_| JoinError::Token)?;
    request.metadata_mut().insert("token", token);

    let tls = ClientTlsConfig::new()
        .ca_certificate(Certificate::from_pem(&asked.cas))
        .domain_name(endpoint);
    let uri = format!("https://{}", authority(endpoint, asked.port));
    let (host, port) = (endpoint.to_owned(), asked.port);
    let connector = tower::service_fn(move |_: Uri| connect(host.clone(), port));
    let channel = tonic::transport::Endpoint::from_shared(uri)?
        .tls_config(tls)?
        .connect_with_connector(connector)
        .await?;
    let answer = SecurityServiceClient::new(channel)
        .certificate(request)
        .await
        .map_err(|status| JoinError::Refused(status.message().to_owned()))?;
    let crt = String::from_utf8(answer.into_inner().crt)
        .map_err(|_| JoinError::Answer(PkiError::Missing("certificate")))?;
    let issued = CertificateAndKey { crt, key };
    let cas = corten_pki::certificates_from_pem(asked.cas.as_bytes()).map_err(JoinError::Answer)?;
    corten_pki::verify_issued(&issued, &cas, now).map_err(JoinError::Answer)?;
    Ok(issued)
}

/// Connects to one of the host's addresses; TLS follows later. A dead address must not keep a worker from the other
/// addresses of the name.
async fn connect(host: String, port: u16) -> io::Result<TokioIo<TcpStream>> {
    let addresses = tokio::net::lookup_host((host, port)).await?;
    let stream = corten_dial::one_of(addresses.collect(), CONNECT).await?;
    Ok(TokioIo::new(stream))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn every_failed_endpoint_is_named() {
        // A port without a listener, which no test uses.
        let port = 1;
        let mut asked = Asked {
            endpoints: vec!["127.0.0.1".to_owned(), "localhost".to_owned()],
            port,
            cas: String::new(),
            token: corten_values::Secret::new("hidden"),
            common_name: "worker-1".to_owned(),
            names: vec!["worker-1".to_owned()],
        };
        let why = ask(&asked, SystemTime::now()).await.unwrap_err();
        for place in ["127.0.0.1", "localhost"] {
            assert!(
                why.contains(&format!("trustd at {place}:{port}: cannot connect")),
                "{why}"
            );
        }
        assert!(!why.contains("hidden"), "{why}");
        asked.endpoints.clear();
        assert!(
            ask(&asked, SystemTime::now())
                .await
                .unwrap_err()
                .contains("no address")
        );
    }
}
