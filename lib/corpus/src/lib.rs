//! Foreign bytes for the tests named `hostile`: samples of each format (`tests/corpus`), and damaged forms of them.
//!
//! Owns: the damages. Random bytes rarely pass a parser's first check; a sample with few wrong bits reaches every part.
//! Never: runs in a program; only tests link it.
#![expect(
    clippy::panic,
    reason = "a corpus that cannot be read is a failing test"
)]

mod json;

use std::fs;
use std::io;
use std::path::Path;

use proptest::collection::vec;
use proptest::prelude::{Just, Strategy, any, prop_oneof};
use proptest::sample::Index;

pub use json::hostile_json;

/// Maximum number of damages to one sample.
const MOST: usize = 6;
/// Longest insertion, and longest purely random input, in bytes.
const SHORT: usize = 24;
const LONG: usize = 400;

/// A file of the corpus.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sample {
    /// Name in the format's directory.
    pub name: String,
    /// Content.
    pub bytes: Vec<u8>,
}

/// All samples of a format, sorted by name.
///
/// # Panics
/// The format has no samples.
#[must_use]
pub fn samples(format: &str) -> Vec<Sample> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/corpus");
    let directory = directory.join(format);
    let samples = read(&directory);
    let mut samples = samples.unwrap_or_else(|error| panic!("{}: {error}", directory.display()));
    assert!(
        !samples.is_empty(),
        "{} has no samples",
        directory.display()
    );
    samples.sort_by(|one, other| one.name.cmp(&other.name));
    samples
}

fn read(directory: &Path) -> io::Result<Vec<Sample>> {
    fs::read_dir(directory)?
        .map(|entry| {
            let entry = entry?;
            Ok(Sample {
                name: entry.file_name().to_string_lossy().into_owned(),
                bytes: fs::read(entry.path())?,
            })
        })
        .collect()
}

/// One sample of a format.
///
/// # Panics
/// The sample does not exist.
#[must_use]
pub fn sample(format: &str, name: &str) -> Vec<u8> {
    let found = samples(format).into_iter().find(|one| one.name == name);
    found.map_or_else(
        || panic!("no {name} in tests/corpus/{format}"),
        |one| one.bytes,
    )
}

/// A change of bytes. Positions are relative to the length, so that each fits.
#[derive(Debug, Clone)]
enum Damage {
    /// Inverts a bit.
    Flip(Index, u8),
    /// Replaces a byte.
    Set(Index, u8),
    /// Removes the end.
    Cut(Index),
    /// Removes bytes in the middle.
    Remove(Index, Index),
    /// Inserts bytes.
    Insert(Index, Vec<u8>),
    /// Duplicates a piece.
    Repeat(Index, Index),
    /// Continues with another sample from here on.
    Splice(Index, Index, Index),
}

fn damage() -> impl Strategy<Value = Damage> {
    let place = any::<Index>;
    // Parsers often fail at the extremes of lengths and counts.
    let byte = || {
        prop_oneof![
            any::<u8>(),
            Just(0_u8),
            Just(0x7f_u8),
            Just(0x80_u8),
            Just(0xff_u8)
        ]
    };
    prop_oneof![
        (place(), 0..8_u8).prop_map(|(at, bit)| Damage::Flip(at, bit)),
        (place(), byte()).prop_map(|(at, byte)| Damage::Set(at, byte)),
        place().prop_map(Damage::Cut),
        (place(), place()).prop_map(|(from, to)| Damage::Remove(from, to)),
        (place(), vec(byte(), 1..SHORT)).prop_map(|(at, bytes)| Damage::Insert(at, bytes)),
        (place(), place()).prop_map(|(from, to)| Damage::Repeat(from, to)),
        (place(), place(), place()).prop_map(|(at, which, from)| Damage::Splice(at, which, from)),
    ]
}

/// Both positions in order, at most the length.
fn range(bytes: &[u8], from: &Index, to: &Index) -> (usize, usize) {
    let (one, other) = (from.index(bytes.len() + 1), to.index(bytes.len() + 1));
    (one.min(other), one.max(other))
}

fn apply(bytes: &mut Vec<u8>, damage: &Damage, samples: &[Sample]) {
    match damage {
        Damage::Flip(at, bit) => {
            let at = at.index(bytes.len() + 1);
            if let Some(byte) = bytes.get_mut(at) {
                *byte ^= 1 << bit;
            }
        }
        Damage::Set(at, value) => {
            let at = at.index(bytes.len() + 1);
            if let Some(byte) = bytes.get_mut(at) {
                *byte = *value;
            }
        }
        Damage::Cut(at) => bytes.truncate(at.index(bytes.len() + 1)),
        Damage::Remove(from, to) => {
            let (from, to) = range(bytes, from, to);
            bytes.drain(from..to);
        }
        Damage::Insert(at, more) => {
            let at = at.index(bytes.len() + 1);
            bytes.splice(at..at, more.iter().copied());
        }
        Damage::Repeat(from, to) => {
            let (from, to) = range(bytes, from, to);
            let piece: Vec<u8> = bytes.drain(from..to).collect();
            bytes.splice(from..from, [piece.as_slice(), &piece].concat());
        }
        Damage::Splice(at, which, from) => {
            bytes.truncate(at.index(bytes.len() + 1));
            let other = &which.get(samples).bytes;
            let from = from.index(other.len() + 1);
            bytes.extend(other.iter().skip(from));
        }
    }
}

/// A sample of the format, intact or damaged, or random bytes.
///
/// # Panics
/// The format has no samples.
pub fn hostile(format: &str) -> impl Strategy<Value = Vec<u8>> + use<> {
    let samples = samples(format);
    let damaged = (any::<Index>(), vec(damage(), 0..MOST)).prop_map(move |(which, damages)| {
        let mut bytes = which.get(&samples).bytes.clone();
        for damage in &damages {
            apply(&mut bytes, damage, &samples);
        }
        bytes
    });
    prop_oneof![4 => damaged, 1 => vec(any::<u8>(), 0..LONG)]
}

/// [`hostile`] as text; invalid UTF-8 is replaced.
///
/// # Panics
/// The format has no samples.
pub fn hostile_text(format: &str) -> impl Strategy<Value = String> + use<> {
    hostile(format).prop_map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::strategy::ValueTree as _;
    use proptest::test_runner::TestRunner;

    use super::*;

    /// Size limit of a sample, so that a person can read it in minutes.
    const LARGEST: usize = 4096;

    #[test]
    fn every_format_has_small_samples() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/corpus");
        let formats = fs::read_dir(root).unwrap();
        let formats: Vec<String> = formats
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| name != "README.md")
            .collect();
        assert!(formats.len() >= 10, "{formats:?}");
        for format in formats {
            for sample in samples(&format) {
                let length = sample.bytes.len();
                assert!(
                    (1..=LARGEST).contains(&length),
                    "{format}/{}: {length}",
                    sample.name
                );
            }
        }
    }

    #[test]
    fn damaging_strategy_gives_whole_and_damaged_samples() {
        let whole: Vec<Vec<u8>> = samples("dhcpv4").into_iter().map(|one| one.bytes).collect();
        let mut runner = TestRunner::deterministic();
        let strategy = hostile("dhcpv4");
        let mut seen = HashSet::new();
        for _ in 0..1000 {
            let bytes = strategy.new_tree(&mut runner).unwrap().current();
            let is_whole = whole.contains(&bytes);
            let begins_well = whole.iter().any(|one| bytes.starts_with(&one[..8]));
            seen.insert((is_whole, begins_well, bytes.len() > LONG));
        }
        assert!(seen.contains(&(true, true, false)) || seen.contains(&(true, true, true)));
        assert!(seen.contains(&(false, true, false)) || seen.contains(&(false, true, true)));
        assert!(seen.contains(&(false, false, false)), "{seen:?}");
    }

    #[test]
    fn each_kind_of_damage_changes_bytes_as_described() {
        let others = [Sample {
            name: "b".to_owned(),
            bytes: b"XYZ".to_vec(),
        }];
        let mut runner = TestRunner::deterministic();
        let mut place = || any::<Index>().new_tree(&mut runner).unwrap().current();
        let text = b"abcdefgh";
        for _ in 0..200 {
            let (one, two, three) = (place(), place(), place());
            let after = |damage: Damage| {
                let mut bytes = text.to_vec();
                apply(&mut bytes, &damage, &others);
                bytes
            };
            let flipped = after(Damage::Flip(one, 0));
            let ones: u32 = flipped
                .iter()
                .zip(text)
                .map(|(a, b)| (a ^ b).count_ones())
                .sum();
            assert!(flipped.len() == 8 && ones <= 1);
            assert!(text.starts_with(&after(Damage::Cut(one))));
            assert!(after(Damage::Remove(one, two)).len() <= 8);
            assert_eq!(after(Damage::Insert(one, vec![0, 0])).len(), 10);
            let twice = after(Damage::Repeat(one, two));
            assert!(twice.len() >= 8 && twice.starts_with(b"a") && twice.ends_with(b"h"));
            let spliced = after(Damage::Splice(one, two, three));
            assert!(spliced.len() <= 11);
            // An empty input cannot be damaged.
            let mut nothing = Vec::new();
            apply(&mut nothing, &Damage::Set(one, 1), &others);
            assert!(nothing.is_empty());
        }
    }
}
