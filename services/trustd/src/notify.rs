//! Telling the supervisor that we serve: the `sd_notify` protocol.

use std::env;
use std::os::unix::net::UnixDatagram;

/// Sends `READY=1` to `$NOTIFY_SOCKET`. Without that variable nobody asked.
pub(crate) fn ready() {
    let Some(path) = env::var_os("NOTIFY_SOCKET") else {
        return;
    };
    let sent = UnixDatagram::unbound().and_then(|socket| socket.send_to(b"READY=1", path));
    if let Err(error) = sent {
        eprintln!("trustd: cannot tell the supervisor that we are ready: {error}");
    }
}
