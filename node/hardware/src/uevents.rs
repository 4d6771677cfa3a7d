//! Receives udevd's messages about handled device events (libudev's monitor), at one socket for all of machined.
//!
//! A follower of a subsystem has a channel with a count of messages. It wakes when the count changes, and inspects the
//! *current* devices, also after lost messages. So nothing waits for a slow follower, and it misses nothing.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use corten_base::console;
use corten_base::panics::caught;
use futures_util::FutureExt as _;
use rtnetlink::sys::protocols::NETLINK_KOBJECT_UEVENT;
use rtnetlink::sys::{AsyncSocket as _, AsyncSocketExt as _, SocketAddr, TokioSocket};
use rustix::io::Errno;
use tokio::sync::watch;
use tokio::task::coop::unconstrained;
use tokio::time::sleep;

/// Multicast group of udevd's messages.
const UDEVD_GROUP: u32 = 2;
/// Receive buffer in bytes; a limit, not an allocation. A machine with a thousand devices sends 2 MiB.
const RECEIVE_BUFFER: usize = 8 * 1024 * 1024;
/// Devices appear in bunches; time to wait for the rest of a bunch.
const BUNCH: Duration = Duration::from_millis(500);
/// Limit of messages in one bunch.
const MOST: usize = 4096;
/// Pause after the socket failed.
const RETRY: Duration = Duration::from_secs(5);

/// Message counts of a subsystem's devices.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Told {
    /// Count per device with a node, by its name below `/dev`.
    devices: BTreeMap<String, u32>,
    /// Count for every device: a lost message may concern any of them.
    all: u32,
}

impl Told {
    /// Count for a device, at least one. It changes whenever the device may have changed.
    #[must_use]
    pub fn times(&self, device: &str) -> u32 {
        let told = self.devices.get(device).copied().unwrap_or_default();
        told.saturating_add(self.all).saturating_add(1)
    }

    /// Counts a message.
    pub fn count(&mut self, message: &Message) {
        let device = message.get("DEVNAME");
        let Some(device) = device.and_then(|path| path.strip_prefix("/dev/")) else {
            return;
        };
        if message.get("ACTION") == Some("remove") {
            self.devices.remove(device);
            return;
        }
        let told = self.devices.entry(device.to_owned()).or_default();
        *told = told.saturating_add(1);
    }

    /// Messages were lost. Devices may be gone; no device's count decreases.
    fn lose(&mut self) {
        let most = self.devices.values().max().copied().unwrap_or_default();
        self.all = self.all.saturating_add(most).saturating_add(1);
        self.devices.clear();
    }
}

/// The followers by subsystem. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct Uevents(Arc<Mutex<BTreeMap<&'static str, watch::Sender<Told>>>>);

impl Uevents {
    /// Starts to listen. A failure is logged and retried, and afterwards all followers inspect the devices again.
    #[must_use]
    pub fn listen() -> Uevents {
        let uevents = Uevents::default();
        // Open before any follower inspects devices, so that later changes are received.
        let mut monitor = Monitor::open(RECEIVE_BUFFER);
        let all = uevents.clone();
        tokio::spawn(async move {
            loop {
                let ended = caught(async { all.tell(monitor?).await }).await;
                // A panic is logged already.
                if let Ok(Err(error)) = ended {
                    console::warn(&format!("devices: {error}; listening again"));
                }
                sleep(RETRY).await;
                monitor = Monitor::open(RECEIVE_BUFFER);
                all.lose();
            }
        });
        uevents
    }

    /// A receiver that changes with the devices of a subsystem.
    #[must_use]
    pub fn follow(&self, subsystem: &'static str) -> watch::Receiver<Told> {
        self.places().entry(subsystem).or_default().subscribe()
    }

    async fn tell(&self, mut monitor: Monitor) -> io::Result<()> {
        loop {
            let Bunch { messages, is_whole } = monitor.bunch().await?;
            if is_whole {
                self.count(&messages);
            } else {
                console::warn("devices: messages were lost; scanning all devices again");
                self.lose();
            }
        }
    }

    fn count(&self, messages: &[Message]) {
        for (subsystem, place) in self.places().iter() {
            let mut of_it = messages
                .iter()
                .filter(|message| message.get("SUBSYSTEM") == Some(*subsystem))
                .peekable();
            if of_it.peek().is_some() {
                place.send_modify(|told| of_it.for_each(|message| told.count(message)));
            }
        }
    }

    fn lose(&self) {
        for place in self.places().values() {
            place.send_modify(Told::lose);
        }
    }

    fn places(&self) -> MutexGuard<'_, BTreeMap<&'static str, watch::Sender<Told>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The netlink socket.
struct Monitor(TokioSocket);

/// Messages that arrived together.
struct Bunch {
    messages: Vec<Message>,
    /// Whether the kernel lost none.
    is_whole: bool,
}

impl Monitor {
    /// Opens the socket with a receive buffer of `room` bytes.
    fn open(room: usize) -> io::Result<Monitor> {
        let mut socket = TokioSocket::new(NETLINK_KOBJECT_UEVENT)?;
        // Beyond the system-wide limit, like udevd: coldplug sends a message for every device at once.
        let buffer = rustix::net::sockopt::set_socket_recv_buffer_size_force;
        if let Err(error) = buffer(socket.socket_ref(), room) {
            console::warn(&format!(
                "devices: cannot enlarge the receive buffer: {error}"
            ));
        }
        socket.socket_mut().bind(&SocketAddr::new(0, UDEVD_GROUP))?;
        Ok(Monitor(socket))
    }

    /// Waits for a message, then returns the bunch.
    async fn bunch(&mut self) -> io::Result<Bunch> {
        let mut bunch = Bunch {
            messages: Vec::new(),
            is_whole: true,
        };
        let mut received = Some(self.0.recv_from_full().await);
        sleep(BUNCH).await;
        while let Some(next) = received {
            match next {
                Ok((bytes, _)) => bunch.messages.extend(Message::read(&bytes)),
                Err(error) if error.raw_os_error() == Some(Errno::NOBUFS.raw_os_error()) => {
                    bunch.is_whole = false;
                }
                Err(error) => return Err(error),
            }
            if bunch.messages.len() == MOST {
                break;
            }
            // Takes all messages that are available, regardless of the runtime's cooperative budget.
            received = unconstrained(self.0.recv_from_full()).now_or_never();
        }
        Ok(bunch)
    }
}

/// Prefix of udevd's messages, and the offset of the field with the properties' offset, in host byte order (libudev:
/// `struct monitor_netlink_header`).
const PREFIX: &[u8] = b"libudev\0";
const PROPERTIES_AT: usize = 16;

/// Properties: `KEY=value` parts, each terminated by a NUL.
#[derive(Debug)]
pub struct Message(Vec<u8>);

impl Message {
    #[cfg(test)]
    pub(crate) fn of(text: &str) -> Message {
        Message(text.as_bytes().to_vec())
    }

    /// Parses a message; `None` if it is not udevd's.
    fn read(bytes: &[u8]) -> Option<Message> {
        let header = Some(bytes).filter(|bytes| bytes.starts_with(PREFIX))?;
        let at = header.get(PROPERTIES_AT..)?.first_chunk()?;
        let at = usize::try_from(u32::from_ne_bytes(*at)).ok()?;
        Some(Message(bytes.get(at..)?.to_vec()))
    }

    /// A value; `None` if it is missing or not UTF-8.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&str> {
        let mut parts = self.0.split(|byte| *byte == 0);
        let value = parts.find_map(|part| part.strip_prefix(key.as_bytes())?.strip_prefix(b"="))?;
        std::str::from_utf8(value).ok()
    }
}

#[cfg(test)]
mod tests {
    use corten_base::testing::alone;
    use rtnetlink::sys::Socket;

    use super::*;

    #[test]
    fn values_are_found_by_their_whole_key() {
        let bytes = b"DEVNAME_X=a\0DEVNAME=/dev/vda1\0SUBSYSTEM=block\0X=\xff\0=\0";
        let message = Message(bytes.to_vec());
        assert_eq!(message.get("DEVNAME"), Some("/dev/vda1"));
        assert_eq!(message.get("SUBSYSTEM"), Some("block"));
        assert_eq!((message.get("X"), message.get("DEV")), (None, None));
        assert_eq!(Message(Vec::new()).get("X"), None);
    }

    /// A message as udevd sends it: a header of 40 bytes that ends in a filter of any value.
    fn sent(text: &str) -> Vec<u8> {
        let mut bytes = b"libudev\0\xfe\xed\xca\xfe".to_vec();
        bytes.extend(40u32.to_ne_bytes());
        bytes.extend(40u32.to_ne_bytes());
        bytes.extend([0xa5; 20]);
        bytes.extend(text.as_bytes());
        bytes
    }

    #[test]
    fn properties_begin_behind_the_header() {
        let whole = sent("ACTION=remove\0SUBSYSTEM=cpu\0");
        let message = Message::read(&whole).unwrap();
        assert_eq!(message.get("ACTION"), Some("remove"));
        let empty = Message::read(&whole[..40]).unwrap();
        assert_eq!(empty.get("ACTION"), None);
        for cut in [0, 7, 8, 19, 20, 39] {
            assert!(Message::read(&whole[..cut]).is_none(), "{cut}");
        }
        let kernels = "add@/devices/x\0ACTION=add\0SUBSYSTEM=cpu\0with room for a header\0";
        assert!(Message::read(kernels.as_bytes()).is_none());
    }

    #[test]
    fn events_of_a_device_are_counted() {
        let mut told = Told::default();
        assert_eq!(told.times("vda1"), 1);
        let message = Message::of("ACTION=change\0DEVNAME=/dev/vda1\0");
        told.count(&message);
        told.count(&message);
        assert_eq!((told.times("vda1"), told.times("vda")), (3, 1));
        for nonsense in ["", "DEVNAME=", "DEVNAME=vdb\0", "\0\0DEVNAME"] {
            told.count(&Message::of(nonsense));
        }
        assert_eq!(told.devices.len(), 1);
        // After a loss every count differs from before.
        let before = told.clone();
        told.lose();
        for device in ["vda1", "vda"] {
            assert!(told.times(device) > before.times(device));
        }
        told.count(&Message::of("ACTION=add\0DEVNAME=/dev/vdb\0"));
        told.count(&Message::of("ACTION=remove\0DEVNAME=/dev/vdb\0"));
        assert!(told.devices.is_empty());
    }

    #[test]
    fn followers_get_their_own_subsystem_and_every_loss() {
        let uevents = Uevents::default();
        let (mut cpu, mut block) = (uevents.follow("cpu"), uevents.follow("block"));
        // A slow follower sees everything when it looks.
        let mut slow = uevents.follow("block");
        let message = |subsystem: &str| {
            Message::of(&format!(
                "ACTION=add\0DEVNAME=/dev/a\0SUBSYSTEM={subsystem}\0"
            ))
        };
        for _ in 0..3 {
            uevents.count(&[message("block"), message("net")]);
            assert!(block.has_changed().unwrap() && !cpu.has_changed().unwrap());
            block.mark_unchanged();
        }
        uevents.count(&[]);
        assert!(!block.has_changed().unwrap());
        assert_eq!(slow.borrow_and_update().times("a"), 4);
        uevents.lose();
        for follower in [&mut cpu, &mut block, &mut slow] {
            assert!(follower.has_changed().unwrap());
            assert!(follower.borrow_and_update().times("b") > 1);
        }
        // A later follower has the same counts.
        assert_eq!(*uevents.follow("block").borrow(), *block.borrow());
    }

    fn send(udevd: &Socket, text: &str) {
        // The kernel does not answer; a full receive buffer is no error of the sender.
        let _ = udevd.send_to(&sent(text), &SocketAddr::new(0, UDEVD_GROUP), 0);
    }

    #[test]
    fn uevents_share_one_socket_and_overflows_are_reported() {
        alone(async {
            let uevents = Uevents::default();
            let (mut cpu, mut block) = (uevents.follow("cpu"), uevents.follow("block"));
            // The smallest buffer that the kernel allows.
            let monitor = Monitor::open(0).unwrap();
            let all = uevents.clone();
            tokio::spawn(async move { all.tell(monitor).await });
            let udevd = Socket::new(NETLINK_KOBJECT_UEVENT).unwrap();
            send(&udevd, "ACTION=add\0DEVNAME=/dev/vda\0SUBSYSTEM=block\0");
            block.changed().await.unwrap();
            assert_eq!(block.borrow_and_update().times("vda"), 2);
            assert!(!cpu.has_changed().unwrap());
            for _ in 0..1000 {
                send(&udevd, "ACTION=change\0DEVNAME=/dev/vda\0SUBSYSTEM=block\0");
            }
            cpu.changed().await.unwrap();
            block.changed().await.unwrap();
            assert!(block.borrow_and_update().times("vda") > 2);
            // Receiving continues.
            cpu.mark_unchanged();
            send(&udevd, "ACTION=online\0SUBSYSTEM=cpu\0");
            cpu.changed().await.unwrap();
        });
    }
}
