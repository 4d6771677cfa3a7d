//! The node's DNS cache: it answers on local addresses and forwards queries to the network's name servers.
//!
//! `forwarder` answers the queries and `upstreams` asks the name servers; `tcp` serves connections, and hickory's own
//! server serves UDP.

mod forwarder;
mod tcp;
#[cfg(test)]
mod tests;
mod upstreams;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use corten_config::Document;
use hickory_server::Server;
use tokio::net::{TcpListener, UdpSocket};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

pub use forwarder::{Forwarder, Names};
pub use upstreams::is_healthy;

use tcp::{CONNECTIONS, serve};

/// DNS port.
pub const PORT: u16 = 53;

/// Service addresses for pods, one per family; no other machine can have them (the reference's).
const SERVICE: Ipv4Addr = Ipv4Addr::new(169, 254, 116, 108);
/// The one of IPv6; no route leads to it from another machine.
pub const SERVICE_V6: Ipv6Addr =
    Ipv6Addr::new(0xfd54, 0x616c, 0x6f73, 0, 0x204f, 0x5320, 0x444e, 0x0531);

/// Addresses of the cache for the cluster's DNS, in the families of the pod subnets.
#[must_use]
pub fn service_addresses(document: &Document) -> Vec<IpAddr> {
    if !document.host_dns().forward {
        return Vec::new();
    }
    let pods = document.pod_subnets();
    let has = |is: fn(&IpAddr) -> bool| pods.iter().any(|subnet| is(&subnet.address));
    let v4 = (pods.is_empty() || has(IpAddr::is_ipv4)).then_some(SERVICE.into());
    let v6 = has(IpAddr::is_ipv6).then_some(SERVICE_V6.into());
    v4.into_iter().chain(v6).collect()
}

impl Forwarder {
    /// Listens at an address, by UDP and TCP, until the returned value is dropped.
    ///
    /// # Errors
    /// The address is not the node's, or its port is in use.
    pub async fn listen(&self, address: SocketAddr) -> Result<Listening, String> {
        let failed = |error| format!("cannot listen at {address}: {error}");
        let tcp = TcpListener::bind(address).await.map_err(failed)?;
        let address = tcp.local_addr().map_err(failed)?;
        // For port 0, UDP must use the port that TCP got.
        let udp = UdpSocket::bind(address).await.map_err(failed)?;
        let mut by_udp = Server::new(self.clone());
        by_udp.register_socket(udp);
        let places = Arc::new(Semaphore::new(CONNECTIONS));
        let mut by_tcp = JoinSet::new();
        by_tcp.spawn(serve(tcp, self.clone(), places));
        Ok(Listening {
            _by_udp: by_udp,
            _by_tcp: by_tcp,
            address,
        })
    }
}

/// A listener; it answers until it is dropped.
#[expect(
    missing_debug_implementations,
    reason = "the server of the library does not implement Debug"
)]
pub struct Listening {
    _by_udp: Server<Forwarder>,
    _by_tcp: JoinSet<()>,
    /// Address of the listener.
    pub address: SocketAddr,
}
