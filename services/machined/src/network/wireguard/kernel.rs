//! The kernel's tunnels, by generic netlink.

use netlink_packet_core::{NLM_F_ACK, NLM_F_DUMP};
use netlink_packet_generic::GenlMessage;
use netlink_packet_wireguard::WireguardMessage;

use super::{Change, Found, message};
use crate::network::generic::{Family, send};

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

fn family() -> Result<u16, String> {
    let family = Family::named(super::KIND).map_err(|error| error.to_string())?;
    Ok(family.id)
}

fn ask(
    family: u16,
    message: WireguardMessage,
    flags: u16,
) -> Result<Vec<WireguardMessage>, String> {
    let mut message = GenlMessage::from_payload(message);
    message.set_resolved_family_id(family);
    send(message, flags).map_err(|error| error.to_string())
}
