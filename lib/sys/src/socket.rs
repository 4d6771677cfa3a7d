//! Socket queries that rustix lacks (kernel: include/uapi/linux/sockios.h).
#![expect(unsafe_code, reason = "an ioctl that rustix has no wrapper for")]

use std::ffi::c_int;
use std::io;
use std::os::fd::BorrowedFd;

use rustix::ioctl::{self, Opcode};

const SIOCOUTQ: Opcode = 0x5411;

/// Bytes of a TCP connection that the peer has not acknowledged.
///
/// # Errors
/// The socket is not a TCP connection.
pub fn unacknowledged(socket: BorrowedFd<'_>) -> io::Result<u64> {
    // SAFETY: SIOCOUTQ writes one int and reads nothing.
    let request = unsafe { ioctl::Getter::<SIOCOUTQ, c_int>::new() };
    // SAFETY: the descriptor is open, and the request is described faithfully.
    let bytes = unsafe { ioctl::ioctl(socket, request) }?;
    Ok(u64::try_from(bytes).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd as _;

    use super::*;

    #[test]
    fn unread_data_stays_unacknowledged() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        assert_eq!(unacknowledged(stream.as_fd()).unwrap(), 0);
        stream.set_nonblocking(true).unwrap();
        while stream.write(&[0; 65_536]).is_ok() {}
        assert!(unacknowledged(stream.as_fd()).unwrap() > 0);
        unacknowledged(std::fs::File::open("/dev/null").unwrap().as_fd()).unwrap_err();
    }
}
