//! Generic netlink: families of messages by their names (kernel: Documentation/userspace-api/netlink/intro.rst).

use std::fmt::Debug;
use std::io;

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_REQUEST, NetlinkDeserializable, NetlinkMessage, NetlinkPayload,
    NetlinkSerializable,
};
use netlink_packet_generic::GenlMessage;
use netlink_packet_generic::ctrl::nlas::{GenlCtrlAttrs, McastGrpAttrs};
use netlink_packet_generic::ctrl::{GenlCtrl, GenlCtrlCmd};
use netlink_sys::protocols::NETLINK_GENERIC;
use thiserror::Error;

use super::netlink::{bytes, exchange};

/// Why a question has no answer.
#[derive(Debug, Error)]
pub enum NoAnswer {
    /// It could not be asked.
    #[error("generic netlink: {0}")]
    Lost(io::Error),
    /// The kernel's own words.
    #[error("{0}")]
    Refused(io::Error),
}

/// A family as this kernel numbers it.
#[derive(Debug, Clone)]
pub(super) struct Family {
    /// What its messages are marked with.
    pub id: u16,
    groups: Vec<Vec<McastGrpAttrs>>,
}

impl Family {
    /// Asks for it.
    ///
    /// # Errors
    /// [`NoAnswer::Refused`] when the kernel has no such family.
    pub(super) fn named(name: &str) -> Result<Family, NoAnswer> {
        let question = GenlCtrl {
            cmd: GenlCtrlCmd::GetFamily,
            nlas: vec![GenlCtrlAttrs::FamilyName(name.to_owned())],
        };
        let answers = send(GenlMessage::from_payload(question), NLM_F_ACK)?;
        let (mut id, mut groups) = (None, Vec::new());
        for attribute in answers.into_iter().flat_map(|answer| answer.nlas) {
            match attribute {
                GenlCtrlAttrs::FamilyId(found) => id = Some(found),
                GenlCtrlAttrs::McastGroups(found) => groups = found,
                _ => {}
            }
        }
        let id = id.ok_or_else(|| NoAnswer::Lost(io::ErrorKind::UnexpectedEof.into()))?;
        Ok(Family { id, groups })
    }

    /// The number of a group that hears of changes.
    pub(super) fn group(&self, name: &str) -> Option<u32> {
        self.groups.iter().find_map(|group| {
            let is_it =
                |one: &McastGrpAttrs| matches!(one, McastGrpAttrs::Name(found) if found == name);
            let id = |one: &McastGrpAttrs| match one {
                McastGrpAttrs::Id(id) => Some(*id),
                McastGrpAttrs::Name(_) => None,
            };
            group.iter().any(is_it).then(|| group.iter().find_map(id))?
        })
    }
}

/// Sends a message, and returns what the kernel answers. `flags`: besides the one that every question has.
///
/// # Errors
/// See [`NoAnswer`].
pub(super) fn send<T: Debug>(message: GenlMessage<T>, flags: u16) -> Result<Vec<T>, NoAnswer>
where
    GenlMessage<T>: NetlinkSerializable + NetlinkDeserializable,
{
    let mut message = NetlinkMessage::from(message);
    message.header.flags = NLM_F_REQUEST | flags;
    let answers = exchange::<GenlMessage<T>>(NETLINK_GENERIC, &bytes(message));
    let mut found = Vec::new();
    for answer in answers.map_err(NoAnswer::Lost)? {
        match answer.payload {
            NetlinkPayload::Error(error) if error.raw_code() != 0 => {
                return Err(NoAnswer::Refused(error.to_io()));
            }
            NetlinkPayload::InnerMessage(message) => found.push(message.payload),
            _ => {}
        }
    }
    Ok(found)
}
