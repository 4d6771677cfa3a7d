//! Writes the packet filter to the kernel, over nfnetlink.

use netlink_packet_core::{NLM_F_ACK, NLM_F_REQUEST, NetlinkMessage, NetlinkPayload};
use netlink_packet_netfilter::none::ControlMessage;
use netlink_packet_netfilter::{
    NetfilterHeader, NetfilterMessage, NetfilterMessageInner, NetfilterProtoFamily,
};
use netlink_sys::protocols::NETLINK_NETFILTER;

use super::{Chains, message};
use crate::netlink::exchange;

/// Resource id of a batch for nf_tables (`linux/netfilter/nfnetlink.h`).
const NF_TABLES: u16 = 10;

/// Replaces machined's chains in the kernel, in one transaction.
///
/// # Errors
/// The kernel's reason for the first refused message. The former chains stay in place.
pub fn replace(chains: &Chains) -> Result<(), String> {
    let batch = batch(chains);
    let last = batch.last_sequence;
    let answers = exchange::<NetfilterMessage>(NETLINK_NETFILTER, &batch.bytes);
    let answers = answers.map_err(|error| format!("nfnetlink: {error}"))?;
    let mut taken = false;
    for answer in &answers {
        let NetlinkPayload::Error(error) = &answer.payload else {
            continue;
        };
        if error.raw_code() != 0 {
            let reason = error.to_io();
            let what = batch.names.get(answer.header.sequence_number as usize);
            let what = what.map_or("the batch", String::as_str);
            return Err(format!("the kernel refuses {what}: {reason}"));
        }
        taken |= answer.header.sequence_number == last;
    }
    if taken {
        Ok(())
    } else {
        Err("the kernel did not answer".to_owned())
    }
}

struct Batch {
    bytes: Vec<u8>,
    /// Sequence number of the last message that the kernel answers.
    last_sequence: u32,
    /// Descriptions for the operator, by sequence number.
    names: Vec<String>,
}

/// Encodes the messages; those between a begin and an end message are one transaction.
fn batch(chains: &Chains) -> Batch {
    let mut batch = Batch {
        bytes: Vec::new(),
        last_sequence: 0,
        names: Vec::new(),
    };
    let control = |message| {
        let header = NetfilterHeader::new(NetfilterProtoFamily::Unspec, 0, NF_TABLES);
        let inner = NetfilterMessageInner::None(message);
        (NetfilterMessage::new(header, inner), NLM_F_REQUEST)
    };
    let rules = message::commands(chains)
        .into_iter()
        .map(|(message, flags)| {
            let header = NetfilterHeader::new(NetfilterProtoFamily::Inet, 0, 0);
            (NetfilterMessage::new(header, message), flags)
        });
    let begin = [control(ControlMessage::BatchBegin)];
    let end = [control(ControlMessage::BatchEnd)];
    for (sequence, (message, flags)) in (0_u32..).zip(begin.into_iter().chain(rules).chain(end)) {
        if flags & NLM_F_ACK != 0 {
            batch.last_sequence = sequence;
        }
        batch.names.push(name(&message));
        let mut message = NetlinkMessage::from(message);
        message.header.flags = flags;
        message.header.sequence_number = sequence;
        message.finalize();
        let start = batch.bytes.len();
        let end = start + message.buffer_len();
        batch.bytes.resize(end.next_multiple_of(4), 0);
        if let Some(place) = batch.bytes.get_mut(start..end) {
            message.serialize(place);
        }
    }
    batch
}

fn name(message: &NetfilterMessage) -> String {
    match &message.inner {
        NetfilterMessageInner::NfTables(message) => format!("{:?}", message.message_type()),
        _ => "the batch".to_owned(),
    }
}
