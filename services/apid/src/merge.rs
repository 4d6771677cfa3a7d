//! Labels answers with their node. Never decodes a reply.
//!
//! Every unary reply is `{ 1: repeated Element }`. Every element, and every message of a stream, has
//! `{ 1: common.Metadata }`. Bytes appended to a message set a field, or add repeated elements.

use corten_api::common::Metadata;
use corten_api::google::rpc;
use prost::Message as _;
use prost::encoding::{WireType, decode_key, decode_varint, encode_key, encode_varint};
use tonic::{Code, Status};

/// Limit of elements in one node's reply. Methods answer with one element. Each element gets a label, so a node could
/// amplify a small reply.
const ELEMENTS: usize = 128;
/// Limit of a failure's text in bytes.
const TEXT: usize = 1024;

/// The field that labels a message as `node`'s.
pub(crate) fn label_of(node: &str) -> Vec<u8> {
    label(&of_node(node))
}

/// The encoded metadata field: key, length, message.
fn label(metadata: &Metadata) -> Vec<u8> {
    let mut out = Vec::new();
    encode_key(1, WireType::LengthDelimited, &mut out);
    encode_varint(metadata.encoded_len() as u64, &mut out);
    out.extend_from_slice(&metadata.encode_to_vec());
    out
}

fn of_node(node: &str) -> Metadata {
    Metadata {
        hostname: node.to_owned(),
        ..Default::default()
    }
}

/// Labels every element of a unary reply with its node, so that no element can pose as another node's. `None` if the
/// bytes are not such a reply.
pub(crate) fn labelled_reply(reply: &[u8], label: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(reply.len() + 2 * label.len());
    let mut rest = reply;
    for _ in 0..ELEMENTS {
        if rest.is_empty() {
            return Some(out);
        }
        let (element, after) = first_element(rest)?;
        begin_element(element.len() + label.len(), &mut out);
        out.extend_from_slice(element);
        out.extend_from_slice(label);
        rest = after;
    }
    rest.is_empty().then_some(out)
}

/// The element that represents a failed node.
pub(crate) fn failure(node: &str, status: &Status) -> Vec<u8> {
    let code = status.code();
    let text = shortened(status.message());
    let metadata = Metadata {
        hostname: node.to_owned(),
        error: format!("rpc error: code = {} desc = {text}", name(code)),
        status: Some(rpc::Status {
            code: code as i32,
            message: text.to_owned(),
            details: Vec::new(),
        }),
    };
    label(&metadata)
}

/// Wraps an element as a field of a reply.
pub(crate) fn wrapped(element: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(element.len() + 16);
    begin_element(element.len(), &mut out);
    out.extend_from_slice(element);
    out
}

fn begin_element(length: usize, out: &mut Vec<u8>) {
    encode_key(1, WireType::LengthDelimited, out);
    encode_varint(length as u64, out);
}

fn first_element(reply: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut rest = reply;
    let (tag, wire) = decode_key(&mut rest).ok()?;
    if tag != 1 || wire != WireType::LengthDelimited {
        return None;
    }
    let length = usize::try_from(decode_varint(&mut rest).ok()?).ok()?;
    rest.split_at_checked(length)
}

fn shortened(text: &str) -> &str {
    let end = text.floor_char_boundary(TEXT);
    text.get(..end).unwrap_or_default()
}

/// The code's name as clients print it.
fn name(code: Code) -> String {
    format!("{code:?}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use corten_api::common::Data;
    use corten_api::machine::{Hostname, HostnameResponse};

    fn reply(name: &str) -> Vec<u8> {
        let hostname = Hostname {
            metadata: None,
            hostname: name.to_owned(),
        };
        HostnameResponse {
            messages: vec![hostname],
        }
        .encode_to_vec()
    }

    #[test]
    fn replies_and_failures_join_into_one_list() {
        let refused = wrapped(&failure("c", &Status::unimplemented("no")));
        let joined = [
            labelled_reply(&reply("one"), &label_of("a")).unwrap(),
            labelled_reply(&reply("two"), &label_of("b")).unwrap(),
            refused,
        ];
        let all = HostnameResponse::decode(joined.concat().as_slice())
            .unwrap()
            .messages;
        let shown: Vec<_> = all
            .iter()
            .map(|m| {
                (
                    m.metadata.as_ref().unwrap().hostname.as_str(),
                    m.hostname.as_str(),
                )
            })
            .collect();
        assert_eq!(shown, [("a", "one"), ("b", "two"), ("c", "")]);
        let metadata = all[2].metadata.as_ref().unwrap();
        assert_eq!(metadata.status.as_ref().unwrap().code, 12);
        assert_eq!(metadata.error, "rpc error: code = Unimplemented desc = no");
    }

    #[test]
    fn stream_message_is_labelled_with_its_node() {
        let data = Data {
            metadata: None,
            bytes: b"line\n".to_vec(),
        }
        .encode_to_vec();
        let labelled = [data, label_of("a")].concat();
        let labelled = Data::decode(labelled.as_slice()).unwrap();
        assert_eq!(labelled.bytes, b"line\n");
        assert_eq!(labelled.metadata.unwrap().hostname, "a");
    }

    #[test]
    fn reply_cannot_claim_to_come_from_another_node() {
        let mut lie = Hostname {
            metadata: Some(of_node("victim")),
            hostname: "lie".to_owned(),
        };
        let mut lies = HostnameResponse::default();
        for _ in 0..3 {
            lies.messages.push(lie.clone());
            lie.metadata = Some(Metadata::default());
        }
        let labelled = labelled_reply(&lies.encode_to_vec(), &label_of("liar")).unwrap();
        let all = HostnameResponse::decode(labelled.as_slice())
            .unwrap()
            .messages;
        assert_eq!(all.len(), 3);
        for element in all {
            assert_eq!(element.metadata.unwrap().hostname, "liar");
        }
    }

    #[test]
    fn malformed_replies_are_refused() {
        let label = label_of("a");
        assert_eq!(labelled_reply(&[], &label), Some(Vec::new()));
        for odd in [
            &[0xff][..],
            &[0x0a, 0x05, 1],
            &[0x12, 0x01, 0x00],
            &[0x08, 0x01],
        ] {
            assert_eq!(labelled_reply(odd, &label), None, "{odd:?}");
        }
        let many = [0x0a, 0x00].repeat(ELEMENTS);
        assert!(labelled_reply(&many, &label).is_some());
        let more = [0x0a, 0x00].repeat(ELEMENTS + 1);
        assert_eq!(labelled_reply(&more, &label), None);
    }

    #[test]
    fn failure_text_is_bounded() {
        let long = failure("a", &Status::internal("\u{e9}".repeat(100_000)));
        assert!(long.len() < 4 * TEXT, "{}", long.len());
    }
}
