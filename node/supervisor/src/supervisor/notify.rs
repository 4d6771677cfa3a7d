//! Readiness notifications: the sd_notify protocol with one socket per service, which identifies the sender.

use std::io;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;

use corten_base::durable::remove_if_there;
use tokio::net::UnixDatagram;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::policy::Event;
use crate::Id;

/// Longer messages are truncated; only `READY=1` has an effect.
const MAX_MESSAGE: usize = 4096;

/// Binds the service's socket for its user only and reports every `READY=1` until the returned value is dropped.
///
/// # Errors
/// The socket cannot be bound or given to the user.
pub fn listen(
    id: Id,
    path: &Path,
    uid: u32,
    told: mpsc::UnboundedSender<(Id, Event)>,
) -> io::Result<JoinSet<()>> {
    // The socket of a removed service may be left.
    remove_if_there(path)?;
    let socket = UnixDatagram::bind(path)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    chown(path, Some(uid), Some(uid))?;
    let mut listening = JoinSet::new();
    listening.spawn(async move {
        let mut buffer = [0; MAX_MESSAGE];
        while let Ok(length) = socket.recv(&mut buffer).await {
            if says_ready(buffer.get(..length).unwrap_or_default()) {
                let ready = Event::Ready("Service is ready".to_owned());
                if told.send((id.clone(), ready)).is_err() {
                    break;
                }
            }
        }
    });
    Ok(listening)
}

/// Whether a line of the message is `READY=1` (sd_notify(3)).
fn says_ready(message: &[u8]) -> bool {
    message
        .split(|byte| *byte == b'\n')
        .any(|line| line == b"READY=1")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ready_notification_may_have_other_lines() {
        assert!(says_ready(b"READY=1"));
        assert!(says_ready(b"STATUS=up\nREADY=1\n"));
        assert!(!says_ready(b"READY=10\nSTATUS=READY=1"));
        assert!(!says_ready(b""));
    }

    #[tokio::test]
    async fn notification_socket_identifies_the_ready_service() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.sock");
        let (sender, mut receiver) = mpsc::unbounded_channel();
        let data = std::fs::metadata(dir.path()).unwrap();
        std::fs::write(&path, "left behind").unwrap();
        let _listening = listen(
            "a".into(),
            &path,
            std::os::unix::fs::MetadataExt::uid(&data),
            sender,
        )
        .unwrap();
        let client = UnixDatagram::unbound().unwrap();
        client.send_to(b"STATUS=starting", &path).await.unwrap();
        client.send_to(b"READY=1", &path).await.unwrap();
        let ready = Event::Ready("Service is ready".to_owned());
        assert_eq!(receiver.recv().await, Some(("a".into(), ready)));
        assert_eq!(receiver.try_recv().ok(), None);
    }
}
