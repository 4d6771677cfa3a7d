//! `pcap`: captures packets on a link, a line each or as a pcap file.

mod packets;
mod summary;

use std::fs::File;
use std::io::{self, IsTerminal as _, Write};
use std::path::Path;

use anyhow::Context as _;
use corten_api::common::Data;
use corten_api::machine::{BpfInstruction, PacketCaptureRequest};
use corten_client::clients::Machine;
use corten_client::connect::Route;
use corten_client::failure::{Failure, finish};
use corten_client::stream::{Trouble, drain, each, only_one};
use corten_client::table::print;

use crate::cli::Pcap;

use packets::Packets;

/// Maximum number of instructions of a filter: the kernel's limit (`BPF_MAXINSNS`).
const MAX_INSTRUCTIONS: usize = 4096;

/// The request; an invalid filter is refused before any call.
pub(crate) fn request(args: &Pcap) -> Result<PacketCaptureRequest, Failure> {
    let program = args.bpf_filter.as_deref().map(filter).transpose();
    Ok(PacketCaptureRequest {
        interface: args.interface.clone(),
        promiscuous: args.promiscuous,
        snap_len: args.snaplen,
        bpf_filter: program.map_err(Failure::Usage)?.unwrap_or_default(),
    })
}

pub(crate) async fn run(
    routes: Vec<Route>,
    args: &Pcap,
    body: PacketCaptureRequest,
) -> Result<(), Failure> {
    only_one(&routes, "be captured from")?;
    let mut out = Output::new(args.output.as_deref())?;
    let capture = each(routes, async |node| {
        let request = node.request(body.clone());
        let mut client = node.client::<Machine>();
        let mut frames = client.packet_capture(request).await?.into_inner();
        drain(&mut frames, |Data { bytes, .. }| out.take(&bytes)).await
    });
    let failed = match args.duration {
        None => capture.await?,
        // The end of the given duration is the regular end of the capture.
        Some(limit) => match tokio::time::timeout(limit, capture).await {
            Ok(ended) => ended?,
            Err(_) => Vec::new(),
        },
    };
    finish(&failed)
}

/// The output of packets.
enum Output {
    /// The raw capture.
    File(Box<dyn Write>),
    /// Lines on standard output, one for each packet.
    Lines(Packets),
}

impl Output {
    fn new(path: Option<&Path>) -> Result<Output, Failure> {
        match path {
            None => Ok(Output::Lines(Packets::default())),
            Some(path) if path != Path::new("-") => {
                let file = File::create(path).with_context(|| path.display().to_string())?;
                Ok(Output::File(Box::new(file)))
            }
            Some(_) if io::stdout().is_terminal() => Err(Failure::usage(
                "a pcap file is not written to a terminal: leave -o out, or pipe it into `tcpdump -r -`",
            )),
            Some(_) => Ok(Output::File(Box::new(io::stdout()))),
        }
    }

    /// Takes the next bytes of the capture; complete packets are printed while it runs.
    fn take(&mut self, bytes: &[u8]) -> Result<(), Trouble> {
        match self {
            Output::File(out) => {
                out.write_all(bytes)?;
                Ok(out.flush()?)
            }
            Output::Lines(packets) => {
                packets.push(bytes);
                let (text, ended) = lines(packets);
                print(&text)?;
                ended.map_err(Trouble::Said)
            }
        }
    }
}

/// A line for each complete packet, and the error after which no packet can follow, if there is
/// one.
fn lines(packets: &mut Packets) -> (String, Result<(), String>) {
    let mut text = String::new();
    loop {
        match packets.next() {
            Ok(Some(packet)) => text.push_str(&summary::line(&packet)),
            Ok(None) => return (text, Ok(())),
            Err(why) => return (text, Err(why)),
        }
    }
}

/// Parses a filter of tcpdump. `tcpdump -dd` prints a C initialiser a line, and `tcpdump -ddd` the
/// number of lines, then a line of decimal numbers each.
///
/// # Errors
/// A sentence for the user.
fn filter(text: &str) -> Result<Vec<BpfInstruction>, String> {
    let wrong = |line: &str| {
        format!("--bpf-filter: {line:?} is not an instruction in the format of `tcpdump -dd`")
    };
    let mut program = Vec::new();
    // A command line may have joined the lines.
    let text = text.replace("},", "}\n");
    for (number, line) in text.lines().map(str::trim).enumerate() {
        let counts = number == 0 && line.parse::<usize>().is_ok();
        if line.is_empty() || counts {
            continue;
        }
        let inner = line.trim_start_matches('{').trim_end_matches(['}', ',']);
        let numbers: Option<Vec<u32>> = inner
            .split([',', ' ', '\t'])
            .filter(|part| !part.is_empty())
            .map(parse_number)
            .collect();
        let Some([op, jt, jf, k]) = numbers.as_deref() else {
            return Err(wrong(line));
        };
        program.push(BpfInstruction {
            op: *op,
            jt: *jt,
            jf: *jf,
            k: *k,
        });
        if program.len() > MAX_INSTRUCTIONS {
            return Err(format!(
                "--bpf-filter: more than {MAX_INSTRUCTIONS} instructions"
            ));
        }
    }
    if program.is_empty() {
        return Err(wrong(""));
    }
    Ok(program)
}

fn parse_number(text: &str) -> Option<u32> {
    match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_before_a_broken_packet_are_shown() {
        let header = [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 96, 1];
        // A packet of four bytes, and one above the maximum size.
        let first = [5, 7, 4, 4, 0];
        let broken = [5, 7, u32::MAX, 4];
        let numbers = [&header[..], &first, &broken].concat();
        let bytes: Vec<u8> = numbers.iter().flat_map(|n| n.to_be_bytes()).collect();
        let mut packets = Packets::default();
        packets.push(&bytes);
        let (text, ended) = lines(&mut packets);
        assert_eq!(text.lines().count(), 1, "{text}");
        assert!(text.ends_with(", 4 bytes\n"), "{text}");
        let why = ended.unwrap_err();
        assert!(why.contains("a packet of 4294967295 bytes"), "{why}");
    }

    #[test]
    fn filters_of_tcpdump_are_read() {
        let c = "{ 0x28, 0, 0, 0x0000000c },\n{ 0x15, 0, 1, 0x00000806 },\n{ 0x6, 0, 0, 0x00040000 },\n";
        let decimal = "3\n40 0 0 12\n21 0 1 2054\n6 0 0 262144\n";
        let expected = [(0x28, 0, 0, 12), (0x15, 0, 1, 0x806), (6, 0, 0, 0x4_0000)];
        let expected = expected.map(|(op, jt, jf, k)| BpfInstruction { op, jt, jf, k });
        for text in [c, decimal, &c.replace('\n', " ")] {
            assert_eq!(filter(text).unwrap(), expected, "{text}");
        }
        for wrong in ["", "tcp port 80", "{ 1, 2, 3 }", "{ 0x1ffffffff, 0, 0, 0 }"] {
            let refusal = filter(wrong).unwrap_err();
            assert!(refusal.contains("tcpdump -dd"), "{refusal}");
        }
        let long = "{ 6, 0, 0, 0 },".repeat(MAX_INSTRUCTIONS + 1);
        assert!(filter(&long).unwrap_err().contains("more than 4096"));
    }
}
