//! Sizes and modes.

use corten_yaml::read::{Reader, Value, scalar};
use corten_yaml::table::Shape;
use corten_yaml::tree::Node;

/// A number of bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(pub u64);

impl Size {
    /// Reads `10GiB`, `1.5TB`, `100MB` or a number of bytes.
    #[must_use]
    pub fn parse(text: &str) -> Option<Size> {
        let end = text
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(text.len());
        let (number, unit) = text.split_at(end);
        let unit = unit.trim_start().to_ascii_lowercase();
        let (letter, base) = match unit.strip_suffix("ib") {
            Some(letter) => (letter, 1024_u128),
            None => (unit.strip_suffix('b').unwrap_or(&unit), 1000),
        };
        let power = ["", "k", "m", "g", "t", "p"]
            .iter()
            .position(|l| *l == letter)?;
        let factor = base.pow(u32::try_from(power).ok()?);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        let places = u32::try_from(fraction.len()).ok().filter(|n| *n <= 6)?;
        let scaled: u128 = format!("{whole}{fraction}").parse().ok()?;
        let bytes = scaled.checked_mul(factor)? / 10_u128.pow(places);
        u64::try_from(bytes)
            .ok()
            .filter(|_| !whole.is_empty())
            .map(Size)
    }
}

impl Value for Size {
    const SHAPE: Shape = Shape::Text("a size such as 10GiB");
    fn read(node: &Node, reader: &mut Reader<'_>) -> Option<Self> {
        scalar(node, reader, "a size such as 10GiB", Size::parse)
    }
}

/// Comparison operator of a size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Comparison {
    /// `>=`
    AtLeast,
    /// `<=`
    AtMost,
    /// `>`
    More,
    /// `<`
    Less,
    /// `==`, or no operator
    Equal,
}

impl Comparison {
    /// Whether the comparison holds for these sizes.
    #[must_use]
    pub fn holds(self, found: u64, wanted: Size) -> bool {
        let Size(wanted) = wanted;
        match self {
            Comparison::AtLeast => found >= wanted,
            Comparison::AtMost => found <= wanted,
            Comparison::More => found > wanted,
            Comparison::Less => found < wanted,
            Comparison::Equal => found == wanted,
        }
    }
}

/// Condition on a size: `>= 100GB`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MatchSize(pub Comparison, pub Size);

impl Value for MatchSize {
    const SHAPE: Shape = Shape::Text("a comparison such as >= 100GB");
    fn read(node: &Node, reader: &mut Reader<'_>) -> Option<Self> {
        scalar(node, reader, "a comparison such as >= 100GB", |text| {
            let signs = [
                (">=", Comparison::AtLeast),
                ("<=", Comparison::AtMost),
                (">", Comparison::More),
                ("<", Comparison::Less),
                ("==", Comparison::Equal),
                ("", Comparison::Equal),
            ];
            let mut read = signs
                .into_iter()
                .filter_map(|(sign, how)| Some((text.trim().strip_prefix(sign)?, how)));
            let (size, how) = read.next()?;
            Some(MatchSize(how, Size::parse(size.trim())?))
        })
    }
}

/// Maximum size of a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MaxSize {
    /// Bytes.
    Bytes(u64),
    /// Percentage of the disk, 1 to 100.
    Percent(u8),
}

impl Default for MaxSize {
    fn default() -> MaxSize {
        MaxSize::Percent(100)
    }
}

impl Value for MaxSize {
    const SHAPE: Shape = Shape::Text("a size such as 10GiB, or 50%");
    fn read(node: &Node, reader: &mut Reader<'_>) -> Option<Self> {
        scalar(node, reader, "a size such as 10GiB, or 50%", |text| {
            if let Some(number) = text.strip_suffix('%') {
                let percent = number.parse().ok().filter(|n| (1..=100).contains(n))?;
                return Some(MaxSize::Percent(percent));
            }
            Size::parse(text).map(|Size(bytes)| MaxSize::Bytes(bytes))
        })
    }
}

/// Permissions of a file, written in octal.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FileMode(pub u32);

impl Value for FileMode {
    const SHAPE: Shape = Shape::Text("permissions in octal such as 0o644");
    fn read(node: &Node, reader: &mut Reader<'_>) -> Option<Self> {
        scalar(node, reader, "permissions in octal such as 0o644", |text| {
            let digits = text.strip_prefix("0o").unwrap_or(text);
            u32::from_str_radix(digits, 8)
                .ok()
                .filter(|mode| *mode <= 0o7777)
                .map(FileMode)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_parsed() {
        let bytes = |text| Size::parse(text).map(|size| size.0);
        assert_eq!(bytes("10GiB"), Some(10 << 30));
        assert_eq!(bytes("1.5 TB"), Some(1_500_000_000_000));
        assert_eq!(bytes("512"), Some(512));
        for bad in [
            "",
            "GiB",
            "1..5GB",
            "-1",
            "1XB",
            "1.0000000001TB",
            "999999999PB",
            ".5GB",
        ] {
            assert_eq!(bytes(bad), None, "{bad}");
        }
    }
}
