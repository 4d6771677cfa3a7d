//! The functions that a node uses, from the start of a cluster: `services/multicall/functions.txt`. QEMU logs the address of
//! each block of instructions before its first run, and each process has the program at an address of its own: the one at
//! which most blocks of the process begin where a function begins.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader};
use std::ops::RangeInclusive;
use std::time::Duration;

use ::tests::workspace;
use anyhow::ensure;
use corten_rootfs::order::{self, Function};

use crate::cluster;
use crate::document::Section;
use crate::report::mib;

/// The title of the section.
pub const TITLE: &str = "Functions that a node uses";
/// Where the kernel maps position-independent programs.
const ADDRESSES: RangeInclusive<u64> = 0x7000_0000_0000..=0x7fff_ffff_ffff;
/// The size of a page. Programs begin at a page.
const PAGE: u64 = 4096;
/// The kernel maps a file in pieces of this size.
const PIECE: u64 = 65536;
/// Blocks of a process that are compared with the program, at most.
const SAMPLE: usize = 4096;
/// One block in so many of a process begins a function, at least; by chance, one in 200 does.
const STARTS: usize = 40;
/// Fewer blocks that begin a function may be chance.
const FEWEST: usize = 16;

const HEADER: &str = "\
# The functions that a node uses from its start to an idle cluster: the builder places them beside each other. A line is
# the start of a SHA-256: mkimage/rootfs/src/order.rs. `make bench PARTS=functions` writes this file.
";

/// Records the functions of a node with a cluster, idle for `idle` seconds.
pub fn record(idle: u64) -> anyhow::Result<Section> {
    let kubectl = cluster::build()?;
    let daemons = cluster::printed("qemu/step", &["rootfs", "daemons"])?;
    let functions = fs::read_to_string(daemons.join(order::TABLE))?;
    let functions = order::functions(&functions)?;
    let log = workspace::target().join("vm/functions.log");
    let started = cluster::start("bench-functions", &kubectl, |machine| {
        machine.blocks(&log, ADDRESSES)
    })?;
    std::thread::sleep(Duration::from_secs(idle));
    drop(started);
    let program = Program::new(&functions);
    let ran = program.ran(&blocks(BufReader::new(File::open(&log)?))?);
    fs::remove_file(&log)?;
    ensure!(
        !ran.is_empty(),
        "no function of the program is in QEMU's log"
    );
    let mut list = HEADER.to_owned();
    let identities: BTreeSet<u32> = ran.iter().map(|function| function.identity).collect();
    for identity in identities {
        let _infallible = writeln!(list, "{identity:08x}");
    }
    fs::write(workspace::root().join(order::USED), list)?;
    Ok(Section {
        title: TITLE.to_owned(),
        text: text(&functions, &ran),
    })
}

/// The addresses of blocks in QEMU's log, in order: a line `IN:` is followed by the lines of the block's instructions.
fn blocks(log: impl BufRead) -> io::Result<BTreeSet<u64>> {
    let mut blocks = BTreeSet::new();
    let mut begins = false;
    for line in log.split(b'\n') {
        let line = line?;
        if line.starts_with(b"IN:") {
            begins = true;
        } else if let Some(address) = address(&line).filter(|_| begins) {
            blocks.insert(address);
            begins = false;
        }
    }
    Ok(blocks)
}

/// The address at the start of a line: `0x7f0000401000:  55  pushq %rbp`.
fn address(line: &[u8]) -> Option<u64> {
    let line = str::from_utf8(line).ok()?;
    let (address, _) = line.strip_prefix("0x")?.split_once(':')?;
    u64::from_str_radix(address, 16).ok()
}

/// A program's functions by their addresses.
struct Program {
    functions: BTreeMap<u64, Function>,
    /// The addresses by their places in a page.
    starts: BTreeMap<u64, Vec<u64>>,
    /// Its last address, from its start.
    end: u64,
}

impl Program {
    fn new(functions: &[Function]) -> Program {
        let by_address = functions.iter().map(|one| (one.address, *one));
        let mut starts: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
        for one in functions {
            starts
                .entry(one.address % PAGE)
                .or_default()
                .push(one.address);
        }
        let ends = functions.iter().map(|one| one.address + one.size);
        Program {
            functions: by_address.collect(),
            starts,
            end: ends.max().unwrap_or_default(),
        }
    }

    /// The functions that blocks of any process are in.
    fn ran(&self, blocks: &BTreeSet<u64>) -> Vec<Function> {
        let mut ran = BTreeMap::new();
        for group in self.groups(blocks) {
            let Some(base) = self.base(&group) else {
                continue;
            };
            let inside = group.iter().filter_map(|block| block.checked_sub(base));
            let found = inside.filter_map(|block| self.at(block));
            ran.extend(found.map(|function| (function.address, function)));
        }
        ran.into_values().collect()
    }

    /// The function with an address.
    fn at(&self, address: u64) -> Option<Function> {
        let (start, function) = self.functions.range(..=address).next_back()?;
        (address < start + function.size).then_some(*function)
    }

    /// Blocks that are further apart than the program is large are of several processes.
    fn groups(&self, blocks: &BTreeSet<u64>) -> Vec<Vec<u64>> {
        let mut groups: Vec<Vec<u64>> = Vec::new();
        for block in blocks {
            match groups.last_mut() {
                Some(group) if group.last().is_some_and(|last| block - last <= self.end) => {
                    group.push(*block);
                }
                _ => groups.push(vec![*block]),
            }
        }
        groups
    }

    /// The address of the program in a process, if these are blocks of the program. A block and a function that begin at
    /// the same place of a page give one candidate.
    fn base(&self, blocks: &[u64]) -> Option<u64> {
        let sample = blocks.iter().step_by(blocks.len().div_ceil(SAMPLE));
        let mut votes: BTreeMap<u64, usize> = BTreeMap::new();
        for block in sample.clone() {
            let starts = self.starts.get(&(block % PAGE)).into_iter().flatten();
            for base in starts.filter_map(|start| block.checked_sub(*start)) {
                *votes.entry(base).or_default() += 1;
            }
        }
        let (base, count) = votes.into_iter().max_by_key(|(_, count)| *count)?;
        (count >= FEWEST && count * STARTS >= sample.len()).then_some(base)
    }
}

fn text(all: &[Function], ran: &[Function]) -> String {
    let bytes = |functions: &[Function]| mib(functions.iter().map(|one| one.size).sum());
    let pieces = |functions: &[Function]| {
        let pieces = functions.iter().flat_map(|one| {
            let last = (one.address + one.size.saturating_sub(1)) / PIECE;
            one.address / PIECE..=last
        });
        pieces.collect::<BTreeSet<u64>>().len()
    };
    format!(
        "Those of the multi-call program that ran between the start of a node and an idle cluster. The recorded image has the\n\
         order of the list before. The kernel maps a file in pieces of 64 KiB.\n\n\
         | measure | ran | in the program |\n|---|---|---|\n\
         | functions | {} | {} |\n| their size | {:.1} MiB | {:.1} MiB |\n| pieces of 64 KiB with them | {} | {} |\n",
        ran.len(),
        all.len(),
        bytes(ran),
        bytes(all),
        pieces(ran),
        pieces(all)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Functions of 16 bytes with gaps of irregular sizes between them.
    fn program() -> Vec<Function> {
        (0..2000_u32)
            .map(|identity| Function {
                address: 0x1000 + u64::from(identity) * 64 + u64::from(identity * identity % 31),
                size: 16,
                identity,
            })
            .collect()
    }

    #[test]
    fn functions_are_found_wherever_a_process_has_the_program() {
        let functions = program();
        let bases = [0x7f12_3400_0000, 0x7fee_0000_1000];
        let ran = |process: usize| functions.iter().skip(process).step_by(3);
        let mut log =
            String::from("----------------\nIN: \n0x000fe05b:  2e 66  cmpl $0, %cs:0x61c8\n");
        for (process, base) in bases.into_iter().enumerate() {
            for function in ran(process) {
                // Two blocks of a function; the second line is an instruction of the first block.
                let start = base + function.address;
                let _infallible = writeln!(
                    log,
                    "IN: \n{start:#x}:  55  pushq %rbp\n{:#x}:  c3  retq\n\nIN: f\n{:#x}:  90  nop\n",
                    start + 1,
                    start + 8
                );
            }
        }
        let blocks = blocks(log.as_bytes()).unwrap();
        let mut expected: Vec<Function> = [ran(0), ran(1)].into_iter().flatten().copied().collect();
        expected.sort_by_key(|function| function.address);
        assert_eq!(Program::new(&functions).ran(&blocks), expected);
    }

    #[test]
    fn blocks_of_other_programs_are_no_functions() {
        let functions = program();
        let blocks = (0..5000)
            .map(|block| 0x7f00_0000_0000 + block * 23)
            .collect();
        assert_eq!(Program::new(&functions).ran(&blocks), []);
    }
}
