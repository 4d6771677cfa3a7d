//! Values of the standard library's types: text, booleans, numbers, addresses, durations.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use crate::read::{Reader, Value, scalar};
use crate::table::Shape;
use crate::tree::{Content, Node};

impl Value for String {
    const SHAPE: Shape = Shape::Text("text");
    fn read(node: &Node, reader: &mut Reader<'_>) -> Option<Self> {
        scalar(node, reader, "a single value", |text| Some(text.to_owned()))
    }
}

impl Value for bool {
    const SHAPE: Shape = Shape::Plain("true or false");
    fn read(node: &Node, reader: &mut Reader<'_>) -> Option<Self> {
        let value = truth(node);
        if value.is_none() {
            reader.wrong(node.mark, "must be true or false");
        }
        value
    }
}

/// A boolean of YAML 1.2.
fn truth(node: &Node) -> Option<bool> {
    match &node.content {
        Content::Scalar { text, plain: true } => match text.as_str() {
            "true" | "True" | "TRUE" => Some(true),
            "false" | "False" | "FALSE" => Some(false),
            _ => None,
        },
        _ => None,
    }
}

macro_rules! numbers {
    ($($number:ty = $what:literal;)*) => { $(
        impl Value for $number {
            const SHAPE: Shape = Shape::Plain($what);
            fn read(node: &Node, reader: &mut Reader<'_>) -> Option<Self> {
                scalar(node, reader, $what, |text| text.parse().ok())
            }
        }
    )* };
}
numbers! {
    u8 = "a whole number from 0 to 255";
    u16 = "a whole number from 0 to 65535";
    u32 = "a whole number from 0 to 4294967295";
    u64 = "a whole number, 0 or more";
    i64 = "a whole number";
}

impl Value for IpAddr {
    const SHAPE: Shape = Shape::Text("an IP address");
    fn read(node: &Node, reader: &mut Reader<'_>) -> Option<Self> {
        scalar(node, reader, "an IP address", |text| text.parse().ok())
    }
}

impl Value for SocketAddr {
    const SHAPE: Shape = Shape::Text("an IP address and port such as 192.0.2.1:51820");
    fn read(node: &Node, reader: &mut Reader<'_>) -> Option<Self> {
        let what = "an IP address and port such as 192.0.2.1:51820";
        scalar(node, reader, what, |text| {
            let address: SocketAddr = text.parse().ok()?;
            (address.port() != 0).then_some(address)
        })
    }
}

/// Units of a duration, in nanoseconds.
const UNITS: [(&str, u64); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("\u{b5}s", 1_000),
    ("\u{3bc}s", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

impl Value for Duration {
    const SHAPE: Shape = Shape::Text("a duration such as 1m30s");
    fn read(node: &Node, reader: &mut Reader<'_>) -> Option<Self> {
        scalar(node, reader, "a duration such as 1m30s", duration)
    }
}

/// Numbers with units in any order: `1h15m`, `1.5s`; or `0`.
#[must_use]
pub fn duration(text: &str) -> Option<Duration> {
    if text == "0" {
        return Some(Duration::ZERO);
    }
    let mut rest = text;
    let mut total = 0_u64;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit())?;
        let (whole, after) = rest.split_at(digits);
        let fraction = after.strip_prefix('.').map(|after| {
            let end = after
                .find(|c: char| !c.is_ascii_digit())
                .unwrap_or(after.len());
            after.split_at(end)
        });
        let (fraction, after) = fraction.unwrap_or(("", after));
        if whole.is_empty() && fraction.is_empty() {
            return None;
        }
        let end = after
            .find(|c: char| c.is_ascii_digit() || c == '.')
            .unwrap_or(after.len());
        let (unit, next) = after.split_at(end);
        let (_, nanoseconds) = UNITS.iter().find(|(name, _)| *name == unit)?;
        let whole: u64 = if whole.is_empty() {
            0
        } else {
            whole.parse().ok()?
        };
        total = total.checked_add(whole.checked_mul(*nanoseconds)?)?;
        // Each digit of the fraction is worth a tenth of the one before; exact in integers.
        let mut tenth = *nanoseconds;
        for digit in fraction.bytes() {
            tenth /= 10;
            total = total.checked_add(tenth.checked_mul(u64::from(digit - b'0'))?)?;
        }
        rest = next;
    }
    (!text.is_empty()).then_some(Duration::from_nanos(total))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_parsed() {
        let seconds = |text| duration(text).map(|d| d.as_secs_f64());
        assert_eq!(seconds("1m30s"), Some(90.0));
        assert_eq!(seconds("1.5h"), Some(5400.0));
        assert_eq!(seconds(".5s"), Some(0.5));
        assert_eq!(seconds("0"), Some(0.0));
        for bad in [
            "",
            "1",
            "s",
            ".",
            "1d",
            "-1s",
            "1s ",
            "99999999999999999999h",
            "1e9s",
            ".",
        ] {
            assert_eq!(duration(bad), None, "{bad}");
        }
    }
}
