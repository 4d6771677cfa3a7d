//! The address of a node's API: a host and a port.

use std::fmt;
use std::net::Ipv6Addr;
use std::str::FromStr;

use rustls::pki_types::ServerName;

/// `host`, `host:port`, `[v6]:port`, `[v6]` or a bare IPv6 address. A leading
/// `https://` and a trailing `/` are tolerated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    host: String,
    port: u16,
}

/// The error for a text that is no endpoint.
#[derive(Debug, thiserror::Error)]
#[error("{0:?} is not a host, host:port or [IPv6]:port")]
pub struct BadEndpoint(String);

impl Endpoint {
    /// The name or address, without brackets, with its zone if it has one.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The port, 50000 unless the text has one.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The name that the node's certificate must have: the host without a zone.
    pub(crate) fn server_name(&self) -> Result<ServerName<'static>, BadEndpoint> {
        ServerName::try_from(self.unzoned().to_owned()).map_err(|_| BadEndpoint(self.host.clone()))
    }

    /// `host:port` as in a URL.
    pub(crate) fn authority(&self) -> String {
        written(self.unzoned(), self.port)
    }

    fn unzoned(&self) -> &str {
        self.host
            .split_once('%')
            .map_or(&self.host, |(host, _)| host)
    }
}

fn written(host: &str, port: u16) -> String {
    if host.contains(':') {
        format!("[{host}]:{port}")
    } else {
        format!("{host}:{port}")
    }
}

fn is_v6(text: &str) -> bool {
    let address = text.split_once('%').map_or(text, |(address, _)| address);
    address.parse::<Ipv6Addr>().is_ok()
}

impl FromStr for Endpoint {
    type Err = BadEndpoint;

    fn from_str(text: &str) -> Result<Endpoint, BadEndpoint> {
        let bad = || BadEndpoint(text.to_owned());
        let trimmed = text.trim();
        let trimmed = trimmed.strip_prefix("https://").unwrap_or(trimmed);
        let trimmed = trimmed.strip_suffix('/').unwrap_or(trimmed);
        let (host, port) = if let Some(rest) = trimmed.strip_prefix('[') {
            let (host, tail) = rest.split_once(']').ok_or_else(bad)?;
            if !is_v6(host) {
                return Err(bad());
            }
            match tail {
                "" => (host, None),
                tail => (host, Some(tail.strip_prefix(':').ok_or_else(bad)?)),
            }
        } else if is_v6(trimmed) {
            (trimmed, None)
        } else {
            match trimmed.split_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (trimmed, None),
            }
        };
        let port = match port {
            None => corten_api::PORT,
            Some(port) => port.parse().ok().filter(|port| *port > 0).ok_or_else(bad)?,
        };
        let endpoint = Endpoint {
            host: host.to_owned(),
            port,
        };
        endpoint.server_name().map_err(|_| bad())?;
        Ok(endpoint)
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&written(&self.host, self.port))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_of_an_endpoint_parses() {
        let cases = [
            ("10.0.2.15", "10.0.2.15", 50000),
            ("10.0.2.15:6000", "10.0.2.15", 6000),
            ("cluster.talos.dev", "cluster.talos.dev", 50000),
            ("localhost:50001", "localhost", 50001),
            ("[::1]:50001", "::1", 50001),
            ("[fd00::1]", "fd00::1", 50000),
            ("fd00::1", "fd00::1", 50000),
            ("[fe80::1%eth0]:50000", "fe80::1%eth0", 50000),
            ("https://node1:50000/", "node1", 50000),
        ];
        for (text, host, port) in cases {
            let endpoint: Endpoint = text.parse().unwrap();
            assert_eq!((endpoint.host(), endpoint.port()), (host, port), "{text}");
        }
        let zoned: Endpoint = "[fe80::1%eth0]".parse().unwrap();
        assert_eq!(zoned.authority(), "[fe80::1]:50000");
        assert_eq!(zoned.to_string(), "[fe80::1%eth0]:50000");
    }

    #[test]
    fn malformed_endpoints_are_refused() {
        for text in [
            "",
            ":50000",
            "host:",
            "host:0",
            "host:70000",
            "[::1",
            "[node]:1",
            "a b",
            "http://x",
            "[::1]x",
        ] {
            assert!(text.parse::<Endpoint>().is_err(), "{text:?}");
        }
    }
}
