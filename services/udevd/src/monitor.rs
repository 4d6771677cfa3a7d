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
        Self::with_buffer(RECEIVE_BUFFER)
    }

    fn with_buffer(bytes: usize) -> io::Result<Self> {
        let socket = MonitorBuilder::new_kernel()?.listen()?;
        // Without CAP_NET_ADMIN the system's limit holds; overruns are survived.
        if let Err(error) = rustix::net::sockopt::set_socket_recv_buffer_size_force(&socket, bytes)
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

#[cfg(test)]
mod tests {
    use super::{Monitor, Received, Source as _};
    use crate::testing::skip;
    use rustix::event::{PollFd, PollFlags, poll};
    use std::fs;
    use std::path::Path;

    /// A device that is everywhere and nobody's hardware.
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
        // Others' devices may have something to tell, too.
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
        // It goes on with what comes then.
        ask().unwrap();
        while !is_null(&next()) {}
    }
}
