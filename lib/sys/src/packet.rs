//! Packet capture on one network link (packet(7); kernel: include/uapi/linux/if_packet.h).
#![expect(
    unsafe_code,
    reason = "options and addresses of packet sockets that neither rustix nor nix can write"
)]

use std::ffi::c_int;
use std::io::{self, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::ptr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nix::libc;
use nix::sys::socket::{ControlMessageOwned, MsgFlags, UnknownCmsg, recvmsg, setsockopt, sockopt};
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType};

/// Bytes that the kernel queues for a slow reader; packets beyond that are dropped.
const QUEUE: usize = 4 << 20;
/// Receive timeout, after which a waiting reader gets `None`.
const PATIENCE: Duration = Duration::from_millis(500);
/// Instructions in a filter (`BPF_MAXINSNS` of linux/bpf_common.h).
pub const LONGEST_FILTER: usize = 4096;

/// An instruction of a classic BPF program (linux/filter.h, `sock_filter`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Instruction {
    /// Operation code.
    pub code: u16,
    /// Instructions to skip when a condition holds.
    pub jump_true: u8,
    /// Instructions to skip when the condition does not hold.
    pub jump_false: u8,
    /// The operand.
    pub operand: u32,
}

/// A captured packet; its bytes are in the reader's buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packet {
    /// Bytes in the buffer.
    pub captured: usize,
    /// Bytes on the wire.
    pub length: usize,
    /// Time when the kernel saw the packet.
    pub at: SystemTime,
    /// Whether the checksum of its TCP or UDP header is filled in. A packet that no wire has carried may lack it.
    pub has_checksum: bool,
}

/// A socket that receives every packet of one link, in both directions, and sends on it.
#[derive(Debug)]
pub struct Capture(OwnedFd);

impl Capture {
    /// Starts a capture on the link with this index. The filter returns the number of bytes to keep of each packet; an
    /// empty filter keeps all. `promiscuous`: also packets for other hosts.
    ///
    /// # Errors
    /// `EPERM` without CAP_NET_RAW; `EINVAL` for an invalid filter; `ENODEV` when the link does not exist.
    pub fn start(index: u32, promiscuous: bool, filter: &[Instruction]) -> io::Result<Capture> {
        // With protocol 0 the socket receives nothing until the filter is set.
        let flags = SocketFlags::CLOEXEC;
        let socket = rustix::net::socket_with(AddressFamily::PACKET, SocketType::RAW, flags, None)?;
        let capture = Capture(socket);
        if !filter.is_empty() {
            capture.attach(filter)?;
        }
        let index = c_int::try_from(index).map_err(|_| io::ErrorKind::InvalidInput)?;
        if promiscuous {
            capture.join_promiscuous(index)?;
        }
        let socket = &capture.0;
        setsockopt(socket, sockopt::ReceiveTimestampns, &true)?;
        let on: c_int = 1;
        capture.set(libc::SOL_PACKET, libc::PACKET_AUXDATA, &on)?;
        rustix::net::sockopt::set_socket_timeout(
            socket,
            rustix::net::sockopt::Timeout::Recv,
            Some(PATIENCE),
        )?;
        // Exceeding the system's limit needs CAP_NET_ADMIN; a shorter queue also works.
        let _ = rustix::net::sockopt::set_socket_recv_buffer_size_force(socket, QUEUE);
        capture.bind(index)?;
        Ok(capture)
    }

    fn attach(&self, filter: &[Instruction]) -> io::Result<()> {
        let mut program: Vec<libc::sock_filter> = filter
            .iter()
            .map(|instruction| libc::sock_filter {
                code: instruction.code,
                jt: instruction.jump_true,
                jf: instruction.jump_false,
                k: instruction.operand,
            })
            .collect();
        let program = libc::sock_fprog {
            len: u16::try_from(program.len()).map_err(|_| io::ErrorKind::InvalidInput)?,
            filter: program.as_mut_ptr(),
        };
        self.set(libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &program)
    }

    fn join_promiscuous(&self, index: c_int) -> io::Result<()> {
        let membership = libc::packet_mreq {
            mr_ifindex: index,
            mr_type: u16::try_from(libc::PACKET_MR_PROMISC).unwrap_or_default(),
            mr_alen: 0,
            mr_address: [0; 8],
        };
        self.set(libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, &membership)
    }

    /// `T` is the type of the option; every pointer in it must outlive the call.
    fn set<T>(&self, level: c_int, option: c_int, value: &T) -> io::Result<()> {
        let length = libc::socklen_t::try_from(size_of::<T>()).unwrap_or_default();
        let value = ptr::from_ref(value).cast();
        // SAFETY: the kernel reads `length` bytes from a whole `T` and writes nothing.
        let done = unsafe { libc::setsockopt(self.0.as_raw_fd(), level, option, value, length) };
        if done < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    }

    fn bind(&self, index: c_int) -> io::Result<()> {
        let all = u16::try_from(libc::ETH_P_ALL).unwrap_or_default();
        let address = libc::sockaddr_ll {
            sll_family: u16::try_from(libc::AF_PACKET).unwrap_or_default(),
            sll_protocol: all.to_be(),
            sll_ifindex: index,
            sll_hatype: 0,
            sll_pkttype: 0,
            sll_halen: 0,
            sll_addr: [0; 8],
        };
        let length = libc::socklen_t::try_from(size_of_val(&address)).unwrap_or_default();
        let address = ptr::from_ref(&address).cast();
        // SAFETY: the kernel reads `length` bytes from a whole address and writes nothing.
        let done = unsafe { libc::bind(self.0.as_raw_fd(), address, length) };
        if done < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    }

    /// Returns the next packet, truncated to the buffer. `None` when the queue is empty: at once, or with `wait` after
    /// half a second.
    ///
    /// # Errors
    /// `ENETDOWN` when the link went down.
    pub fn next(&self, buffer: &mut [u8], wait: bool) -> io::Result<Option<Packet>> {
        let mut flags = MsgFlags::MSG_TRUNC;
        flags.set(MsgFlags::MSG_DONTWAIT, !wait);
        let room = buffer.len();
        let mut control = nix::cmsg_space!(nix::sys::time::TimeSpec, libc::tpacket_auxdata);
        let mut parts = [IoSliceMut::new(buffer)];
        let socket = self.0.as_raw_fd();
        let message = match recvmsg::<()>(socket, &mut parts, Some(&mut control), flags) {
            Ok(message) => message,
            Err(nix::errno::Errno::EAGAIN | nix::errno::Errno::EINTR) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let (mut stamp, mut has_checksum) = (None, true);
        for control in message.cmsgs()? {
            match control {
                ControlMessageOwned::ScmTimestampns(time) => stamp = Some(Duration::from(time)),
                ControlMessageOwned::Unknown(other) => {
                    has_checksum = !lacks_checksum(&other).unwrap_or(false);
                }
                _ => {}
            }
        }
        Ok(Some(Packet {
            captured: message.bytes.min(room),
            length: message.bytes,
            at: stamp.map_or_else(SystemTime::now, |since| UNIX_EPOCH + since),
            has_checksum,
        }))
    }

    /// Sends a frame on the link, with its link-layer header.
    ///
    /// # Errors
    /// `ENETDOWN` when the link is down; `EMSGSIZE` for a frame beyond its MTU; `ENOBUFS` for a full queue.
    pub fn send(&self, frame: &[u8]) -> io::Result<()> {
        rustix::net::send(&self.0, frame, SendFlags::DONTWAIT)?;
        Ok(())
    }
}

/// The status is the first field of the message (`tpacket_auxdata`). `None` for a message of another kind.
fn lacks_checksum(message: &UnknownCmsg) -> Option<bool> {
    let header = message.cmsg_header;
    let is_status =
        header.cmsg_level == libc::SOL_PACKET && header.cmsg_type == libc::PACKET_AUXDATA;
    let status = message.data_bytes.first_chunk().filter(|_| is_status)?;
    Some(u32::from_ne_bytes(*status) & libc::TP_STATUS_CSUMNOTREADY != 0)
}

impl AsFd for Capture {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsRawFd for Capture {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

/// The kernel's index of a link; `None` when the link does not exist.
///
/// # Errors
/// No socket can be created.
pub fn link_index(name: &str) -> io::Result<Option<u32>> {
    let flags = SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::DGRAM, flags, None)?;
    match rustix::net::netdevice::name_to_index(socket, name) {
        Ok(index) => Ok(Some(index)),
        Err(
            rustix::io::Errno::NODEV | rustix::io::Errno::NAMETOOLONG | rustix::io::Errno::INVAL,
        ) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::time::Instant;

    use super::*;
    use crate::testing::skip;

    /// `None` without the right to capture, after a call of [`skip`]; CI has the right.
    fn capture(filter: &[Instruction]) -> Option<io::Result<Capture>> {
        let index = link_index("lo").unwrap().unwrap();
        match Capture::start(index, false, filter) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                skip("CAP_NET_RAW");
                None
            }
            other => Some(other),
        }
    }

    #[test]
    fn captured_packet_has_its_length_and_time() {
        let Some(capture) = capture(&[]) else { return };
        let capture = capture.unwrap();
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let mut content = [b'.'; 300];
        content[..8].copy_from_slice(b"captured");
        socket
            .send_to(&content, socket.local_addr().unwrap())
            .unwrap();
        let mut buffer = [0; 100];
        let started = Instant::now();
        let found = loop {
            assert!(
                started.elapsed() < Duration::from_secs(60),
                "the packet was not captured"
            );
            let Some(packet) = capture.next(&mut buffer, true).unwrap() else {
                continue;
            };
            // The Ethernet, IPv4 and UDP headers precede the payload.
            if &buffer[42..50] == b"captured" {
                break packet;
            }
        };
        assert_eq!((found.captured, found.length), (100, 342));
        let age = SystemTime::now().duration_since(found.at).unwrap();
        assert!(age < Duration::from_secs(3600));
    }

    #[test]
    fn sent_frame_is_captured_and_a_packet_of_this_machine_lacks_its_checksum() {
        let Some(capture) = capture(&[]) else { return };
        let capture = capture.unwrap();
        // An Ethernet type for experiments (IEEE 802, local experimental 1).
        let frame = [&[0; 12][..], &[0x88, 0xb5], b"of our own, and long enough"].concat();
        capture.send(&frame).unwrap();
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let own = socket.local_addr().unwrap();
        socket.send_to(b"without checksum", own).unwrap();
        let (mut sent, mut bare) = (None, None);
        let mut buffer = [0; 100];
        let started = Instant::now();
        while sent.is_none() || bare.is_none() {
            assert!(
                started.elapsed() < Duration::from_secs(60),
                "{sent:?} {bare:?}"
            );
            let Some(packet) = capture.next(&mut buffer, true).unwrap() else {
                continue;
            };
            let found = &buffer[..packet.captured];
            if found == frame {
                sent = Some(packet.has_checksum);
            } else if found.ends_with(b"without checksum") {
                bare = Some(packet.has_checksum);
            }
        }
        assert_eq!((sent, bare), (Some(true), Some(false)));
    }

    #[test]
    fn kernel_validates_the_capture_filter() {
        let nothing = Instruction {
            code: 0x06,
            jump_true: 0,
            jump_false: 0,
            operand: 0,
        };
        let Some(capture) = capture(&[nothing]) else {
            return;
        };
        let capture = capture.unwrap();
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket
            .send_to(b"unseen", socket.local_addr().unwrap())
            .unwrap();
        assert_eq!(capture.next(&mut [0; 64], false).unwrap(), None);
        let endless = Instruction {
            code: 0xffff,
            ..nothing
        };
        let index = link_index("lo").unwrap().unwrap();
        let refused = Capture::start(index, false, &[endless]).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::InvalidInput);
    }

    #[test]
    fn missing_links_have_no_index() {
        for name in [
            "nosuchlink",
            "",
            "a/b",
            "a-name-that-is-far-too-long-for-a-link",
        ] {
            assert_eq!(link_index(name).unwrap(), None, "{name:?}");
        }
    }
}
