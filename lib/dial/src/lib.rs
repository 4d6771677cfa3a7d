//! TCP connections to hosts with several addresses: of clients, apid, and nodes that join.
//!
//! Owns: the order and the timeouts in which the addresses of a host are tried, and the text form of host and port.
//! Never: queries name servers, or sends data on a connection.

use std::convert::Infallible;
use std::error::Error as _;
use std::future::ready;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use http::Uri;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::dns::Name;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tower::ServiceExt as _;

/// Connects to one of a host's addresses. All addresses of a family share `within` equally, so a dead address leaves
/// time for the others. The second family starts 0.3 s after the first (RFC 8305).
///
/// # Errors
/// The error of the first address of the family that failed last; [`io::ErrorKind::TimedOut`] when it did not answer
/// within its share. An empty list is an error too.
pub async fn one_of(addresses: Vec<SocketAddr>, within: Duration) -> io::Result<TcpStream> {
    let resolved =
        tower::service_fn(move |_: Name| ready(Ok::<_, Infallible>(addresses.clone().into_iter())));
    let mut connector = HttpConnector::new_with_resolver(resolved);
    connector.set_connect_timeout(Some(within));
    // The addresses already contain the port.
    let connected = connector.oneshot(Uri::from_static("http://host")).await;
    connected.map(TokioIo::into_inner).map_err(|error| {
        let below = error
            .source()
            .and_then(|below| below.downcast_ref::<io::Error>());
        match below {
            Some(below) if below.kind() == io::ErrorKind::TimedOut => io::Error::new(
                below.kind(),
                format!("no answer within {} s", within.as_secs()),
            ),
            Some(below) => io::Error::new(below.kind(), below.to_string()),
            None => io::Error::other(error),
        }
    })
}

/// Host and port in the form of a URL.
#[must_use]
pub fn authority(host: &str, port: u16) -> String {
    match host.parse() {
        Ok(IpAddr::V6(address)) => format!("[{address}]:{port}"),
        _ => format!("{host}:{port}"),
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::{TcpListener, TcpSocket};
    use tokio::time::timeout;

    use super::*;

    /// An address where no test listens, so connections are refused.
    const REFUSING: ([u8; 4], u16) = ([127, 0, 0, 1], 1);

    /// A listener that never answers: its backlog is full, so further connections wait (listen(2)).
    struct Silent {
        listener: TcpListener,
        _waiting: Vec<TcpStream>,
    }

    impl Silent {
        async fn new() -> Silent {
            let socket = TcpSocket::new_v4().unwrap();
            socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
            let listener = socket.listen(0).unwrap();
            let address = listener.local_addr().unwrap();
            let mut waiting = Vec::new();
            while let Ok(Ok(stream)) =
                timeout(Duration::from_secs(1), TcpStream::connect(address)).await
            {
                waiting.push(stream);
            }
            Silent {
                listener,
                _waiting: waiting,
            }
        }

        fn address(&self) -> SocketAddr {
            self.listener.local_addr().unwrap()
        }
    }

    #[test]
    fn ipv6_addresses_are_bracketed() {
        assert_eq!(authority("fd00::1", 50001), "[fd00::1]:50001");
        assert_eq!(authority("10.0.0.1", 50001), "10.0.0.1:50001");
        assert_eq!(authority("cp.example.com", 50001), "cp.example.com:50001");
    }

    #[tokio::test]
    async fn silent_address_leaves_time_for_the_next_address() {
        let silent = Silent::new().await;
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let good = listener.local_addr().unwrap();
        let all = vec![silent.address(), REFUSING.into(), good];
        let stream = one_of(all, Duration::from_secs(3)).await.unwrap();
        assert_eq!(stream.peer_addr().unwrap(), good);
    }

    #[tokio::test]
    async fn connection_error_keeps_the_reason() {
        let silent = Silent::new().await;
        let within = Duration::from_secs(1);
        let error = one_of(vec![silent.address()], within).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert_eq!(error.to_string(), "no answer within 1 s");
        let error = one_of(vec![REFUSING.into()], within).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
        one_of(Vec::new(), within).await.unwrap_err();
    }
}
