//! Synchronous requests over a short-lived netlink socket, for protocols without notifications.

use std::io;

use netlink_packet_core::{
    NetlinkBuffer, NetlinkDeserializable, NetlinkMessage, NetlinkSerializable, Parseable as _,
};
use netlink_sys::{Socket, SocketAddr};
use rustix::net::sockopt;

/// Send buffer size in bytes. The kernel copies a whole request into one buffer, and its default limit is about 200
/// KiB. It allocates only what is sent, so a large limit is free.
const BUFFER: usize = 16 << 20;

/// Encodes a message.
pub(super) fn bytes<T: NetlinkSerializable>(mut message: NetlinkMessage<T>) -> Vec<u8> {
    message.finalize();
    let mut bytes = vec![0; message.buffer_len()];
    message.serialize(&mut bytes);
    bytes
}

/// Sends messages of a protocol (`netlink_sys::protocols`) and returns the answers. The kernel handles a request during
/// the send, so all answers are available afterwards.
///
/// # Errors
/// The socket fails, or an answer is malformed. A refusal by the kernel is an answer.
pub(super) fn exchange<T: NetlinkDeserializable>(
    protocol: isize,
    bytes: &[u8],
) -> io::Result<Vec<NetlinkMessage<T>>> {
    let mut socket = Socket::new(protocol)?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    socket.set_non_blocking(true)?;
    // Errors come without a copy of the request.
    socket.set_cap_ack(true)?;
    // Only root of the initial user namespace may; other users keep the default size.
    let _ = sockopt::set_socket_send_buffer_size_force(&socket, BUFFER);
    let sent = socket.send(bytes, 0)?;
    if sent != bytes.len() {
        return Err(io::Error::other(
            "the kernel accepted only a part of the request",
        ));
    }
    let mut answers = Vec::new();
    loop {
        let datagram = match socket.recv_from_full() {
            Ok((datagram, _)) => datagram,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(answers),
            Err(error) => return Err(error),
        };
        let invalid = |error| io::Error::other(format!("malformed answer of the kernel: {error}"));
        let mut rest = datagram.as_slice();
        while !rest.is_empty() {
            let buffer = NetlinkBuffer::new_checked(&rest).map_err(invalid)?;
            let length = (buffer.length() as usize).next_multiple_of(4);
            answers.push(NetlinkMessage::parse(&buffer).map_err(invalid)?);
            rest = rest.get(length..).unwrap_or_default();
        }
    }
}
