//! The kernel's tunnels, by generic netlink.

use std::fmt::Debug;

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_DUMP, NLM_F_REQUEST, NetlinkDeserializable, NetlinkMessage, NetlinkPayload,
    NetlinkSerializable,
};
use netlink_packet_generic::GenlMessage;
use netlink_packet_generic::ctrl::nlas::GenlCtrlAttrs;
use netlink_packet_generic::ctrl::{GenlCtrl, GenlCtrlCmd};
use netlink_packet_wireguard::WireguardMessage;
use netlink_sys::protocols::NETLINK_GENERIC;

use super::{Change, Found, message};
use crate::network::netlink::{bytes, exchange};

/// A tunnel as it is, keys and all.
///
/// # Errors
/// What the kernel says; the link may be gone.
pub fn found(link: &str) -> Result<Found, String> {
    let question = message::question(link);
    Ok(message::found(ask(family()?, question, NLM_F_DUMP)?))
}

/// Changes a tunnel.
///
/// # Errors
/// What the kernel says about the first message it did not take; those before are done.
pub fn perform(link: &str, change: &Change) -> Result<(), String> {
    let family = family()?;
    for message in message::messages(link, change) {
        ask(family, message, NLM_F_ACK)?;
    }
    Ok(())
}

/// The number generic netlink gave WireGuard (kernel: Documentation/userspace-api/netlink).
fn family() -> Result<u16, String> {
    let question = GenlCtrl {
        cmd: GenlCtrlCmd::GetFamily,
        nlas: vec![GenlCtrlAttrs::FamilyName(super::KIND.to_owned())],
    };
    let answers = send(GenlMessage::from_payload(question), NLM_F_ACK)?;
    let attributes = answers.into_iter().flat_map(|answer| answer.nlas);
    let mut ids = attributes.filter_map(|attribute| match attribute {
        GenlCtrlAttrs::FamilyId(id) => Some(id),
        _ => None,
    });
    ids.next()
        .ok_or_else(|| "the kernel did not answer".to_owned())
}

fn ask(
    family: u16,
    message: WireguardMessage,
    flags: u16,
) -> Result<Vec<WireguardMessage>, String> {
    let mut message = GenlMessage::from_payload(message);
    message.set_resolved_family_id(family);
    send(message, flags)
}

fn send<T: Debug>(message: GenlMessage<T>, flags: u16) -> Result<Vec<T>, String>
where
    GenlMessage<T>: NetlinkSerializable + NetlinkDeserializable,
{
    let mut message = NetlinkMessage::from(message);
    message.header.flags = NLM_F_REQUEST | flags;
    let answers = exchange::<GenlMessage<T>>(NETLINK_GENERIC, &bytes(message));
    let answers = answers.map_err(|error| format!("generic netlink: {error}"))?;
    let mut found = Vec::new();
    for answer in answers {
        match answer.payload {
            NetlinkPayload::Error(error) if error.raw_code() != 0 => {
                return Err(error.to_io().to_string());
            }
            NetlinkPayload::InnerMessage(message) => found.push(message.payload),
            _ => {}
        }
    }
    Ok(found)
}
