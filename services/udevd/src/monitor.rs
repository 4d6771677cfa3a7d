//! Receives the kernel's uevents through libudev's monitor (crate `udev`).

use crate::event::{BadEvent, Event, Properties};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use tracing::{debug, warn};
use udev::{MonitorBuilder, MonitorSocket};

/// Receive buffer of the socket in bytes. It is a limit, not an allocation: a storm of 10,000 events needs about 25
/// MiB.
const RECEIVE_BUFFER: usize = 32 * 1024 * 1024;

/// A source of events. Its file descriptor is readable when an event waits.
pub trait Source: AsFd {
    /// Takes one event without blocking.
    ///
    /// # Errors
    /// If the source is broken.
    fn receive(&self) -> io::Result<Received>;
}

/// The netlink socket of kernel events.
pub struct Monitor {
    socket: MonitorSocket,
}

/// Result of one read from the socket.
#[derive(Debug)]
pub enum Received {
    /// An event.
    Event(Event),
    /// A malformed event. It is logged already.
    Broken,
    /// No event waits.
    Empty,
    /// The kernel had to drop events.
    Overrun,
}

impl Monitor {
    /// Opens the socket.
    ///
    /// # Errors
    /// If the kernel has no netlink, or memory is short.
    pub fn new() -> io::Result<Self> {
        Self::with_buffer(RECEIVE_BUFFER)
    }

    fn with_buffer(bytes: usize) -> io::Result<Self> {
        let socket = MonitorBuilder::new_kernel()?.listen()?;
        // Without CAP_NET_ADMIN the system's limit applies; the daemon recovers from overruns.
        if let Err(error) = rustix::net::sockopt::set_socket_recv_buffer_size_force(&socket, bytes)
        {
            debug!("cannot enlarge the event socket's buffer: {error}");
        }
        Ok(Self { socket })
    }
}

impl Source for Monitor {
    fn receive(&self) -> io::Result<Received> {
        let Some(event) = self.socket.iter().next() else {
            // libudev reports the reason in errno, and no other call came in between.
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

/// libudev's device is not `Send`, so its properties are copied.
fn convert(event: &udev::Event) -> Result<Event, BadEvent> {
    let text = |s: &std::ffi::OsStr| s.to_str().map(str::to_owned);
    let properties: Properties = event
        .properties()
        .filter_map(|entry| Some((text(entry.name())?, text(entry.value())?)))
        .collect();
    Event::new(properties)
}

#[cfg(test)]
mod tests {
    use super::{Monitor, Received, Source as _};
    use crate::testing::skip;
    use rustix::event::{PollFd, PollFlags, poll};
    use std::fs;
    use std::path::Path;

    /// A device that every machine has and that is not hardware.
    const NULL: &str = "/sys/devices/virtual/mem/null";

    #[test]
    fn kernel_events_are_read_and_overruns_reported() {
        let monitor = Monitor::with_buffer(8 * 1024).unwrap();
        let ask = || fs::write(Path::new(NULL).join("uevent"), "change");
        if ask().is_err() {
            return skip("leave to write to sysfs");
        }
        let next = || {
            let mut file = [PollFd::new(&monitor, PollFlags::IN)];
            poll(&mut file, None).unwrap();
            monitor.receive().unwrap()
        };
        let is_null = |received: &Received| match received {
            Received::Event(event) => {
                event.devpath == "/devices/virtual/mem/null" && event.action.name() == "change"
            }
            _ => false,
        };
        // Other devices of the host may send events, too.
        while !is_null(&next()) {}
        while !matches!(monitor.receive().unwrap(), Received::Empty) {}
        for _ in 0..200 {
            ask().unwrap();
        }
        let (mut overruns, mut events) = (0, 0);
        loop {
            match monitor.receive().unwrap() {
                Received::Overrun => overruns += 1,
                Received::Empty => break,
                received => events += usize::from(is_null(&received)),
            }
        }
        assert!(overruns > 0, "{events} events had room");
        assert!((1..200).contains(&events), "{events}");
        // Receiving continues after the overrun.
        ask().unwrap();
        while !is_null(&next()) {}
    }
}
