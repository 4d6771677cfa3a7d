//! Parses a socket table such as `/proc/net/tcp` (kernel: Documentation/networking/proc_net_tcp.rst). All protocols
//! here have the same columns.

use std::io::{self, BufRead as _, BufReader, Read};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use corten_api::machine as api;
use corten_api::machine::connect_record::{State, TimerActive};

/// Length limit of a line in bytes; the kernel's lines are shorter.
const LINE: u64 = 1024;

/// Adds the wanted sockets of a table, until there are more than `most`. Skips malformed lines.
pub(super) fn read(
    protocol: &str,
    table: impl Read,
    most: usize,
    is_wanted: impl Fn(&api::ConnectRecord) -> bool,
    records: &mut Vec<api::ConnectRecord>,
) -> io::Result<()> {
    let mut table = BufReader::new(table);
    let mut line = String::new();
    // The first line has the column names and does not parse as a socket.
    while records.len() <= most {
        line.clear();
        if table.by_ref().take(LINE).read_line(&mut line)? == 0 {
            return Ok(());
        }
        let record = parse(protocol, &line).filter(|record| is_wanted(record));
        records.extend(record);
    }
    Ok(())
}

fn parse(protocol: &str, line: &str) -> Option<api::ConnectRecord> {
    let mut fields = line.split_ascii_whitespace();
    let _slot = fields.next()?.strip_suffix(':')?;
    let (localip, localport) = endpoint(fields.next()?)?;
    let (remoteip, remoteport) = endpoint(fields.next()?)?;
    let state = u32::from_str_radix(fields.next()?, 16).ok()?;
    let (txqueue, rxqueue) = pair(fields.next()?)?;
    let (timer, timerwhen) = pair(fields.next()?)?;
    let retrnsmt = u64::from_str_radix(fields.next()?, 16).ok()?;
    let uid = fields.next()?.parse().ok()?;
    let timeout = fields.next()?.parse().ok()?;
    let inode = fields.next()?.parse().ok()?;
    let reference = fields.next()?.parse().ok()?;
    // Zeros or a hash for readers that may not see kernel addresses.
    let pointer = u64::from_str_radix(fields.next()?, 16).ok()?;
    Some(api::ConnectRecord {
        l4proto: protocol.to_owned(),
        localip: localip.to_string(),
        localport,
        remoteip: remoteip.to_string(),
        remoteport,
        state: self::state(state).into(),
        txqueue,
        rxqueue,
        tr: i32::try_from(timer)
            .ok()
            .and_then(|timer| TimerActive::try_from(timer).ok())
            .unwrap_or(TimerActive::Off)
            .into(),
        timerwhen,
        retrnsmt,
        uid,
        timeout,
        inode,
        r#ref: reference,
        pointer,
        process: None,
        netns: String::new(),
    })
}

/// The wire uses the kernel's numbers (include/net/tcp_states.h). 12 is an incomplete handshake, like 3.
fn state(number: u32) -> State {
    match number {
        12 => State::SynRecv,
        _ => i32::try_from(number)
            .ok()
            .and_then(|number| State::try_from(number).ok())
            .unwrap_or(State::Reserved),
    }
}

/// Parses an address, in 32-bit words of host byte order, and a port.
fn endpoint(field: &str) -> Option<(IpAddr, u32)> {
    let (address, port) = field.split_once(':')?;
    let port = u32::from_str_radix(port, 16).ok()?;
    let words: Option<Vec<u8>> = (0..address.len())
        .step_by(8)
        .map(|at| u32::from_str_radix(address.get(at..at + 8)?, 16).ok())
        .try_fold(Vec::with_capacity(16), |mut bytes, word| {
            bytes.extend(word?.to_ne_bytes());
            Some(bytes)
        });
    let bytes = words?;
    let address = match bytes.len() {
        4 => IpAddr::V4(Ipv4Addr::from(<[u8; 4]>::try_from(bytes).ok()?)),
        16 => IpAddr::V6(Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?)),
        _ => return None,
    };
    Some((address, port))
}

fn pair(field: &str) -> Option<(u64, u64)> {
    let (first, second) = field.split_once(':')?;
    let number = |text| u64::from_str_radix(text, 16).ok();
    Some((number(first)?, number(second)?))
}

#[cfg(test)]
#[cfg(target_endian = "little")]
mod tests {
    use super::*;

    const HEADER: &str = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n";
    const LISTENS: &str = "   0: 0100007F:C350 00000000:0000 0A 00000000:00000000 00:00000000 00000000    50        0 4711 1 0000000000000000 100 0 0 10 0\n";
    const TALKS: &str = "  17: 0F02000A:C350 0202000A:D3A8 01 00000010:00000020 02:0000A7F3 00000003     0        7 4712 2 00000000deadbeef 20 4 30 10 -1\n";
    const SIX: &str = "   1: B80D01200000000000000000010000FE:0016 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 9 1 0000000000000000 100 0 0 10 0\n";

    fn all(text: &str) -> Vec<api::ConnectRecord> {
        let mut records = Vec::new();
        read("tcp", text.as_bytes(), 100, |_| true, &mut records).unwrap();
        records
    }

    #[test]
    fn every_column_is_read() {
        let records = all(&format!("{HEADER}{LISTENS}{TALKS}"));
        assert_eq!(records[0].localip, "127.0.0.1");
        assert_eq!((records[0].localport, records[0].remoteport), (50000, 0));
        assert_eq!((records[0].state(), records[0].uid), (State::Listen, 50));
        let talks = &records[1];
        assert_eq!(
            (&*talks.localip, &*talks.remoteip),
            ("10.0.2.15", "10.0.2.2")
        );
        assert_eq!(
            (talks.remoteport, talks.state()),
            (54184, State::Established)
        );
        assert_eq!((talks.txqueue, talks.rxqueue), (16, 32));
        assert_eq!(
            (talks.tr(), talks.timerwhen),
            (TimerActive::Keepalive, 0xa7f3)
        );
        assert_eq!((talks.retrnsmt, talks.timeout, talks.inode), (3, 7, 4712));
        assert_eq!((talks.r#ref, talks.pointer), (2, 0xdead_beef));
        assert_eq!(all(SIX)[0].localip, "2001:db8::fe00:1");
    }

    #[test]
    fn malformed_socket_lines_are_skipped() {
        let long = "x".repeat(5000);
        let text = format!("{HEADER}\n:\n0: 01:02\n{}\n{long}\n{TALKS}", &LISTENS[..60]);
        assert_eq!(all(&text).len(), 1);
        assert_eq!(
            all(&LISTENS.replace(" 0A ", " 63 "))[0].state(),
            State::Reserved
        );
        assert_eq!(all(&LISTENS.replace("0100007F", "0100é7F")), []);
        assert_eq!(all(&LISTENS.replace("0100007F", "0100007F01")), []);
    }

    #[test]
    fn socket_listing_stops_at_its_limit() {
        let mut records = Vec::new();
        let text = TALKS.repeat(10);
        read("udp", text.as_bytes(), 3, |_| true, &mut records).unwrap();
        assert_eq!(records.len(), 4);
    }
}
