//! Format of a recorded tail: a fixed number of blocks, overwritten cyclically. No I/O.

/// Length of a block in bytes: the smallest write of a disk.
pub const BLOCK: usize = 4096;
const MAGIC: &[u8; 4] = b"CLOG";
const HEAD: usize = 4 + 8 + 4;
const RECORD_HEAD: usize = 2 + 4;
/// Length limit of a record in bytes.
const MOST: usize = BLOCK - HEAD - RECORD_HEAD;

/// Replaces unreadable blocks.
const GAP: &[u8] = b"[lines are missing here]\n";

/// Writes records into blocks.
///
/// ```text
/// block   "CLOG" | sequence u64 | CRC-32 of these | records, then zeros     (4 KiB)
/// record  length u16 | CRC-32 of sequence, length and bytes | bytes
/// ```
///
/// Numbers are little-endian. A block is rewritten while it fills, each time with the same beginning, so a write torn
/// by a power loss damages no earlier record. A record's checksum covers its block's sequence, so a record of an
/// earlier round in the same place is not accepted.
#[derive(Debug)]
pub struct Writer {
    /// Number of blocks in the file.
    blocks: u64,
    sequence: u64,
    block: Vec<u8>,
    /// Whether the block has bytes that are not written yet.
    dirty: bool,
}

impl Writer {
    /// Continues after the content of `old`, which may be arbitrary bytes. `blocks` is at least 1.
    #[must_use]
    pub fn behind(old: &[u8], blocks: u64) -> Writer {
        let last = old.chunks(BLOCK).filter_map(sequence_of).max();
        Writer {
            blocks,
            sequence: last.map_or(0, |last| last.wrapping_add(1)),
            block: Vec::with_capacity(BLOCK),
            dirty: false,
        }
    }

    /// Adds a line with its line feed. Calls `write` with offset and bytes of every block that becomes full. A line
    /// longer than a block is split into several records.
    ///
    /// # Errors
    /// Those of `write`.
    /// Those of `write`.
    pub fn push<E>(
        &mut self,
        line: &[u8],
        mut write: impl FnMut(u64, &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        for bytes in line.chunks(MOST) {
            if self.block.len() + RECORD_HEAD + bytes.len() > BLOCK {
                self.flush(&mut write)?;
                self.sequence = self.sequence.wrapping_add(1);
                self.block.clear();
            }
            if self.block.is_empty() {
                self.block.extend_from_slice(&head(self.sequence));
            }
            let length = u16::try_from(bytes.len()).unwrap_or(u16::MAX).to_le_bytes();
            let sum = record_sum(self.sequence, length, bytes);
            self.block.extend_from_slice(&length);
            self.block.extend_from_slice(&sum);
            self.block.extend_from_slice(bytes);
            self.dirty = true;
        }
        Ok(())
    }

    /// Writes the block being filled.
    ///
    /// # Errors
    /// Those of `write`.
    pub fn flush<E>(
        &mut self,
        mut write: impl FnMut(u64, &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        if self.dirty {
            let mut whole = self.block.clone();
            whole.resize(BLOCK, 0);
            write(self.sequence % self.blocks * BLOCK as u64, &whole)?;
            self.dirty = false;
        }
        Ok(())
    }
}

/// The lines of a file, oldest first, without damaged records.
#[must_use]
pub fn read(file: &[u8]) -> Vec<u8> {
    let blocks = file.chunks(BLOCK);
    let mut blocks: Vec<(u64, &[u8])> = blocks
        .filter_map(|block| Some((sequence_of(block)?, block)))
        .collect();
    blocks.sort_unstable_by_key(|(sequence, _)| *sequence);
    let mut lines = Vec::new();
    let mut next = None;
    for (sequence, block) in blocks {
        if next.is_some_and(|next| next != sequence) {
            lines.extend_from_slice(GAP);
        }
        let mut rest = block.get(HEAD..).unwrap_or_default();
        while let Some((bytes, behind)) = record(sequence, rest) {
            lines.extend_from_slice(bytes);
            rest = behind;
        }
        next = sequence.checked_add(1);
    }
    if !lines.is_empty() && !lines.ends_with(b"\n") {
        lines.push(b'\n');
    }
    lines
}

fn head(sequence: u64) -> Vec<u8> {
    let mut head = MAGIC.to_vec();
    head.extend_from_slice(&sequence.to_le_bytes());
    let sum = crc32fast::hash(&head);
    head.extend_from_slice(&sum.to_le_bytes());
    head
}

fn sequence_of(block: &[u8]) -> Option<u64> {
    let sequence = block.strip_prefix(MAGIC)?.first_chunk()?;
    let sequence = u64::from_le_bytes(*sequence);
    block.starts_with(&head(sequence)).then_some(sequence)
}

fn record_sum(sequence: u64, length: [u8; 2], bytes: &[u8]) -> [u8; 4] {
    let mut sum = crc32fast::Hasher::new();
    sum.update(&sequence.to_le_bytes());
    sum.update(&length);
    sum.update(bytes);
    sum.finalize().to_le_bytes()
}

/// The first record of `bytes`, and the rest.
fn record(sequence: u64, bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk::<2>()?;
    let (sum, rest) = rest.split_first_chunk::<4>()?;
    let (bytes, rest) = rest.split_at_checked(u16::from_le_bytes(*length).into())?;
    let good = !bytes.is_empty() && record_sum(sequence, *length, bytes) == *sum;
    good.then_some((bytes, rest))
}

#[cfg(test)]
mod tests {
    use super::{BLOCK, GAP, Writer, read};
    use proptest::prelude::{any, prop_assert, proptest};
    use std::convert::Infallible;

    const BLOCKS: u64 = 4;

    /// A disk that completes writes until the power fails, and then writes a part of one block.
    struct Disk {
        bytes: Vec<u8>,
        writes: usize,
        cut: Option<(usize, usize)>,
    }

    impl Disk {
        fn new(cut: Option<(usize, usize)>) -> Disk {
            let bytes = vec![0; BLOCK * usize::try_from(BLOCKS).unwrap()];
            Disk {
                bytes,
                writes: 0,
                cut,
            }
        }

        fn write(&mut self, at: u64, block: &[u8]) -> Result<(), Infallible> {
            let kept = match self.cut {
                Some((write, _)) if self.writes > write => 0,
                Some((write, kept)) if self.writes == write => kept,
                _ => block.len(),
            };
            self.writes += 1;
            let at = usize::try_from(at).unwrap();
            self.bytes[at..at + kept].copy_from_slice(&block[..kept]);
            Ok(())
        }
    }

    fn fill(disk: &mut Disk, lines: usize) {
        let mut writer = Writer::behind(&disk.bytes, BLOCKS);
        for n in 0..lines {
            let line = format!("line {n} {}\n", "x".repeat(n % 90));
            writer
                .push(line.as_bytes(), |at, b| disk.write(at, b))
                .unwrap();
            writer.flush(|at, b| disk.write(at, b)).unwrap();
        }
    }

    fn numbers(text: &[u8]) -> Vec<usize> {
        let text = std::str::from_utf8(text).unwrap();
        let number = |line: &str| line.split(' ').nth(1).unwrap().parse().unwrap();
        text.lines().map(number).collect()
    }

    #[test]
    fn the_newest_lines_are_kept_in_order() {
        let mut disk = Disk::new(None);
        fill(&mut disk, 1000);
        let found = numbers(&read(&disk.bytes));
        assert!(found.len() > 150, "{}", found.len());
        assert!(
            found
                .iter()
                .rev()
                .zip((0..1000).rev())
                .all(|(a, b)| *a == b)
        );
    }

    #[test]
    fn restarted_writer_continues_after_the_last_block() {
        let mut disk = Disk::new(None);
        fill(&mut disk, 3);
        fill(&mut disk, 2);
        assert_eq!(numbers(&read(&disk.bytes)), [0, 1, 2, 0, 1]);
    }

    #[test]
    fn oversized_line_is_stored_in_pieces() {
        let mut disk = Disk::new(None);
        let mut writer = Writer::behind(&[], BLOCKS);
        let mut line = vec![b'a'; BLOCK * 2];
        line.push(b'\n');
        writer.push(&line, |at, b| disk.write(at, b)).unwrap();
        writer.flush(|at, b| disk.write(at, b)).unwrap();
        assert_eq!(read(&disk.bytes), line);
    }

    #[test]
    fn a_lost_block_leaves_a_note() {
        let mut disk = Disk::new(None);
        fill(&mut disk, 220);
        disk.bytes[BLOCK + 5] ^= 1;
        let text = read(&disk.bytes);
        let at = text
            .windows(GAP.len())
            .position(|part| part == GAP)
            .unwrap();
        assert!(text[..at].starts_with(b"line 0 ") && text[at + GAP.len()..].starts_with(b"line "));
    }

    proptest! {
        #[test]
        fn power_cut_loses_only_the_line_being_written(write in 0usize..500, kept in 0..=BLOCK) {
            let mut disk = Disk::new(Some((write, kept)));
            fill(&mut disk, 400);
            let text = read(&disk.bytes);
            let found: Vec<_> = numbers(&String::from_utf8(text).unwrap().replace(std::str::from_utf8(GAP).unwrap(), "").into_bytes());
            prop_assert!(found.windows(2).all(|pair| pair[0] + 1 == pair[1]), "{found:?}");
            // Each write is one line here: all lines before the torn write are intact.
            let last = found.last().map_or(0, |last| last + 1);
            prop_assert!(last == write.min(400) || last == write + 1, "{last} after {write}");
        }

        #[test]
        fn hostile_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..BLOCK * 2), sequence: u64) {
            let _ = read(&bytes);
            let mut block = super::head(sequence);
            block.extend_from_slice(&bytes);
            let _ = read(&block);
            let mut writer = Writer::behind(&block, BLOCKS);
            writer.push(b"x\n", |_, _| Ok::<_, Infallible>(())).unwrap();
        }
    }
}
