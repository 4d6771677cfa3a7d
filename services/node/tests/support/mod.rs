//! What tests of daemons as processes share.

use std::net::SocketAddr;

use tokio::net::TcpSocket;

/// A port of 127.0.0.1 for a daemon. While this is kept the kernel gives it to nobody who asks for any port, but lets
/// a daemon listen there: both may use an address again (socket(7), `SO_REUSEADDR`).
pub struct Port {
    /// Where it is.
    pub address: SocketAddr,
    _kept: TcpSocket,
}

impl Port {
    /// One of the kernel's choice.
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
