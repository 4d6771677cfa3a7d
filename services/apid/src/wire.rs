//! Walks Protocol Buffers encoding without a type (protobuf.dev, "Encoding").

use prost::encoding::{WireType, decode_key, decode_varint};

/// Depth limit of nested messages; those of the API are shallower.
const LEVELS: usize = 16;

/// Whether a message has more than `most` length-delimited fields, nested ones included. Such a field may be a message
/// of two bytes that takes hundreds when decoded. Text that parses as a message counts as one.
pub(crate) fn has_more_fields(message: &[u8], most: usize) -> bool {
    let mut left = most;
    count(message, LEVELS, &mut left).is_none()
}

/// Subtracts the fields from `left`; `None` if there are too many. Bytes that do not parse end the walk.
fn count(mut rest: &[u8], levels: usize, left: &mut usize) -> Option<()> {
    while let Some((inside, after)) = next(rest) {
        if let Some(inside) = inside {
            *left = left.checked_sub(1)?;
            if let Some(levels) = levels.checked_sub(1) {
                count(inside, levels, left)?;
            }
        }
        rest = after;
    }
    Some(())
}

/// The content of the first field if it is length-delimited, and the bytes after the field.
fn next(mut rest: &[u8]) -> Option<(Option<&[u8]>, &[u8])> {
    let (_, wire) = decode_key(&mut rest).ok()?;
    let fixed = match wire {
        WireType::LengthDelimited => {
            let length = usize::try_from(decode_varint(&mut rest).ok()?).ok()?;
            let (inside, after) = rest.split_at_checked(length)?;
            return Some((Some(inside), after));
        }
        WireType::Varint => {
            decode_varint(&mut rest).ok()?;
            0
        }
        WireType::ThirtyTwoBit => 4,
        WireType::SixtyFourBit => 8,
        // Groups do not occur in the API, and prost skips them.
        WireType::StartGroup | WireType::EndGroup => 0,
    };
    Some((None, rest.get(fixed..)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use corten_api::machine::{Process, ProcessInfo, ProcessesResponse};
    use prost::Message as _;

    fn wrapped(inside: &[u8]) -> Vec<u8> {
        crate::merge::wrapped(inside)
    }

    #[test]
    fn fields_are_counted_on_every_level() {
        let infos = vec![
            ProcessInfo {
                pid: 1,
                cpu_time: 0.5,
                command: "init".to_owned(),
                ..Default::default()
            };
            10
        ];
        let reply = ProcessesResponse {
            messages: vec![Process {
                metadata: None,
                processes: infos,
            }],
        };
        // One process list, ten processes, ten texts.
        let reply = reply.encode_to_vec();
        assert!(!has_more_fields(&reply, 21));
        assert!(has_more_fields(&reply, 20));
    }

    #[test]
    fn small_messages_that_expand_in_memory_are_detected() {
        let bomb = wrapped(&[0x12, 0x00].repeat(4 << 20));
        assert!(has_more_fields(&bomb, crate::fanout::FIELDS));
        // Truncated: a decoder would build all fields before it notices.
        let cut = wrapped(&[&bomb[..], &[0xff]].concat());
        assert!(has_more_fields(&cut, crate::fanout::FIELDS));
        // Of the same length, but one text.
        let text = wrapped(&wrapped(&vec![b'x'; 8 << 20]));
        assert!(!has_more_fields(&text, crate::fanout::FIELDS));
        // Deeper than any message of the API.
        let mut deep = Vec::new();
        for _ in 0..10_000 {
            deep = wrapped(&deep);
        }
        assert!(!has_more_fields(&deep, crate::fanout::FIELDS));
    }
}
