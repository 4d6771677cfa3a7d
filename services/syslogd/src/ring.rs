//! The ring buffer of one log: whole lines in segments, bounded in bytes. No I/O.
//!
//! Writers fill an open block. Reading seals its content and returns the shared memory (`Bytes`), without a copy.
//! Evicting a segment does not affect a reader that holds it: its memory stays until the reader drops it.

use bytes::{Bytes, BytesMut};
use std::collections::VecDeque;
use std::sync::Arc;

/// Length of a block in bytes. A line longer than half a block gets a block of its own size. The unused rest of a block
/// is charged to its last lines, so this is the slack of a ring's bound.
const BLOCK: usize = 8 * 1024;

/// Cost of a segment in bytes beside its text and marks. A reader that follows line by line makes segments of one line.
const SEGMENT_COST: usize = 128;

/// Lines that arrive within this many microseconds share one time.
const RESOLUTION: u64 = 1000;

/// Time of arrival of a line, and of the lines up to the next mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Mark {
    /// Number of the line.
    line: u64,
    /// Microseconds since 1970.
    at: u64,
}

#[derive(Debug)]
struct Segment {
    first: u64,
    lines: u64,
    bytes: Bytes,
    marks: Arc<[Mark]>,
    /// Unused bytes of its block.
    waste: usize,
}

impl Segment {
    fn cost(&self) -> usize {
        cost(self.bytes.len(), self.marks.len()) + self.waste
    }
}

fn cost(bytes: usize, marks: usize) -> usize {
    bytes + SEGMENT_COST + marks * size_of::<Mark>()
}

/// The kept lines of a log. Lines are numbered from 0 and numbers are never reused.
#[derive(Debug, Default)]
pub struct Ring {
    sealed: VecDeque<Segment>,
    open: BytesMut,
    open_lines: u64,
    open_marks: Vec<Mark>,
    next: u64,
    cost: usize,
    dropped: u64,
}

/// Result of [`Ring::read`].
#[derive(Debug, PartialEq, Eq)]
pub struct Read {
    /// Whole lines.
    pub bytes: Bytes,
    /// Cursor for the next read.
    pub next: u64,
    /// Number of lines between the requested cursor and `bytes` that were evicted.
    pub dropped: u64,
    first: u64,
    marks: Arc<[Mark]>,
}

impl Read {
    /// The lines without line feeds, with the time of arrival of each, in microseconds since 1970, to a millisecond.
    pub fn lines(&self) -> impl Iterator<Item = (&[u8], u64)> {
        let text = self.bytes.strip_suffix(b"\n").unwrap_or(&self.bytes);
        let numbers = self.first..;
        text.split(|byte| *byte == b'\n')
            .zip(numbers)
            .map(|(line, number)| (line, self.time_of(number)))
    }

    fn time_of(&self, line: u64) -> u64 {
        let later = self.marks.partition_point(|mark| mark.line <= line);
        let mark = later.checked_sub(1).and_then(|at| self.marks.get(at));
        mark.map_or(0, |mark| mark.at)
    }
}

impl Ring {
    /// Adds lines that arrived at `at`, in microseconds since 1970. Adds a missing final line feed.
    pub fn append(&mut self, text: &[u8], at: u64) {
        let whole = text.ends_with(b"\n");
        let needed = text.len() + usize::from(!whole);
        if self.open.len() + needed > BLOCK {
            self.seal();
        }
        if self.open.capacity() - self.open.len() < needed {
            // The rest of the block stays with its sealed segments.
            self.seal();
            self.leave_block();
            let size = if needed > BLOCK / 2 { needed } else { BLOCK };
            self.open = BytesMut::with_capacity(size);
        }
        let last = self.open_marks.last();
        // `abs_diff`: a clock set back makes a new mark, too.
        if last.is_none_or(|mark| at.abs_diff(mark.at) >= RESOLUTION) {
            let line = self.next;
            self.open_marks.push(Mark { line, at });
        }
        self.open.extend_from_slice(text);
        let mut lines = count_lines(text);
        if !whole {
            self.open.extend_from_slice(b"\n");
            lines += 1;
        }
        self.open_lines += lines;
        self.next += lines;
    }

    /// Evicts the oldest segment. Returns false if there is none.
    pub fn evict(&mut self) -> bool {
        if self.sealed.is_empty() {
            self.seal();
        }
        let Some(segment) = self.sealed.pop_front() else {
            return false;
        };
        self.dropped += segment.lines;
        self.cost -= segment.cost();
        true
    }

    /// Memory in use in bytes: the kept lines and their overhead.
    #[must_use]
    pub fn cost(&self) -> usize {
        // The cost must not depend on sealing, or reading would increase it.
        let open = if self.open.is_empty() {
            0
        } else {
            cost(self.open.len(), self.open_marks.len())
        };
        self.cost + open
    }

    /// Number of text bytes kept.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.sealed.iter().map(|s| s.bytes.len()).sum::<usize>() + self.open.len()
    }

    /// Number of lines kept.
    #[must_use]
    pub fn lines(&self) -> u64 {
        self.next - self.oldest()
    }

    /// Number of evicted lines.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Number of the next line.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.next
    }

    /// Number of the oldest kept line.
    #[must_use]
    pub fn oldest(&self) -> u64 {
        self.sealed
            .front()
            .map_or(self.next - self.open_lines, |s| s.first)
    }

    /// The lines from `cursor` on, at most one segment; `None` if there are none yet.
    pub fn read(&mut self, cursor: u64) -> Option<Read> {
        if cursor >= self.next {
            return None;
        }
        if cursor >= self.next - self.open_lines {
            self.seal();
        }
        let dropped = self.oldest().saturating_sub(cursor);
        let wanted = cursor.max(self.oldest());
        let index = self.sealed.partition_point(|s| s.first + s.lines <= wanted);
        let segment = self.sealed.get(index)?;
        let skip = line_start(&segment.bytes, wanted - segment.first);
        Some(Read {
            bytes: segment.bytes.slice(skip..),
            next: segment.first + segment.lines,
            dropped,
            first: wanted,
            marks: segment.marks.clone(),
        })
    }

    fn seal(&mut self) {
        if self.open.is_empty() {
            return;
        }
        let segment = Segment {
            first: self.next - self.open_lines,
            lines: self.open_lines,
            bytes: self.open.split().freeze(),
            marks: self.open_marks.as_slice().into(),
            waste: 0,
        };
        self.open_marks.clear();
        self.open_lines = 0;
        self.cost += segment.cost();
        self.sealed.push_back(segment);
    }

    /// Charges the rest of the block to its last lines, which keep the whole block allocated.
    fn leave_block(&mut self) {
        let waste = self.open.capacity();
        if let Some(last) = self.sealed.back_mut() {
            last.waste += waste;
            self.cost += waste;
        }
    }
}

fn count_lines(text: &[u8]) -> u64 {
    text.iter().map(|b| u64::from(*b == b'\n')).sum()
}

/// Offset of line `line`, counted from 0.
fn line_start(bytes: &[u8], line: u64) -> usize {
    if line == 0 {
        return 0;
    }
    let mut left = line;
    for (index, byte) in bytes.iter().enumerate() {
        if *byte == b'\n' {
            left -= 1;
            if left == 0 {
                return index + 1;
            }
        }
    }
    bytes.len()
}

#[cfg(test)]
mod tests {
    use super::{BLOCK, Ring};
    use proptest::prelude::{prop_assert, prop_assert_eq, proptest};

    fn read_all(ring: &mut Ring, mut cursor: u64) -> (String, u64) {
        let (mut text, mut dropped) = (String::new(), 0);
        while let Some(read) = ring.read(cursor) {
            text.push_str(std::str::from_utf8(&read.bytes).unwrap());
            assert!(read.next > cursor);
            cursor = read.next;
            dropped += read.dropped;
        }
        (text, dropped)
    }

    #[test]
    fn lines_are_read_in_order_from_any_cursor() {
        let mut ring = Ring::default();
        for n in 0..5000 {
            ring.append(format!("line {n}").as_bytes(), n);
        }
        ring.append(b"two\nlines\n", 0);
        assert_eq!(ring.end(), 5002);
        let (text, dropped) = read_all(&mut ring, 4998);
        assert_eq!(
            (text.as_str(), dropped),
            ("line 4998\nline 4999\ntwo\nlines\n", 0)
        );
        assert_eq!(ring.read(5002), None);
    }

    #[test]
    fn slow_reader_gets_the_number_of_lost_lines() {
        let mut ring = Ring::default();
        for n in 0..3000 {
            ring.append(format!("line {n}").as_bytes(), n);
        }
        let held = ring.read(0).unwrap().bytes;
        ring.evict();
        let gone = ring.dropped();
        assert!(gone > 0);
        let read = ring.read(10).unwrap();
        assert_eq!(read.dropped, gone - 10);
        assert!(read.bytes.starts_with(format!("line {gone}\n").as_bytes()));
        assert!(
            held.starts_with(b"line 0\n"),
            "a held segment outlives its eviction"
        );
    }

    #[test]
    fn charged_size_is_at_least_the_allocated_size() {
        for lengths in [
            &[4200][..],
            &[100, 4200],
            &[2800],
            &[10],
            &[4095],
            &[9000, 1],
        ] {
            let mut ring = Ring::default();
            let (mut allocated, mut written) = (0, 0);
            for length in lengths.iter().cycle().take(400) {
                ring.append(&vec![b'a'; *length], 0);
                // The first line of a block means that the block is new.
                if ring.open.len() == length + 1 && ring.open_lines == 1 && written > 0 {
                    allocated += written;
                    written = 0;
                }
                written = written.max(ring.open.capacity());
            }
            assert!(
                ring.cost() >= allocated,
                "{lengths:?}: {} {allocated}",
                ring.cost()
            );
            while ring.evict() {}
            assert_eq!(ring.cost(), 0);
        }
    }

    #[test]
    fn reads_share_the_buffer_without_a_copy() {
        let mut ring = Ring::default();
        ring.append(b"x", 0);
        let (first, second) = (ring.read(0).unwrap().bytes, ring.read(0).unwrap().bytes);
        assert_eq!(first.as_ptr(), second.as_ptr());
    }

    #[test]
    fn every_line_has_its_arrival_time() {
        let mut ring = Ring::default();
        for (line, at) in [("a", 5000), ("b", 5999), ("c\nd", 6000), ("e", 100)] {
            ring.append(line.as_bytes(), at);
        }
        let times = |ring: &mut Ring, cursor| -> Vec<(String, u64)> {
            let read = ring.read(cursor).unwrap();
            let lines = read.lines();
            lines
                .map(|(line, at)| (String::from_utf8_lossy(line).into_owned(), at))
                .collect()
        };
        let all = [
            ("a", 5000),
            ("b", 5000),
            ("c", 6000),
            ("d", 6000),
            ("e", 100),
        ];
        let all = all.map(|(line, at)| (line.to_owned(), at));
        assert_eq!(times(&mut ring, 0), all);
        assert_eq!(times(&mut ring, 3), all[3..]);
    }

    proptest! {
        #[test]
        fn appended_lines_are_counted_and_evicted(lines in proptest::collection::vec(0usize..3000, 1..80)) {
            let mut ring = Ring::default();
            let mut cursor = 0;
            for (index, length) in lines.iter().enumerate() {
                ring.append(&vec![b'a'; *length], index as u64 * 700);
                if index % 3 == 0 && let Some(read) = ring.read(cursor) {
                    cursor = read.next;
                }
            }
            prop_assert_eq!(ring.bytes(), lines.iter().sum::<usize>() + lines.len());
            prop_assert_eq!(ring.lines(), lines.len() as u64);
            prop_assert!(ring.cost() >= ring.bytes());
            while ring.evict() {}
            prop_assert_eq!((ring.cost(), ring.lines()), (0, 0));
            prop_assert_eq!(ring.dropped(), lines.len() as u64);
            ring.append(&[b'b'; BLOCK * 2], 0);
            prop_assert_eq!(ring.bytes(), BLOCK * 2 + 1);
        }
    }
}
