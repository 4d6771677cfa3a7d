//! The connection to a member, and what all calls have in common.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Code, Response};

use crate::error::{Attempt, EtcdError, chain, said};
use crate::refusal::Refusal;
use crate::wire::etcdserverpb::StatusRequest;
use crate::wire::etcdserverpb::maintenance_client::MaintenanceClient;

/// How long nothing may come while a call runs until the member is asked whether it lives. etcd closes connections
/// that ask more often than every 5 s (`--grpc-keepalive-min-time`).
const KEEPALIVE: Duration = Duration::from_secs(10);
/// For the answer to that.
const KEEPALIVE_ANSWER: Duration = Duration::from_secs(10);

/// Whom to believe, and as whom to call. PEM; `Debug` hides the key.
#[derive(Clone)]
pub struct Tls {
    /// The authorities that may have signed a member's certificate.
    pub ca: String,
    /// The caller's own certificate.
    pub crt: String,
    /// Its key.
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

/// A connection to one member. Clones share it.
#[derive(Debug, Clone)]
pub struct Client {
    channel: Channel,
    endpoint: Arc<str>,
    timeout: Duration,
}

impl Client {
    /// Connects to the first endpoint (`host:2379`, `[2001:db8::1]:2379`) whose member answers a request for its
    /// status within `timeout`, which is also the time each later call has.
    ///
    /// A member answers it without a leader, too, so a client of a cluster that has lost its quorum connects; ask
    /// [`Client::health`].
    ///
    /// # Errors
    /// [`EtcdError::NoEndpoint`] without endpoints, else [`EtcdError::Connect`] with the reason of each.
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
            let why = match attempt {
                Ok(Ok(client)) => return Ok(client),
                Ok(Err(why)) => why,
                Err(_) => format!("no answer within {timeout:?}"),
            };
            let endpoint = endpoint.clone();
            attempts.push(Attempt { endpoint, why });
        }
        Err(EtcdError::Connect(attempts))
    }

    /// A client over a channel that is there already.
    pub(crate) fn over(channel: Channel, endpoint: &str, timeout: Duration) -> Client {
        Client {
            channel,
            endpoint: endpoint.into(),
            timeout,
        }
    }

    /// The endpoint whose member answers, as it was given.
    #[must_use]
    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// What a generated client is made of.
    pub(crate) fn channel(&self) -> Channel {
        self.channel.clone()
    }

    /// The time a call has.
    pub(crate) fn timeout(&self) -> Duration {
        self.timeout
    }

    /// The answer to a call, in the time a call has. `what` completes "cannot ...".
    pub(crate) async fn call<T>(
        &self,
        what: &'static str,
        answer: impl Future<Output = Result<Response<T>, tonic::Status>>,
    ) -> Result<T, EtcdError> {
        self.call_within(what, self.timeout, answer).await
    }

    /// The same in another time.
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

    /// What a status says that is no answer.
    pub(crate) fn failed(&self, what: &'static str, status: &tonic::Status) -> EtcdError {
        let endpoint = self.endpoint().to_owned();
        let refusal = Refusal::of(status.code(), status.message());
        // What etcd says has no cause on this side; what the transport says has one.
        match std::error::Error::source(status) {
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

    /// Nothing came in time.
    pub(crate) fn silent(&self, what: &'static str, within: Duration) -> EtcdError {
        EtcdError::Silent {
            what,
            endpoint: self.endpoint().to_owned(),
            within,
        }
    }

    /// What came is not what etcd answers.
    pub(crate) fn broken(&self, what: &'static str, why: &'static str) -> EtcdError {
        EtcdError::Broken {
            what,
            endpoint: self.endpoint().to_owned(),
            why,
        }
    }
}

/// A status that has no text is told by the name of its code.
fn code_name(code: Code) -> &'static str {
    match code {
        Code::Unimplemented => "it does not know the method",
        _ => code.description(),
    }
}

async fn connect_one(endpoint: &str, tls: &Tls, timeout: Duration) -> Result<Client, String> {
    let transport = |error: tonic::transport::Error| chain(&error);
    let uri = Endpoint::from_shared(format!("https://{endpoint}")).map_err(transport)?;
    // A name in brackets is an address, which a certificate has without them.
    let host = uri.uri().host().unwrap_or_default();
    let host = host
        .trim_start_matches('[')
        .trim_end_matches(']')
        .to_owned();
    let config = ClientTlsConfig::new()
        .ca_certificate(Certificate::from_pem(&tls.ca))
        .identity(Identity::from_pem(&tls.crt, &tls.key))
        .domain_name(host);
    // Only while a call runs: etcd counts such requests of an idle connection as an attack and closes it.
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
    // TLS 1.3 tells a client that its certificate is refused only when it reads.
    let answer = MaintenanceClient::new(client.channel())
        .status(StatusRequest {})
        .await;
    match answer {
        Ok(_) => Ok(client),
        Err(status) => Err(client.failed("connect", &status).reason()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_is_not_shown() {
        let tls = Tls {
            ca: "authority".to_owned(),
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
