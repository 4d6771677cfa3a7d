//! Renames a network interface (rtnetlink(7), `RTM_SETLINK`).

use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, sendto, socket_with,
};
use std::io;

/// linux/rtnetlink.h: change a link.
const SET_LINK: u16 = 19;
/// linux/netlink.h: a request that asks for an acknowledgement.
const REQUEST_WITH_ACK: u16 = 0x5;
/// linux/if_link.h: the name attribute.
const NAME: u16 = 3;
/// linux/netlink.h: the type of the acknowledgement.
const ERROR: u16 = 2;

/// Length in bytes of the message header and the link header.
const HEADERS: usize = 32;

/// Renames the interface with this index.
///
/// # Errors
/// Those of the kernel: the name is taken, or the interface is up or gone.
pub fn interface(index: u32, name: &str) -> io::Result<()> {
    // Netlink's protocol 0 is rtnetlink.
    let kind = SocketType::RAW;
    let socket = socket_with(AddressFamily::NETLINK, kind, SocketFlags::CLOEXEC, None)?;
    let kernel = SocketAddrNetlink::new(0, 0);
    sendto(&socket, &request(index, name), SendFlags::empty(), &kernel)?;
    let mut answer = [0; 256];
    let (length, _) = recv(&socket, &mut answer, RecvFlags::empty())?;
    match result(answer.get(..length).unwrap_or_default()) {
        Some(0) => Ok(()),
        Some(errno) => Err(io::Error::from_raw_os_error(errno)),
        None => Err(io::Error::other("the kernel's answer is malformed")),
    }
}

fn request(index: u32, name: &str) -> Vec<u8> {
    let attribute = 4 + name.len() + 1;
    let length = (HEADERS + attribute).next_multiple_of(4);
    let mut message = Vec::with_capacity(length);
    // struct nlmsghdr: length, type, flags, sequence, port.
    message.extend_from_slice(&u32::try_from(length).unwrap_or_default().to_ne_bytes());
    message.extend_from_slice(&SET_LINK.to_ne_bytes());
    message.extend_from_slice(&REQUEST_WITH_ACK.to_ne_bytes());
    message.extend_from_slice(&[0; 8]);
    // struct ifinfomsg: family and type, index, flags, change.
    message.extend_from_slice(&[0; 4]);
    message.extend_from_slice(&index.to_ne_bytes());
    message.extend_from_slice(&[0; 8]);
    // struct rtattr: length, type; then the name with its NUL.
    message.extend_from_slice(&u16::try_from(attribute).unwrap_or_default().to_ne_bytes());
    message.extend_from_slice(&NAME.to_ne_bytes());
    message.extend_from_slice(name.as_bytes());
    message.resize(length, 0);
    message
}

/// The errno of an acknowledgement: 0 for success, `None` for another message.
fn result(answer: &[u8]) -> Option<i32> {
    let kind = u16::from_ne_bytes(answer.get(4..6)?.try_into().ok()?);
    let errno = i32::from_ne_bytes(answer.get(16..20)?.try_into().ok()?);
    (kind == ERROR).then_some(errno.checked_neg()?)
}

#[cfg(test)]
mod tests {
    use super::{interface, request, result};

    #[test]
    fn rename_message_has_the_layout_of_the_kernel() {
        let message = request(7, "lan0");
        assert_eq!(message.len(), 44);
        assert_eq!(message[..4], 44u32.to_ne_bytes());
        assert_eq!(message[20..24], 7u32.to_ne_bytes());
        assert_eq!(message[32..34], 9u16.to_ne_bytes());
        assert_eq!(&message[36..], b"lan0\0\0\0\0");
        let mut answer = vec![0; 36];
        answer[4] = 2;
        answer[16..20].copy_from_slice(&(-17i32).to_ne_bytes());
        assert_eq!(result(&answer), Some(17));
        assert_eq!(result(&answer[..18]), None);
    }

    #[test]
    fn rename_of_a_missing_interface_is_an_error() {
        // ENODEV: no interface has this index. EPERM: the test lacks the privilege.
        let error = interface(0x7fff_fff0, "lan0").unwrap_err();
        assert!(matches!(error.raw_os_error(), Some(1 | 19)), "{error}");
    }
}
