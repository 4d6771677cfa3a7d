//! The moment from which a metadata service can be asked: a request before it fails, and the next one waits for a pause.

use std::future::Future;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::time::Duration;

use http::Uri;
use tokio::time::{Instant, sleep};

use crate::request::Platform;

/// Interval of the looks at the kernel's routes. A lease comes within milliseconds, so a longer one would delay the boot.
const PAUSE: Duration = Duration::from_millis(20);
/// Time after which a route to an alternative address is enough. Router advertisements often come before a lease.
const FIRST_ONLY: Duration = Duration::from_secs(2);

/// Waits until the kernel has a route to the platform's metadata service. `address` waits for an address of the node, for
/// a service that has only a name.
pub async fn await_route(platform: &Platform, address: impl Future<Output = ()>) {
    await_route_to(platform.bases, address).await;
}

async fn await_route_to(bases: &[&str], address: impl Future<Output = ()>) {
    let services: Vec<IpAddr> = bases.iter().filter_map(|base| literal(base)).collect();
    let Some(first) = services.first() else {
        return address.await;
    };
    let begun = Instant::now();
    while !has_route(*first) {
        if begun.elapsed() >= FIRST_ONLY && services.iter().any(|service| has_route(*service)) {
            return;
        }
        sleep(PAUSE).await;
    }
}

/// The address in a URL; `None` for a name.
fn literal(base: &str) -> Option<IpAddr> {
    let url: Uri = base.parse().ok()?;
    url.host()?.trim_matches(['[', ']']).parse().ok()
}

/// Whether the kernel has a route. Sends nothing.
fn has_route(to: IpAddr) -> bool {
    let any: IpAddr = match to {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0));
    socket.is_ok_and(|socket| socket.connect((to, 80)).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOBODY: &str = "http://255.255.255.255/latest";

    async fn waited(bases: &[&str]) -> Duration {
        let begun = Instant::now();
        let lease = sleep(Duration::from_secs(7));
        await_route_to(bases, lease).await;
        begun.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn metadata_service_is_asked_once_the_kernel_has_a_route() {
        let at_once = waited(&["http://127.0.0.1/latest", NOBODY]).await;
        assert_eq!(at_once, Duration::ZERO);
        let other = waited(&[NOBODY, "http://127.0.0.1/latest"]).await;
        assert_eq!(other, FIRST_ONLY);
        let by_name = waited(&["https://metadata.example"]).await;
        assert_eq!(by_name.as_secs(), 7);
        let never = waited(&[NOBODY]);
        let never = tokio::time::timeout(Duration::from_secs(60), never);
        never.await.unwrap_err();
    }
}
