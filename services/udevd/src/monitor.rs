//! The kernel's uevents (lib/kobject_uevent.c), from its netlink socket.
//!
//! Not through libudev's monitor: that opens every directory on the way to
//! every device, some thirty system calls for an event that is one message.

use crate::event::Event;
use rustix::io::Errno;
use rustix::net::netlink::{KOBJECT_UEVENT, SocketAddrNetlink};
use rustix::net::sockopt::set_socket_recv_buffer_size_force;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, bind, recvfrom, socket_with};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use tracing::{debug, warn};

/// How much the kernel may keep for us. It is a limit, not a use: a storm of
/// 10,000 events is about 25 MiB.
const RECEIVE_BUFFER: usize = 32 * 1024 * 1024;

/// The kernel's own events; what udevd tells libudev's clients is group 2.
const GROUP: u32 = 1;

/// The kernel's limit is 2 KiB of environment and a path (UEVENT_BUFFER_SIZE).
const LARGEST: usize = 8192;

/// The socket on which events come.
pub struct Monitor {
    socket: OwnedFd,
}

/// What reading the socket gave.
#[derive(Debug)]
pub enum Received {
    /// An event.
    Event(Event),
    /// Something that is no event; it was logged.
    Broken,
    /// Nothing more for now.
    Empty,
    /// The kernel had to drop events.
    Overrun,
}

impl Monitor {
    /// Starts to listen.
    ///
    /// # Errors
    /// When there is no netlink, or too little memory.
    pub fn new() -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (family, kind) = (AddressFamily::NETLINK, SocketType::RAW);
        let socket = socket_with(family, kind, flags, Some(KOBJECT_UEVENT))?;
        // Without CAP_NET_ADMIN the system's limit holds; overruns are survived.
        if let Err(error) = set_socket_recv_buffer_size_force(&socket, RECEIVE_BUFFER) {
            debug!("enlarge the event socket's buffer: {error}");
        }
        bind(&socket, &SocketAddrNetlink::new(0, GROUP))?;
        Ok(Self { socket })
    }

    /// Takes one event off the socket; does not wait.
    ///
    /// # Errors
    /// When the socket is broken.
    pub fn receive(&self) -> io::Result<Received> {
        let mut buffer = [0; LARGEST];
        let (kept, length, from) = match recvfrom(&self.socket, &mut buffer, RecvFlags::TRUNC) {
            Ok(received) => received,
            Err(Errno::AGAIN) => return Ok(Received::Empty),
            Err(Errno::NOBUFS) => return Ok(Received::Overrun),
            Err(Errno::INTR) => return Ok(Received::Broken),
            Err(error) => return Err(error.into()),
        };
        // Anybody may send to us; only the kernel is port 0, and only it sends to its group.
        let sender = from.and_then(|from| SocketAddrNetlink::try_from(from).ok());
        if !sender.is_some_and(|sender| sender.pid() == 0 && sender.groups() == GROUP) {
            debug!("skipped a uevent that is not the kernel's");
            return Ok(Received::Broken);
        }
        // Of one that does not fit nothing is used.
        let whole = buffer.get(..kept).filter(|_| length <= LARGEST);
        match Event::parse(whole.unwrap_or_default()) {
            Ok(event) => Ok(Received::Event(event)),
            Err(error) => {
                warn!("skipped a broken uevent of {length} bytes: {error}");
                Ok(Received::Broken)
            }
        }
    }
}

impl AsFd for Monitor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
