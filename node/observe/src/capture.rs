//! PacketCapture: the packets of a link as a pcap file (draft-ietf-opsawg-pcap: microseconds, host byte order).

use std::io;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use corten_api::common::Data;
use corten_api::machine as api;
use corten_base::proc;
use corten_sys::packet::{self, Capture, Instruction, LONGEST_FILTER, Packet};
use tonic::Status;

use crate::Paths;
use crate::stream::{FRAME, Flow, Sink};

const MAGIC: u32 = 0xa1b2_c3d4;
/// Default and limit of captured bytes per packet; no packet on a wire is longer.
const WHOLE: u32 = 65_535;

/// Streams the packets of `interface` until the caller disconnects. The messages are one file in pieces.
///
/// # Errors
/// NOT_FOUND for an unknown link; INVALID_ARGUMENT for a wrong filter; FAILED_PRECONDITION if the link's packets or the
/// node's rights do not allow it.
pub fn capture(paths: &Paths, request: &api::PacketCaptureRequest, sink: &Sink<Data>) -> Flow {
    let name = &request.interface;
    let filter = filter(&request.bpf_filter)?;
    let Some(index) = packet::link_index(name).map_err(|error| failed(name, &error))? else {
        let text = format!("interface: there is no link {name:?}; `get links` lists the links");
        return Err(Status::not_found(text).into());
    };
    let link_type = link_type(&paths.sys, name)?;
    let snap_length = match request.snap_len {
        0 => WHOLE,
        asked => asked.min(WHOLE),
    };
    let capture = Capture::start(index, request.promiscuous, &filter).map_err(|error| {
        match error.kind() {
            // The kernel validates every instruction first.
            io::ErrorKind::InvalidInput => {
                Status::invalid_argument(format!("bpf_filter: not a classic BPF program: {error}"))
            }
            _ => failed(name, &error),
        }
    })?;
    let mut frame = file_header(snap_length, link_type);
    let mut buffer = vec![0; snap_length as usize];
    loop {
        // Sends the available packets together; waits only when the frame is empty.
        let wait = frame.is_empty();
        match capture
            .next(&mut buffer, wait)
            .map_err(|error| failed(name, &error))?
        {
            Some(packet) => add(&mut frame, packet, &buffer),
            None if wait => sink.check()?,
            None => send(sink, &mut frame)?,
        }
        if frame.len() >= FRAME {
            send(sink, &mut frame)?;
        }
    }
}

fn send(sink: &Sink<Data>, frame: &mut Vec<u8>) -> Flow {
    sink.send(Data {
        metadata: None,
        bytes: std::mem::take(frame),
    })
}

fn failed(interface: &str, error: &io::Error) -> Status {
    Status::failed_precondition(format!(
        "cannot capture on {interface:?}: {error}; `get links` lists the links"
    ))
}

fn filter(asked: &[api::BpfInstruction]) -> Result<Vec<Instruction>, Status> {
    if asked.len() > LONGEST_FILTER {
        let text = format!("bpf_filter: has more than {LONGEST_FILTER} instructions");
        return Err(Status::invalid_argument(text));
    }
    let instruction = |asked: &api::BpfInstruction| {
        Some(Instruction {
            code: asked.op.try_into().ok()?,
            jump_true: asked.jt.try_into().ok()?,
            jump_false: asked.jf.try_into().ok()?,
            operand: asked.k,
        })
    };
    let all: Option<Vec<_>> = asked.iter().map(instruction).collect();
    all.ok_or_else(|| {
        Status::invalid_argument("bpf_filter: op must be below 65536, jt and jf below 256")
    })
}

/// Link-layer header type of a link: maps the kernel's hardware type (include/uapi/linux/if_arp.h) to pcap's (the
/// LINKTYPE registry of tcpdump.org).
fn link_type(sys: &Path, name: &str) -> Result<u32, Status> {
    const ETHERNET: u32 = 1;
    const RAW_IP: u32 = 101;
    let kind = proc::text(sys, &format!("class/net/{name}/type"))?;
    match kind.trim() {
        // Ethernet, loopback.
        "1" | "772" => Ok(ETHERNET),
        // No header (tun, WireGuard), and IP in IP.
        "65534" | "768" | "769" | "776" => Ok(RAW_IP),
        other => Err(Status::failed_precondition(format!(
            "interface: {name} is of kind {other}, whose packets cannot be captured as pcap"
        ))),
    }
}

fn file_header(snap_length: u32, link_type: u32) -> Vec<u8> {
    let mut header = Vec::with_capacity(FRAME);
    header.extend(MAGIC.to_ne_bytes());
    // Version 2.4.
    header.extend(2_u16.to_ne_bytes());
    header.extend(4_u16.to_ne_bytes());
    // Two unused fields.
    header.extend([0; 8]);
    header.extend(snap_length.to_ne_bytes());
    header.extend(link_type.to_ne_bytes());
    header
}

fn add(file: &mut Vec<u8>, packet: Packet, buffer: &[u8]) {
    let since = since_epoch(packet.at);
    let seconds = u32::try_from(since.as_secs()).unwrap_or(u32::MAX);
    let bytes = buffer.get(..packet.captured).unwrap_or_default();
    let length = |length: usize| u32::try_from(length).unwrap_or(u32::MAX);
    for number in [
        seconds,
        since.subsec_micros(),
        length(bytes.len()),
        length(packet.length),
    ] {
        file.extend(number.to_ne_bytes());
    }
    file.extend_from_slice(bytes);
}

fn since_epoch(at: SystemTime) -> Duration {
    at.duration_since(UNIX_EPOCH).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capture_file_has_the_pcap_layout() {
        let mut file = file_header(96, 1);
        let packet = Packet {
            captured: 2,
            length: 1500,
            at: UNIX_EPOCH + Duration::from_micros(5_000_007),
            has_checksum: true,
        };
        add(&mut file, packet, &[0xaa, 0xbb, 0xcc]);
        let numbers = [0xa1b2_c3d4, 0, 0, 0, 96, 1, 5, 7, 2, 1500];
        let mut expected: Vec<u8> = numbers.iter().flat_map(|n: &u32| n.to_ne_bytes()).collect();
        expected[4..8].copy_from_slice(&[2_u16.to_ne_bytes(), 4_u16.to_ne_bytes()].concat());
        expected.extend([0xaa, 0xbb]);
        assert_eq!(file, expected);
    }

    #[test]
    fn filters_that_do_not_fit_are_refused() {
        let ret = api::BpfInstruction {
            op: 6,
            k: 96,
            ..Default::default()
        };
        assert_eq!(filter(&[ret]).unwrap()[0].operand, 96);
        let wide = api::BpfInstruction { jt: 256, ..ret };
        for bad in [vec![wide], vec![ret; LONGEST_FILTER + 1]] {
            let refused = filter(&bad).unwrap_err();
            assert!(refused.message().starts_with("bpf_filter"), "{refused}");
        }
    }

    #[test]
    fn links_of_a_kind_without_a_name_are_refused() {
        let sys = tempfile::tempdir().unwrap();
        for (name, kind, expected) in [
            ("eth0", "1", Some(1)),
            ("tun0", "65534", Some(101)),
            ("ib0", "32", None),
        ] {
            let link = sys.path().join("class/net").join(name);
            std::fs::create_dir_all(&link).unwrap();
            std::fs::write(link.join("type"), format!("{kind}\n")).unwrap();
            assert_eq!(link_type(sys.path(), name).ok(), expected);
        }
    }
}
