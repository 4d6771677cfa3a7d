//! The connection to a member, and the common part of all calls.

use std::error::Error;
use std::fmt;
use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Code, Response};

use crate::error::{Attempt, EtcdError, chain, said};
use crate::refusal::Refusal;
use crate::wire::etcdserverpb::StatusRequest;
use crate::wire::etcdserverpb::maintenance_client::MaintenanceClient;

/// Idle time during a call before a keepalive ping. etcd closes connections that ping more often than every 5 s
/// (`--grpc-keepalive-min-time`).
const KEEPALIVE: Duration = Duration::from_secs(10);
/// Timeout of the ping's answer.
const KEEPALIVE_ANSWER: Duration = Duration::from_secs(10);

/// CA and client certificate, in PEM; `Debug` hides the key.
#[derive(Clone)]
pub struct Tls {
    /// CA certificates that may sign a member's certificate.
    pub ca: String,
    /// Client certificate.
    pub crt: String,
    /// Private key of the client certificate.
    pub key: String,
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls")
            .field("ca", &self.ca)
            .field("crt", &self.crt)
            .finish_non_exhaustive()
    }
}

impl Tls {
    /// Reads a member's own credentials from its directory: `ca.crt`, `admin.crt` and `admin.key`.
    ///
    /// # Errors
    /// [`EtcdError::Credentials`].
    pub fn read(directory: &Path) -> Result<Tls, EtcdError> {
        let read = |name| {
            let file = directory.join(name);
            fs::read_to_string(&file).map_err(|source| EtcdError::Credentials { file, source })
        };
        Ok(Tls {
            ca: read("ca.crt")?,
            crt: read("admin.crt")?,
            key: read("admin.key")?,
        })
    }
}

/// A connection to one member. Clones share it.
///
/// The member is the first of the endpoints that answered. The client reconnects to it and never fails over to another
/// one, because calls such as [`Client::status`] are about the member itself.
#[derive(Debug, Clone)]
pub struct Client {
    channel: Channel,
    endpoint: Arc<str>,
    timeout: Duration,
}

impl Client {
    /// Connects to the first endpoint (`host:2379`, `[2001:db8::1]:2379`) whose member answers a status request within
    /// `timeout`. Later calls have the same timeout.
    ///
    /// A member answers the status request even without a leader, so a client can connect to a cluster without quorum;
    /// use [`Client::health`] to check the cluster.
    ///
    /// # Errors
    /// [`EtcdError::NoEndpoint`] without endpoints, or [`EtcdError::Connect`] with the failure of each.
    pub async fn connect(
        endpoints: &[String],
        tls: &Tls,
        timeout: Duration,
    ) -> Result<Client, EtcdError> {
        if endpoints.is_empty() {
            return Err(EtcdError::NoEndpoint);
        }
        let mut attempts = Vec::new();
        for endpoint in endpoints {
            let attempt = tokio::time::timeout(timeout, connect_one(endpoint, tls, timeout)).await;
            let (why, is_refused) = match attempt {
                Ok(Ok(client)) => return Ok(client),
                Ok(Err(failure)) => failure,
                Err(_) => (format!("no answer within {timeout:?}"), false),
            };
            attempts.push(Attempt {
                endpoint: endpoint.clone(),
                why,
                is_refused,
            });
        }
        Err(EtcdError::Connect(attempts))
    }

    /// A client over an existing channel.
    pub(crate) fn over(channel: Channel, endpoint: &str, timeout: Duration) -> Client {
        Client {
            channel,
            endpoint: endpoint.into(),
            timeout,
        }
    }

    /// The connected endpoint, as it was given.
    #[must_use]
    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// Channel for a generated client.
    pub(crate) fn channel(&self) -> Channel {
        self.channel.clone()
    }

    /// Timeout of a call.
    pub(crate) fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Awaits a call with the default timeout. `what` completes "cannot ...".
    pub(crate) async fn call<T>(
        &self,
        what: &'static str,
        answer: impl Future<Output = Result<Response<T>, tonic::Status>>,
    ) -> Result<T, EtcdError> {
        self.call_within(what, self.timeout, answer).await
    }

    /// Awaits a call with another timeout.
    pub(crate) async fn call_within<T>(
        &self,
        what: &'static str,
        within: Duration,
        answer: impl Future<Output = Result<Response<T>, tonic::Status>>,
    ) -> Result<T, EtcdError> {
        match tokio::time::timeout(within, answer).await {
            Ok(Ok(answer)) => Ok(answer.into_inner()),
            Ok(Err(status)) => Err(self.failed(what, &status)),
            Err(_) => Err(self.silent(what, within)),
        }
    }

    /// Converts an error status.
    pub(crate) fn failed(&self, what: &'static str, status: &tonic::Status) -> EtcdError {
        let endpoint = self.endpoint().to_owned();
        let refusal = Refusal::of(status.code(), status.message());
        // An error of the transport has a source, an answer of etcd has none.
        match status.source() {
            Some(cause) if refusal == Refusal::Other => EtcdError::Lost {
                what,
                endpoint,
                why: chain(cause),
            },
            _ => EtcdError::Refused {
                what,
                endpoint,
                refusal,
                said: said(status.message(), code_name(status.code())),
            },
        }
    }

    /// Error for a timeout.
    pub(crate) fn silent(&self, what: &'static str, within: Duration) -> EtcdError {
        EtcdError::Silent {
            what,
            endpoint: self.endpoint().to_owned(),
            within,
        }
    }

    /// Error for an unusable answer.
    pub(crate) fn broken(&self, what: &'static str, why: &'static str) -> EtcdError {
        EtcdError::Broken {
            what,
            endpoint: self.endpoint().to_owned(),
            why,
        }
    }
}

/// Description of a status code, for a status without a text.
fn code_name(code: Code) -> &'static str {
    match code {
        Code::Unimplemented => "it does not support the method",
        _ => code.description(),
    }
}

/// Connects to one endpoint. An error is the reason, and whether the host refused the connection.
async fn connect_one(
    endpoint: &str,
    tls: &Tls,
    timeout: Duration,
) -> Result<Client, (String, bool)> {
    let transport = |error: tonic::transport::Error| (chain(&error), is_refused(&error));
    let uri = Endpoint::from_shared(format!("https://{endpoint}")).map_err(transport)?;
    // Certificates contain an IPv6 address without brackets.
    let host = uri.uri().host().unwrap_or_default();
    let host = host
        .trim_start_matches('[')
        .trim_end_matches(']')
        .to_owned();
    let config = ClientTlsConfig::new()
        .ca_certificate(Certificate::from_pem(&tls.ca))
        .identity(Identity::from_pem(&tls.crt, &tls.key))
        .domain_name(host);
    // Pings only during a call: etcd treats pings of an idle connection as an attack and closes it.
    let channel = uri
        .tls_config(config)
        .map_err(transport)?
        .connect_timeout(timeout)
        .http2_keep_alive_interval(KEEPALIVE)
        .keep_alive_timeout(KEEPALIVE_ANSWER)
        .keep_alive_while_idle(false)
        .connect()
        .await
        .map_err(transport)?;
    let client = Client::over(channel, endpoint, timeout);
    // With TLS 1.3, a client learns only from its first read that its certificate was rejected.
    let answer = MaintenanceClient::new(client.channel())
        .status(StatusRequest {})
        .await;
    match answer {
        Ok(_) => Ok(client),
        Err(status) => Err((client.failed("connect", &status).reason(), false)),
    }
}

/// Whether one of the causes is a refused connection.
fn is_refused(error: &(dyn Error + 'static)) -> bool {
    let causes = std::iter::successors(Some(error), |&error| error.source());
    let mut kinds = causes.filter_map(|cause| cause.downcast_ref::<io::Error>());
    kinds.any(|cause| cause.kind() == io::ErrorKind::ConnectionRefused)
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    /// A valid CA, certificate and key, which no server of these tests accepts.
    fn tls() -> Tls {
        let key = rcgen::KeyPair::generate().unwrap();
        let own = rcgen::CertificateParams::new(Vec::<String>::new()).unwrap();
        let crt = own.self_signed(&key).unwrap().pem();
        Tls {
            ca: crt.clone(),
            crt,
            key: key.serialize_pem(),
        }
    }

    #[tokio::test]
    async fn only_refused_connections_prove_that_no_member_runs() {
        let refusing = || "127.0.0.1:1".to_owned();
        // A host that accepts connections and never answers.
        let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let silent = || silent.local_addr().unwrap().to_string();
        let within = Duration::from_millis(200);
        for (endpoints, is_absent) in [
            (vec![refusing(), refusing()], true),
            (vec![silent()], false),
            (vec![refusing(), silent()], false),
            (vec!["not a host".to_owned()], false),
        ] {
            let error = Client::connect(&endpoints, &tls(), within).await;
            let error = error.unwrap_err();
            assert_eq!(error.is_absent(), is_absent, "{endpoints:?}: {error}");
        }
        assert!(!EtcdError::NoEndpoint.is_absent());
    }

    #[test]
    fn private_key_is_not_in_debug_output() {
        let tls = Tls {
            ca: "CA".to_owned(),
            crt: "certificate".to_owned(),
            key: "hidden".to_owned(),
        };
        let shown = format!("{tls:?}");
        assert!(
            shown.contains("certificate") && !shown.contains("hidden"),
            "{shown}"
        );
    }
}
