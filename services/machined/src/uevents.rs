//! What udevd says of devices, once it has handled the kernel's message (libudev's monitor).

use std::io;
use std::time::Duration;

use futures_util::FutureExt as _;
use rtnetlink::sys::protocols::NETLINK_KOBJECT_UEVENT;
use rtnetlink::sys::{AsyncSocket as _, AsyncSocketExt as _, SocketAddr, TokioSocket};
use tokio::sync::watch;
use tokio::time::sleep;

use crate::console;
use crate::panics::caught;

/// Where udevd repeats the kernel's messages.
const UDEVD_GROUP: u32 = 2;
/// How much the kernel may keep for us; a limit, not a use. A machine with a thousand devices tells of 2 MiB.
const RECEIVE_BUFFER: usize = 8 * 1024 * 1024;
/// Devices come in bunches; so long one waits for the rest of it.
const BUNCH: Duration = Duration::from_millis(500);
/// After messages were lost.
const RETRY: Duration = Duration::from_secs(5);

/// Messages from now on.
pub struct Uevents(TokioSocket);

impl Uevents {
    /// Listens.
    ///
    /// # Errors
    /// The kernel's.
    pub fn listen() -> io::Result<Uevents> {
        let mut socket = TokioSocket::new(NETLINK_KOBJECT_UEVENT)?;
        // Beyond the system's limit for all, as udevd does: coldplug tells of every device at once.
        let buffer = rustix::net::sockopt::set_socket_recv_buffer_size_force;
        if let Err(error) = buffer(socket.socket_ref(), RECEIVE_BUFFER) {
            console::warn(&format!(
                "devices: the buffer for messages stays small: {error}"
            ));
        }
        socket.socket_mut().bind(&SocketAddr::new(0, UDEVD_GROUP))?;
        Ok(Uevents(socket))
    }

    /// The next message about a device of this subsystem.
    ///
    /// # Errors
    /// The kernel's; messages were lost.
    pub async fn next(&mut self, subsystem: &str) -> io::Result<Message> {
        loop {
            let (bytes, _) = self.0.recv_from_full().await?;
            let message = Message(bytes);
            if message.get("SUBSYSTEM") == Some(subsystem) {
                return Ok(message);
            }
        }
    }

    /// The next bunch of messages about devices of this subsystem.
    ///
    /// # Errors
    /// The kernel's; messages were lost.
    pub async fn bunch(&mut self, subsystem: &str) -> io::Result<Vec<Message>> {
        let mut messages = vec![self.next(subsystem).await?];
        sleep(BUNCH).await;
        while let Some(message) = self.next(subsystem).now_or_never() {
            messages.push(message?);
        }
        Ok(messages)
    }
}

/// `KEY=value` parts that end in NUL, after a header.
#[derive(Debug)]
pub struct Message(Vec<u8>);

impl Message {
    #[cfg(test)]
    pub fn of(text: &str) -> Message {
        Message(text.as_bytes().to_vec())
    }

    /// A value; `None` also for one that is no text.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&str> {
        let mut parts = self.0.split(|byte| *byte == 0);
        let value = parts.find_map(|part| part.strip_prefix(key.as_bytes())?.strip_prefix(b"="))?;
        std::str::from_utf8(value).ok()
    }
}

/// Changes at the start and whenever devices of this subsystem have; counts.
#[must_use]
pub fn follow(subsystem: &'static str) -> watch::Receiver<u64> {
    let (sender, receiver) = watch::channel(0);
    tokio::spawn(async move {
        while !sender.is_closed() {
            if let Ok(Err(error)) = caught(tell(subsystem, &sender)).await {
                console::warn(&format!("devices ({subsystem}): {error}"));
            }
            sleep(RETRY).await;
        }
    });
    receiver
}

async fn tell(subsystem: &str, sender: &watch::Sender<u64>) -> io::Result<()> {
    let mut messages = Uevents::listen()?;
    loop {
        sender.send_modify(|count| *count = count.wrapping_add(1));
        messages.bunch(subsystem).await?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_found_by_their_whole_key() {
        let bytes =
            b"libudev\0\xfe\xed\0DEVNAME_X=a\0DEVNAME=/dev/vda1\0SUBSYSTEM=block\0X=\xff\0=\0";
        let message = Message(bytes.to_vec());
        assert_eq!(message.get("DEVNAME"), Some("/dev/vda1"));
        assert_eq!(message.get("SUBSYSTEM"), Some("block"));
        assert_eq!((message.get("X"), message.get("DEV")), (None, None));
        assert_eq!(Message(Vec::new()).get("X"), None);
    }
}
