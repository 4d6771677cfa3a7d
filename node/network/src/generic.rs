//! Generic netlink: message families, resolved by name (kernel: Documentation/userspace-api/netlink/intro.rst).

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

/// Failure of a request.
#[derive(Debug, Error)]
pub enum NoAnswer {
    /// The request or its answer was lost.
    #[error("generic netlink: {0}")]
    Lost(io::Error),
    /// The kernel refused the request.
    #[error("{0}")]
    Refused(io::Error),
}

/// A family with the ids of this kernel.
#[derive(Debug, Clone)]
pub(super) struct Family {
    /// Message type of the family.
    pub id: u16,
    groups: Vec<Vec<McastGrpAttrs>>,
}

impl Family {
    /// Resolves a family by its name.
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

    /// Id of a multicast group.
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

/// Sends a message and returns the kernel's answers. `flags` are added to `NLM_F_REQUEST`.
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
