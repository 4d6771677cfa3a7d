//! The listening socket of a service that starts on demand, and the wait for a connection while no process serves.
//!
//! Never accepts a connection. The service's process does, on a copy of the socket; what it leaves waits in the
//! kernel's queue for the next process.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::fd::OwnedFd;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::policy::Event;
use crate::Id;

/// A listening socket.
#[derive(Debug)]
pub(super) struct Socket {
    listener: TcpListener,
    /// Waits for a connection.
    waits: JoinSet<()>,
}

impl Socket {
    /// A copy for the service's process.
    ///
    /// # Errors
    /// No file descriptors are left.
    pub(super) fn share(&self) -> io::Result<OwnedFd> {
        Ok(self.listener.try_clone()?.into())
    }
}

/// Listens on `address` unless `socket` does already, and reports the next connection.
///
/// # Errors
/// The address is in use, or no file descriptors are left.
pub(super) fn listen(
    socket: &mut Option<Socket>,
    address: SocketAddr,
    id: Id,
    told: mpsc::UnboundedSender<(Id, Event)>,
) -> io::Result<()> {
    let opened = match socket.take() {
        Some(open) => open,
        None => Socket {
            listener: bind(address)?,
            waits: JoinSet::new(),
        },
    };
    let opened = socket.insert(opened);
    // A new registration reports a connection that is waiting already.
    let readable = watched(opened.listener.try_clone()?)?;
    // An earlier wait ends here.
    opened.waits = JoinSet::new();
    opened.waits.spawn(async move {
        if readable.readable().await.is_ok() {
            let _ = told.send((id, Event::Connected));
        }
    });
    Ok(())
}

#[expect(
    deprecated,
    reason = "its successor is unsafe; a listener keeps its descriptor as long as it lives"
)]
fn watched(listener: TcpListener) -> io::Result<AsyncFd<TcpListener>> {
    AsyncFd::with_interest(listener, Interest::READABLE)
}

fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let bound = TcpListener::bind(address).or_else(|error| {
        // The kernel may have no IPv6.
        if address.is_ipv6() && address.ip().is_unspecified() {
            TcpListener::bind((Ipv4Addr::UNSPECIFIED, address.port()))
        } else {
            Err(error)
        }
    });
    let listener = bound?;
    // The service's process shares this flag.
    listener.set_nonblocking(true)?;
    Ok(listener)
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream;
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    const SOON: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn each_wait_reports_one_connection_and_loses_none() {
        let (speaker, mut told) = mpsc::unbounded_channel();
        let mut socket = None;
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        listen(&mut socket, any, "x".into(), speaker.clone()).unwrap();
        let listener = socket.as_ref().unwrap().share().unwrap();
        let listener = TcpListener::from(listener);
        let address = listener.local_addr().unwrap();
        assert_eq!(told.try_recv().ok(), None);
        let mut connect = async || {
            let client = TcpStream::connect(address).unwrap();
            let event = timeout(SOON, told.recv()).await.unwrap().unwrap();
            assert_eq!(event, ("x".into(), Event::Connected));
            client
        };
        let _first = connect().await;
        let _served = listener.accept().unwrap();
        // The process has ended, and a client waits already.
        let _second = TcpStream::connect(address).unwrap();
        listen(&mut socket, any, "x".into(), speaker).unwrap();
        let _third = connect().await;
        assert_eq!(listener.local_addr().unwrap(), address);
    }

    #[test]
    fn taken_address_is_an_error() {
        let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let error = bind(taken.local_addr().unwrap()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
    }
}
