//! Delivery by UDP: one datagram per message. There are no acknowledgements, so messages lost in the network stay lost.
//! While the address rejects datagrams, delivery waits.

use super::follower::Follower;
use super::message::shortened;
use super::{CONNECT, too_slow};
use crate::store::Store;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use tokio::net::{UdpSocket, lookup_host};
use tokio::time::timeout;

/// Payload limit of a datagram in bytes, for IPv4 and IPv6.
const MOST: usize = 65_000;

/// Delivers until the socket reports an error. `place` is then before the batch that failed.
pub(super) async fn deliver(
    store: &Store,
    address: &str,
    place: &mut Follower,
    on_delivery: &mut impl FnMut(),
) -> io::Error {
    let mut changed = store.changed();
    let socket = match connect(address).await {
        Ok(socket) => socket,
        Err(error) => return error,
    };
    loop {
        changed.mark_unchanged();
        loop {
            let before = place.clone();
            let Some(batch) = place.next() else { break };
            for message in batch.messages {
                if let Err(error) = socket.send(&shortened(message, MOST)).await {
                    *place = before;
                    return error;
                }
            }
            on_delivery();
        }
        if changed.changed().await.is_err() {
            return io::ErrorKind::BrokenPipe.into();
        }
    }
}

async fn connect(address: &str) -> io::Result<UdpSocket> {
    let mut found = timeout(CONNECT, lookup_host(address))
        .await
        .map_err(too_slow)??;
    let address = found.next().ok_or(io::ErrorKind::NotFound)?;
    let any: SocketAddr = match address {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let socket = UdpSocket::bind(any).await?;
    socket.connect(address).await?;
    Ok(socket)
}
