//! Protocol buffers' encoding, without a type (protobuf.dev, "Encoding").

use prost::encoding::{WireType, decode_key, decode_varint};

/// Messages in messages are looked at down to here; those of the API have fewer levels.
const LEVELS: usize = 16;

/// Whether a message has more than `most` fields that have a length, those inside of others included. Such a
/// field may be a message of two bytes, for which a decoder takes hundreds. Text that reads like a message is
/// counted as one.
pub(crate) fn has_more_fields(message: &[u8], most: usize) -> bool {
    let mut left = most;
    count(message, LEVELS, &mut left).is_none()
}

/// Takes the fields from `left`; `None` when it is not enough. Bytes that are no message end where they are not.
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

/// What the first field has inside if it has a length, and what follows it.
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
        // No message of the API has groups, and prost reads them without keeping anything.
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
        // Cut short: a decoder would have made all of them before it sees that.
        let cut = wrapped(&[&bomb[..], &[0xff]].concat());
        assert!(has_more_fields(&cut, crate::fanout::FIELDS));
        // As long, but one text.
        let text = wrapped(&wrapped(&vec![b'x'; 8 << 20]));
        assert!(!has_more_fields(&text, crate::fanout::FIELDS));
        // Deeper than anything is.
        let mut deep = Vec::new();
        for _ in 0..10_000 {
            deep = wrapped(&deep);
        }
        assert!(!has_more_fields(&deep, crate::fanout::FIELDS));
    }
}
