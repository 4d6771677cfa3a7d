//! Helpers shared by tests of daemons as processes.

use std::net::SocketAddr;

use tokio::net::TcpSocket;

/// A port of 127.0.0.1 for a daemon. While this value exists, the kernel does not give the port to another process, but
/// lets the daemon listen on it: both use `SO_REUSEADDR` (socket(7)).
pub struct Port {
    /// The address.
    pub address: SocketAddr,
    _kept: TcpSocket,
}

impl Port {
    /// Reserves a port chosen by the kernel.
    pub fn keep() -> Port {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_reuseaddr(true).unwrap();
        socket.bind(([127, 0, 0, 1], 0).into()).unwrap();
        Port {
            address: socket.local_addr().unwrap(),
            _kept: socket,
        }
    }
}
