//! Incremental parser of a pcap file (draft-ietf-opsawg-pcap).

/// Sizes in bytes of the file header and of a packet header.
const FILE_HEADER: usize = 24;
const PACKET_HEADER: usize = 16;
/// The largest packet, in bytes: tcpdump's limit (`MAXIMUM_SNAPLEN`). It bounds the data that a
/// node can make this client buffer.
const LARGEST: usize = 262_144;
/// Magic numbers of a file, which also show its byte order: times in microseconds, or in
/// nanoseconds.
const MICROSECONDS: u32 = 0xa1b2_c3d4;
const NANOSECONDS: u32 = 0xa1b2_3c4d;

/// A captured packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Packet {
    /// Seconds since 1970.
    pub(super) seconds: u32,
    pub(super) nanos: u32,
    /// Type of its first header: a number of tcpdump.org's LINKTYPE registry.
    pub(super) link_type: u32,
    /// Length on the link; `bytes` may be shorter.
    pub(super) length: u32,
    pub(super) bytes: Vec<u8>,
}

/// Packets, parsed from chunks of a file.
#[derive(Debug, Default)]
pub(super) struct Packets {
    /// The received bytes, and the number of parsed ones.
    bytes: Vec<u8>,
    done: usize,
    header: Option<Header>,
}

#[derive(Debug, Clone, Copy)]
struct Header {
    little: bool,
    /// Nanoseconds in a unit of a packet's time.
    unit: u32,
    link_type: u32,
}

impl Packets {
    /// Takes the next chunk.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.bytes.drain(..self.done);
        self.done = 0;
        self.bytes.extend_from_slice(bytes);
    }

    /// The next packet; `None` until more bytes arrive.
    ///
    /// # Errors
    /// A sentence about the invalid data of the node.
    pub(super) fn next(&mut self) -> Result<Option<Packet>, String> {
        let header = match self.header {
            Some(header) => header,
            None => {
                let Some(bytes) = self.rest().first_chunk::<FILE_HEADER>() else {
                    return Ok(None);
                };
                let header = file_header(bytes)?;
                self.done += FILE_HEADER;
                *self.header.insert(header)
            }
        };
        let Some((head, body)) = self.rest().split_first_chunk::<PACKET_HEADER>() else {
            return Ok(None);
        };
        let [seconds, fraction, captured, length] =
            [0, 4, 8, 12].map(|at| number(head, at, header.little));
        let size = usize::try_from(captured).unwrap_or(usize::MAX);
        if size > LARGEST {
            return Err(format!(
                "the answer of the node is not a capture: it has a packet of {captured} bytes"
            ));
        }
        let Some(bytes) = body.get(..size) else {
            return Ok(None);
        };
        let packet = Packet {
            seconds,
            nanos: fraction.saturating_mul(header.unit).min(999_999_999),
            link_type: header.link_type,
            length,
            bytes: bytes.to_vec(),
        };
        self.done += PACKET_HEADER + size;
        Ok(Some(packet))
    }

    /// The bytes that are not parsed yet.
    fn rest(&self) -> &[u8] {
        self.bytes.get(self.done..).unwrap_or_default()
    }
}

fn file_header(bytes: &[u8; FILE_HEADER]) -> Result<Header, String> {
    for (magic, unit) in [(MICROSECONDS, 1000), (NANOSECONDS, 1)] {
        for little in [true, false] {
            if number(bytes, 0, little) == magic {
                return Ok(Header {
                    little,
                    unit,
                    // The upper bits describe checksums after packets.
                    link_type: number(bytes, 20, little) & 0xffff,
                });
            }
        }
    }
    Err("the answer of the node is not a capture: it does not begin like a pcap file".to_owned())
}

/// The number at an offset within the array.
fn number<const N: usize>(bytes: &[u8; N], at: usize, little: bool) -> u32 {
    let four = bytes.get(at..).and_then(|rest| rest.first_chunk::<4>());
    let four = *four.unwrap_or(&[0; 4]);
    if little {
        u32::from_le_bytes(four)
    } else {
        u32::from_be_bytes(four)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A file with these packets, in this byte order.
    fn file(little: bool, magic: u32, packets: &[&[u8]]) -> Vec<u8> {
        let put = |n: u32| match little {
            true => n.to_le_bytes(),
            false => n.to_be_bytes(),
        };
        let mut all: Vec<u8> = [magic, 0x0004_0002, 0, 0, 96, 0x1000_0001]
            .map(put)
            .concat();
        for packet in packets {
            let length = u32::try_from(packet.len()).unwrap();
            all.extend([5, 7, length, 1500].map(put).concat());
            all.extend_from_slice(packet);
        }
        all
    }

    fn read(packets: &mut Packets) -> Result<Vec<Packet>, String> {
        let mut found = Vec::new();
        while let Some(packet) = packets.next()? {
            found.push(packet);
        }
        Ok(found)
    }

    #[test]
    fn packets_are_read_from_any_chunks_and_in_both_byte_orders() {
        let expected = |bytes: &[u8], nanos| Packet {
            seconds: 5,
            nanos,
            link_type: 1,
            length: 1500,
            bytes: bytes.to_vec(),
        };
        for (magic, nanos) in [(MICROSECONDS, 7000), (NANOSECONDS, 7)] {
            for (little, piece) in [(true, 1), (false, 7), (true, 1000)] {
                let file = file(little, magic, &[b"first", b"", b"last"]);
                let mut packets = Packets::default();
                let mut found = Vec::new();
                for piece in file.chunks(piece) {
                    packets.push(piece);
                    found.extend(read(&mut packets).unwrap());
                }
                let all: [&[u8]; 3] = [b"first", b"", b"last"];
                assert_eq!(found, all.map(|bytes| expected(bytes, nanos)));
                assert!(packets.rest().is_empty());
            }
        }
    }

    #[test]
    fn hostile_files_are_refused_before_they_are_buffered() {
        let mut packets = Packets::default();
        packets.push(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n");
        assert!(read(&mut packets).unwrap_err().contains("not a capture"));
        let mut packets = Packets::default();
        packets.push(&file(true, MICROSECONDS, &[]));
        packets.push(&[0xff; PACKET_HEADER]);
        let refusal = read(&mut packets).unwrap_err();
        assert!(
            refusal.contains("a packet of 4294967295 bytes"),
            "{refusal}"
        );
    }

    proptest! {
        #[test]
        fn hostile_bytes_end_in_packets_or_an_error(
            begins in any::<bool>(),
            bytes in prop::collection::vec(any::<u8>(), 0..200),
        ) {
            let mut packets = Packets::default();
            if begins {
                packets.push(&file(true, MICROSECONDS, &[]));
            }
            packets.push(&bytes);
            for packet in read(&mut packets).unwrap_or_default() {
                prop_assert!(packet.bytes.len() <= bytes.len());
                prop_assert!(packet.nanos < 1_000_000_000);
            }
        }
    }
}
