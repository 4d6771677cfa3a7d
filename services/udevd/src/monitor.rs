//! The kernel's uevents, through libudev's monitor (crate `udev`).

use crate::event::{BadEvent, Event, Properties};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use tracing::{debug, warn};
use udev::{MonitorBuilder, MonitorSocket};

/// How much the kernel may keep for us. It is a limit, not a use: a storm of
/// 10,000 events is about 25 MiB.
const RECEIVE_BUFFER: usize = 32 * 1024 * 1024;

/// Where events come from; its descriptor can be read when there are some.
pub trait Source: AsFd {
    /// Takes one event; does not wait.
    ///
    /// # Errors
    /// When it is broken.
    fn receive(&self) -> io::Result<Received>;
}

/// The socket on which events come.
pub struct Monitor {
    socket: MonitorSocket,
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
        let socket = MonitorBuilder::new_kernel()?.listen()?;
        // Without CAP_NET_ADMIN the system's limit holds; overruns are survived.
        if let Err(error) =
            rustix::net::sockopt::set_socket_recv_buffer_size_force(&socket, RECEIVE_BUFFER)
        {
            debug!("enlarge the event socket's buffer: {error}");
        }
        Ok(Self { socket })
    }
}

impl Source for Monitor {
    fn receive(&self) -> io::Result<Received> {
        let Some(event) = self.socket.iter().next() else {
            // libudev leaves its reason in errno, and nothing came between.
            let error = io::Error::last_os_error();
            return match Errno::from_io_error(&error) {
                Some(Errno::AGAIN) => Ok(Received::Empty),
                Some(Errno::NOBUFS) => Ok(Received::Overrun),
                Some(Errno::BADF | Errno::NOTSOCK | Errno::NOTCONN) => Err(error),
                _ => {
                    warn!("skipped a broken uevent: {error}");
                    Ok(Received::Broken)
                }
            };
        };
        match convert(&event) {
            Ok(event) => Ok(Received::Event(event)),
            Err(error) => {
                warn!(
                    "skipped a broken uevent of {}: {error}",
                    event.syspath().display()
                );
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

/// libudev's device cannot leave the thread; its properties can.
fn convert(event: &udev::Event) -> Result<Event, BadEvent> {
    let text = |s: &std::ffi::OsStr| s.to_str().map(str::to_owned);
    let properties: Properties = event
        .properties()
        .filter_map(|entry| Some((text(entry.name())?, text(entry.value())?)))
        .collect();
    Event::new(properties)
}
