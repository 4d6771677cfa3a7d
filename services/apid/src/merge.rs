//! Labelling answers with the node they come from, without knowing their type.
//!
//! Every unary reply is `{ 1: repeated Element }`, every element and every
//! message of a stream has `{ 1: common.Metadata }`. Appending a field to a
//! message's bytes sets it, and appending repeated elements adds them, so no
//! reply is ever decoded.

use corten_api::common::Metadata;
use corten_api::google::rpc;
use prost::Message as _;
use prost::encoding::{WireType, decode_key, decode_varint, encode_key, encode_varint};
use tonic::{Code, Status};

/// Methods that answer with a stream: their messages are labelled directly.
const STREAMS: [&str; 14] = [
    "Copy",
    "DiskUsage",
    "Dmesg",
    "EtcdSnapshot",
    "Events",
    "ImageList",
    "Kubeconfig",
    "List",
    "ContainerRun",
    "Logs",
    "PacketCapture",
    "Read",
    "HealthCheck",
    "Install",
];

/// Whether a method answers with a stream.
pub(crate) fn is_stream(path: &str) -> bool {
    let method = path.rsplit('/').next().unwrap_or_default();
    STREAMS.contains(&method) || method.ends_with("Stream")
}

/// The metadata field as it is appended: key, length, message.
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

/// A stream's message with its node.
pub(crate) fn labelled_message(message: &[u8], node: &str) -> Vec<u8> {
    [message, &label(&of_node(node))].concat()
}

/// A unary reply whose first element has its node. A reply without elements
/// stays as it is, and so does what is not of this form.
pub(crate) fn labelled_reply(reply: &[u8], node: &str) -> Vec<u8> {
    let Some((element, rest)) = first_element(reply) else {
        return reply.to_vec();
    };
    [&wrapped(&labelled_message(element, node)), rest].concat()
}

/// The element that stands for a node that failed.
pub(crate) fn failure(node: &str, status: &Status) -> Vec<u8> {
    let code = status.code();
    let metadata = Metadata {
        hostname: node.to_owned(),
        error: format!(
            "rpc error: code = {} desc = {}",
            name(code),
            status.message()
        ),
        status: Some(rpc::Status {
            code: code as i32,
            message: status.message().to_owned(),
            details: Vec::new(),
        }),
    };
    label(&metadata)
}

/// Wraps an element as a reply's.
pub(crate) fn wrapped(element: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    encode_key(1, WireType::LengthDelimited, &mut out);
    encode_varint(element.len() as u64, &mut out);
    out.extend_from_slice(element);
    out
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

/// The code's name as the clients print it.
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
            labelled_reply(&reply("one"), "a"),
            labelled_reply(&reply("two"), "b"),
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
    fn a_streams_message_is_labelled_itself() {
        let data = Data {
            metadata: None,
            bytes: b"line\n".to_vec(),
        }
        .encode_to_vec();
        let labelled = Data::decode(labelled_message(&data, "a").as_slice()).unwrap();
        assert_eq!(labelled.bytes, b"line\n");
        assert_eq!(labelled.metadata.unwrap().hostname, "a");
    }

    #[test]
    fn what_is_not_a_reply_is_left_alone() {
        for odd in [&[][..], &[0xff], &[0x0a, 0x05, 1], &[0x12, 0x01, 0x00]] {
            assert_eq!(labelled_reply(odd, "a"), odd);
        }
    }
}
