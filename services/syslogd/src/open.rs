//! Opens the files that need the daemon's initial privileges, and drops the privileges.

use anyhow::Context as _;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{UnixDatagram, UnixListener};
use std::path::Path;

/// Receive buffer in bytes. It holds a burst of messages while the daemon is busy.
const RECEIVE_BUFFER: usize = 1024 * 1024;

/// Binds the datagram socket, writable for all users.
pub fn dev_log(path: &Path) -> anyhow::Result<UnixDatagram> {
    make_room(path)?;
    let socket = UnixDatagram::bind(path).with_context(|| format!("bind {}", path.display()))?;
    chmod(path, 0o666)?;
    // Best effort: without CAP_NET_ADMIN the system's limit applies.
    let _ = rustix::net::sockopt::set_socket_recv_buffer_size_force(&socket, RECEIVE_BUFFER)
        .or_else(|_| rustix::net::sockopt::set_socket_recv_buffer_size(&socket, RECEIVE_BUFFER));
    socket
        .set_nonblocking(true)
        .context("make the socket non-blocking")?;
    Ok(socket)
}

/// Binds the service's socket, accessible to its owner and group only.
pub fn service(path: &Path) -> anyhow::Result<UnixListener> {
    make_room(path)?;
    let listener = UnixListener::bind(path).with_context(|| format!("bind {}", path.display()))?;
    chmod(path, 0o660)?;
    listener
        .set_nonblocking(true)
        .context("make the socket non-blocking")?;
    Ok(listener)
}

/// Changes to user and group `id` without supplementary groups; the kernel then clears all capabilities. Call it before
/// any thread starts.
pub fn drop_privileges(id: u32) -> anyhow::Result<()> {
    let (user, group) = (
        nix::unistd::Uid::from_raw(id),
        nix::unistd::Gid::from_raw(id),
    );
    nix::unistd::setgroups(&[]).context("drop the supplementary groups")?;
    nix::unistd::setresgid(group, group, group).with_context(|| format!("become group {id}"))?;
    nix::unistd::setresuid(user, user, user).with_context(|| format!("become user {id}"))?;
    Ok(())
}

/// Creates the directory and removes an earlier run's socket.
fn make_room(path: &Path) -> anyhow::Result<()> {
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent).with_context(|| format!("make {}", parent.display()))?;
    }
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("remove the old {}", path.display()))
        }
        _ => Ok(()),
    }
}

fn chmod(path: &Path, mode: u32) -> anyhow::Result<()> {
    fs::set_permissions(path, Permissions::from_mode(mode))
        .with_context(|| format!("set the mode of {}", path.display()))
}
