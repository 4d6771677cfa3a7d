//! The readiness notification (sd_notify(3)).

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Environment variable with the supervisor's socket: a path, or `@` and an abstract name (unix(7)).
const SOCKET: &str = "NOTIFY_SOCKET";

/// Tells the supervisor that the daemon `name` is ready; without `$NOTIFY_SOCKET` it does nothing. A failure is logged,
/// and the daemon continues.
pub fn ready(name: &str) {
    let Some(socket) = std::env::var_os(SOCKET) else {
        return;
    };
    if let Err(error) = send(&socket, "READY=1") {
        eprintln!("{name}: cannot notify the supervisor of readiness: {error}");
    }
}

fn send(socket: &OsStr, state: &str) -> io::Result<()> {
    let address = match socket.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(socket)?,
    };
    UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &address)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn received(supervisor: &UnixDatagram) -> Vec<u8> {
        let mut buffer = [0; 64];
        supervisor.set_nonblocking(true).unwrap();
        let length = supervisor.recv(&mut buffer).unwrap();
        buffer[..length].to_vec()
    }

    #[test]
    fn notification_reaches_a_path_and_an_abstract_socket() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("notify");
        let supervisor = UnixDatagram::bind(&path).unwrap();
        send(path.as_os_str(), "READY=1").unwrap();
        assert_eq!(received(&supervisor), b"READY=1");

        let name = format!("corten-notify-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let supervisor = UnixDatagram::bind_addr(&address).unwrap();
        send(OsStr::new(&format!("@{name}")), "READY=1").unwrap();
        assert_eq!(received(&supervisor), b"READY=1");
    }

    #[test]
    fn notification_without_a_listener_is_an_error() {
        let directory = tempfile::tempdir().unwrap();
        let nobody = directory.path().join("notify");
        let error = send(nobody.as_os_str(), "READY=1").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        // A closed socket does not make the daemon wait either.
        drop(UnixDatagram::bind(&nobody).unwrap());
        let error = send(nobody.as_os_str(), "READY=1").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
        let long = "a".repeat(200);
        for wrong in ["", "a\0b", &long, &format!("@{long}")] {
            send(OsStr::new(wrong), "READY=1").unwrap_err();
        }
    }
}
