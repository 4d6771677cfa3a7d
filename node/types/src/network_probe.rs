//! Probes whose success shows that the network works.

use corten_api::common::Url;
use corten_api::talos::resource::definitions::network as wire;
use corten_resources::{Definition, Spec};
use serde::Serialize;

use super::network_spec::Layer;
use super::{column, open};

const NAMESPACE: &str = "network";

/// A desired probe; its id is `tcp:` and the endpoint, or `http:` and the URL.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ProbeSpec {
    /// Interval between attempts.
    #[serde(serialize_with = "duration")]
    pub interval: std::time::Duration,
    /// Number of consecutive failures after which the probe counts as failed.
    pub failure_threshold: u32,
    /// Target of the probe.
    #[serde(flatten)]
    pub target: Target,
    /// Layer that set it.
    pub layer: Layer,
}

impl ProbeSpec {
    /// The id of the probe's resource.
    #[must_use]
    pub fn id(&self) -> String {
        match &self.target {
            Target::Tcp(probe) => format!("tcp:{}", probe.endpoint),
            Target::Http(probe) => format!("http:{}", probe.url),
        }
    }
}

/// Target of a probe.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Target {
    /// A TCP connection.
    Tcp(TcpProbe),
    /// An HTTP request.
    Http(HttpProbe),
}

/// A TCP connection to a port.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TcpProbe {
    /// `host:port`.
    pub endpoint: String,
    /// Timeout of an attempt.
    #[serde(serialize_with = "duration")]
    pub timeout: std::time::Duration,
}

/// A request to a web server; a status below 400 is a success.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct HttpProbe {
    /// `http` or `https`.
    pub url: String,
    /// Timeout of an attempt.
    #[serde(serialize_with = "duration")]
    pub timeout: std::time::Duration,
}

impl TcpProbe {
    fn message(&self) -> wire::TcpProbeSpec {
        wire::TcpProbeSpec {
            endpoint: self.endpoint.clone(),
            timeout: self.timeout.try_into().ok(),
        }
    }
}

impl HttpProbe {
    fn message(&self) -> wire::HttpProbeSpec {
        let full_path = self.url.clone();
        wire::HttpProbeSpec {
            url: Some(Url { full_path }),
            timeout: self.timeout.try_into().ok(),
        }
    }
}

fn duration<S: serde::Serializer>(
    value: &std::time::Duration,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&format!("{value:?}"))
}

impl Spec for ProbeSpec {
    const DEFINITION: Definition = open("ProbeSpecs.net.talos.dev", NAMESPACE, &[], &[]);

    type Message = wire::ProbeSpecSpec;

    fn message(&self) -> wire::ProbeSpecSpec {
        let (tcp, http) = match &self.target {
            Target::Tcp(probe) => (Some(probe.message()), None),
            Target::Http(probe) => (None, Some(probe.message())),
        };
        wire::ProbeSpecSpec {
            interval: self.interval.try_into().ok(),
            failure_threshold: self.failure_threshold.into(),
            tcp,
            config_layer: self.layer.number(),
            http,
        }
    }
}

/// Result of a [`ProbeSpec`]; same id.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ProbeStatus {
    /// Whether the network works according to this probe.
    pub success: bool,
    /// The last failure; empty after a success.
    pub last_error: String,
}

impl Spec for ProbeStatus {
    const DEFINITION: Definition = open(
        "ProbeStatuses.net.talos.dev",
        NAMESPACE,
        &["probe", "probes"],
        &[column("Success", ".success")],
    );

    type Message = wire::ProbeStatusSpec;

    fn message(&self) -> wire::ProbeStatusSpec {
        wire::ProbeStatusSpec {
            success: self.success,
            last_error: self.last_error.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use corten_resources::AnySpec as _;

    use super::*;

    #[test]
    fn probe_spec_shows_its_target() {
        let spec = ProbeSpec {
            interval: Duration::from_secs(1),
            failure_threshold: 0,
            target: Target::Http(HttpProbe {
                url: "https://example.org/health".to_owned(),
                timeout: Duration::from_secs(10),
            }),
            layer: Layer::Configuration,
        };
        assert_eq!(
            spec.to_yaml().unwrap(),
            "interval: 1s\nfailureThreshold: 0\nhttp:\n  url: https://example.org/health\n  \
             timeout: 10s\nlayer: configuration\n"
        );
        assert_eq!(spec.id(), "http:https://example.org/health");
        let message = spec.message();
        assert_eq!((message.tcp, message.config_layer), (None, 4));
        let http = message.http.unwrap();
        assert_eq!(http.url.unwrap().full_path, "https://example.org/health");
        assert_eq!(http.timeout.unwrap().seconds, 10);
        let tcp = ProbeSpec {
            target: Target::Tcp(TcpProbe {
                endpoint: "192.0.2.1:443".to_owned(),
                timeout: Duration::from_millis(1500),
            }),
            ..spec
        };
        let tcp = tcp.message().tcp.unwrap();
        assert_eq!(tcp.endpoint, "192.0.2.1:443");
        assert_eq!(tcp.timeout.unwrap().nanos, 500_000_000);
        let status = ProbeStatus {
            success: false,
            last_error: "refused".to_owned(),
        };
        assert_eq!(status.message().last_error, "refused");
    }
}
