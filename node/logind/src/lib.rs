//! The part of systemd-logind that the kubelet calls over D-Bus: announces the machine's end, and waits for its pods.
//!
//! Owns: the socket in place of the system bus, the handshake and messages of D-Bus (`message.rs`), the inhibitors.
//! Never: decides when the machine ends, stops pods, or passes messages between clients.

mod auth;
mod connection;
mod inhibitors;
mod manager;
mod message;
#[cfg(test)]
mod tests;

use std::convert::Infallible;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use corten_base::console;
use corten_base::durable;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;
use tokio::time::sleep;

pub use inhibitors::{Inhibitors, TakeError};

/// Directory of [`SOCKET`], which only root may enter.
pub const DIRECTORY: &str = "/run/dbus";
/// The socket, at the place where the kubelet looks for the system bus.
pub const SOCKET: &str = "/run/dbus/system_bus_socket";
/// The longest delay that clients may ask for (`InhibitDelayMaxUSec`; the reference's value). A kubelet whose grace
/// periods are longer takes no inhibitor.
pub const LONGEST_DELAY: Duration = Duration::from_secs(20 * 60);

/// Limit of connections. The kubelet has one, and a second one while it restarts.
const MOST: usize = 8;
/// Pause after an error of the listener, which lacks descriptors or memory then.
const PAUSE: Duration = Duration::from_secs(1);

/// Binds the socket `path`, which only its owner may reach.
///
/// # Errors
/// The path cannot be bound.
pub fn bind(path: &Path) -> io::Result<UnixListener> {
    durable::remove_if_there(path)?;
    let listener = UnixListener::bind(path)?;
    fs::set_permissions(path, Permissions::from_mode(0o600))?;
    Ok(listener)
}

/// Serves the clients of `listener` that run as the user `owner`.
pub async fn serve(listener: &UnixListener, owner: u32, inhibitors: Inhibitors) -> Infallible {
    let guid = uuid::Uuid::new_v4().simple().to_string();
    let places = Arc::new(Semaphore::new(MOST));
    let mut is_told = false;
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => {
                is_told = false;
                stream
            }
            Err(error) => {
                if !is_told {
                    console::warn(&format!(
                        "{SOCKET}: cannot accept the kubelet's connection: {error}; trying every second"
                    ));
                }
                is_told = true;
                sleep(PAUSE).await;
                continue;
            }
        };
        // A refused client learns it from the closed connection. The kubelet tries again.
        let Ok(place) = places.clone().try_acquire_owned() else {
            continue;
        };
        if !is_of(&stream, owner) {
            continue;
        }
        let (guid, inhibitors) = (guid.clone(), inhibitors.clone());
        tokio::spawn(async move {
            if let Err(error) = connection::serve(stream, &guid, &inhibitors).await {
                console::warn(&format!("{SOCKET}: a connection is closed: {error}"));
            }
            drop(place);
        });
    }
}

fn is_of(stream: &UnixStream, owner: u32) -> bool {
    stream.peer_cred().is_ok_and(|peer| peer.uid() == owner)
}
