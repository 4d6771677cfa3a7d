//! The kernel's WireGuard tunnels over generic netlink.

use netlink_packet_core::{NLM_F_ACK, NLM_F_DUMP};
use netlink_packet_generic::GenlMessage;
use netlink_packet_wireguard::WireguardMessage;

use super::{Change, Found, message};
use crate::generic::{Family, NoAnswer, send};

/// Current settings of a tunnel, including its keys.
///
/// # Errors
/// The kernel's reason; the link may be gone.
pub fn found(link: &str) -> Result<Found, NoAnswer> {
    let question = message::question(link);
    Ok(message::found(ask(family()?, question, NLM_F_DUMP)?))
}

/// Changes a tunnel.
///
/// # Errors
/// The kernel's reason for the first refused message; the messages before it stay in effect.
pub fn perform(link: &str, change: &Change) -> Result<(), NoAnswer> {
    let family = family()?;
    for message in message::messages(link, change) {
        ask(family, message, NLM_F_ACK)?;
    }
    Ok(())
}

fn family() -> Result<u16, NoAnswer> {
    Ok(Family::named(super::KIND)?.id)
}

fn ask(
    family: u16,
    message: WireguardMessage,
    flags: u16,
) -> Result<Vec<WireguardMessage>, NoAnswer> {
    let mut message = GenlMessage::from_payload(message);
    message.set_resolved_family_id(family);
    send(message, flags)
}
