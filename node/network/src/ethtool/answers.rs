//! Parses the kernel's answers about a link's device.

use corten_types::names::{DUPLEXES, PORTS, WAKE_UPS, name};
use corten_types::network_ethernet::{
    EthernetChannelsStatus, EthernetRingsStatus, EthernetStatus, Feature,
};

use super::message::{Bit, Message, attributes, bits, number, numbers};

/// The kernel's number for an unknown speed (`SPEED_UNKNOWN`).
const UNKNOWN: u32 = u32::MAX;

/// Requests (`ETHTOOL_MSG_*_GET`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Question {
    Information = 2,
    Modes = 4,
    State = 6,
    WakeUps = 9,
    Features = 11,
    Rings = 15,
    Channels = 17,
}

impl Question {
    pub(super) fn about(self, link: &str) -> Message {
        Message::new(self as u8, link, &[])
    }
}

/// Parses the attributes of an answer into the status.
pub(super) type Tell = fn(&[u8], &mut EthernetStatus);

/// All requests besides [`Question::Information`], with the parsers of their answers.
pub(super) const OTHERS: &[(Question, Tell)] = &[
    (Question::Modes, modes),
    (Question::State, state),
    (Question::WakeUps, wake_ups),
    (Question::Features, features),
    (Question::Rings, rings),
    (Question::Channels, channels),
];

/// The names of the bits that are set.
fn set_names(bytes: &[u8]) -> Vec<String> {
    let set = bits(bytes).into_iter().filter(|bit| bit.is_set);
    set.map(|bit| bit.name).collect()
}

/// `ETHTOOL_A_LINKINFO_*`. The duplex mode stays unknown until another answer tells it.
pub(super) fn information(bytes: &[u8], status: &mut EthernetStatus) {
    status.duplex = name(0xff, DUPLEXES);
    status.port = name(0xff, PORTS);
    for (kind, number) in numbers(bytes) {
        if kind == 2 {
            status.port = name(number, PORTS);
        }
    }
}

/// `ETHTOOL_A_LINKMODES_*`.
pub(super) fn modes(bytes: &[u8], status: &mut EthernetStatus) {
    for (kind, value) in attributes(bytes) {
        match (kind, number(value)) {
            (3, _) => status.our_modes = set_names(value),
            (4, _) => status.peer_modes = set_names(value),
            (5, speed) => status.speed = speed.filter(|speed| *speed != UNKNOWN),
            (6, Some(duplex)) => status.duplex = name(duplex, DUPLEXES),
            _ => {}
        }
    }
}

/// `ETHTOOL_A_LINKSTATE_*`.
fn state(bytes: &[u8], status: &mut EthernetStatus) {
    let mut found = numbers(bytes).filter(|(kind, _)| *kind == 2);
    status.link_state = found.next().map(|(_, state)| state != 0);
}

/// `ETHTOOL_A_WOL_*`. The position of a bit gives its meaning: the kernel's names differ from ours.
fn wake_ups(bytes: &[u8], status: &mut EthernetStatus) {
    let modes = attributes(bytes).filter(|(kind, _)| *kind == 2);
    let set = modes
        .flat_map(|(_, modes)| bits(modes))
        .filter(|bit| bit.is_set);
    let known = set.filter_map(|bit| 1_u32.checked_shl(bit.place));
    status.wake_on_lan = known.map(|bit| name(bit, WAKE_UPS)).collect();
}

/// `ETHTOOL_A_FEATURES_*`. The first bitset names all features and sets the changeable ones; the others give the
/// states.
fn features(bytes: &[u8], status: &mut EthernetStatus) {
    let find = |wanted| attributes(bytes).find(|(kind, _)| *kind == wanted);
    let of = |wanted| find(wanted).map(|(_, set)| set).unwrap_or_default();
    let (wanted, active, unchangeable) = (set_names(of(3)), set_names(of(4)), set_names(of(5)));
    let feature = |bit: Bit| {
        let is_in = |set: &[String]| set.contains(&bit.name);
        let state = |is_on| if is_on { "on" } else { "off" };
        let (is_wanted, is_active) = (is_in(&wanted), is_in(&active));
        let more = if !bit.is_set || is_in(&unchangeable) {
            " [fixed]".to_owned()
        } else if is_wanted != is_active {
            format!(" [requested {}]", state(is_wanted))
        } else {
            String::new()
        };
        Feature {
            status: format!("{}{more}", state(is_active)),
            name: bit.name,
        }
    };
    // Reserved positions are bits without a name.
    let named = bits(of(2)).into_iter().filter(|bit| !bit.name.is_empty());
    status.features = named.map(feature).collect();
}

/// `ETHTOOL_A_RINGS_*`.
fn rings(bytes: &[u8], status: &mut EthernetStatus) {
    let mut rings = EthernetRingsStatus::default();
    for (kind, number) in numbers(bytes) {
        let (number, is_on) = (Some(number), Some(number != 0));
        match kind {
            2 => rings.rx_max = number,
            3 => rings.rx_mini_max = number,
            4 => rings.rx_jumbo_max = number,
            5 => rings.tx_max = number,
            6 => rings.rx = number,
            7 => rings.rx_mini = number,
            8 => rings.rx_jumbo = number,
            9 => rings.tx = number,
            10 => rings.rx_buf_len = number,
            // 0 means unknown.
            11 => rings.tcp_data_split = number.filter(|state| *state != 0).map(|state| state == 2),
            12 => rings.cqe_size = number,
            13 => rings.tx_push = is_on,
            14 => rings.rx_push = is_on,
            15 => rings.tx_push_buf_len = number,
            16 => rings.tx_push_buf_len_max = number,
            _ => {}
        }
    }
    status.rings = Some(rings);
}

/// `ETHTOOL_A_CHANNELS_*`.
fn channels(bytes: &[u8], status: &mut EthernetStatus) {
    let mut channels = EthernetChannelsStatus::default();
    for (kind, number) in numbers(bytes) {
        let number = Some(number);
        match kind {
            2 => channels.rx_max = number,
            3 => channels.tx_max = number,
            4 => channels.other_max = number,
            5 => channels.combined_max = number,
            6 => channels.rx = number,
            7 => channels.tx = number,
            8 => channels.other = number,
            9 => channels.combined = number,
            _ => {}
        }
    }
    status.channels = Some(channels);
}

#[cfg(test)]
mod tests {
    use super::super::message::{BIT, BITS, HEADER, LINK, NAME, NO_MASK, PLACE, SET};
    use super::super::message::{counted, named, nested, written};
    use super::*;

    /// A bitset of `(position, name, is set)`; the list form omits the clear bits.
    fn bitset(kind: u16, is_list: bool, bits: &[(u32, &str, bool)]) -> Vec<u8> {
        let bit = |(place, name, is_set): &(u32, &str, bool)| {
            let mut parts = vec![counted(PLACE, *place), named(NAME, name)];
            if *is_set && !is_list {
                parts.push(written(SET, Vec::new()));
            }
            nested(BIT, &parts)
        };
        let mut parts = vec![counted(2, 64)];
        if is_list {
            parts.push(written(NO_MASK, Vec::new()));
        }
        let bits: Vec<_> = bits.iter().map(bit).collect();
        parts.push(nested(BITS, &bits));
        nested(kind, &parts)
    }

    /// Answers to all requests, in their order.
    fn answers() -> Vec<Vec<u8>> {
        let header = nested(HEADER, &[counted(1, 2), named(LINK, "eth0")]);
        let answer = |parts: &[Vec<u8>]| [header.clone(), parts.concat()].concat();
        let ours = [(5, "1000baseT/Full", true), (6, "Autoneg", false)];
        let all = [
            (0, "a", true),
            (1, "b", true),
            (2, "c", false),
            (3, "d", true),
            (4, "e", true),
            (5, "", false),
            (6, "", false),
        ];
        let on = |places: &[usize]| places.iter().map(|place| all[*place]).collect::<Vec<_>>();
        vec![
            answer(&[
                written(2, vec![1]),
                bitset(3, false, &ours),
                bitset(4, true, &[(6, "Autoneg", true)]),
                counted(5, 1000),
                written(6, vec![1]),
            ]),
            answer(&[written(2, vec![1]), counted(3, 100)]),
            answer(&[bitset(
                2,
                false,
                &[(0, "phy", false), (1, "ucast", true), (5, "magic", true)],
            )]),
            answer(&[
                bitset(2, false, &all),
                bitset(3, true, &on(&[0, 1])),
                bitset(4, true, &on(&[0, 2, 4])),
                bitset(5, true, &on(&[4])),
            ]),
            answer(&[
                counted(2, 4096),
                counted(6, 256),
                written(11, vec![1]),
                written(13, vec![0]),
            ]),
            answer(&[counted(5, 8), counted(9, 2)]),
        ]
    }

    fn told(answers: &[Vec<u8>]) -> EthernetStatus {
        let mut status = EthernetStatus::default();
        information(&written(2, vec![3]), &mut status);
        for ((_, tell), answer) in OTHERS.iter().zip(answers) {
            tell(answer, &mut status);
        }
        status
    }

    #[test]
    fn ethtool_request_names_its_link() {
        let message = Question::Rings.about("eth0");
        assert_eq!(message.command, 15);
        // 5 bytes of text with padding, in a nested attribute.
        assert_eq!(message.attributes.len(), 4 + 4 + 8);
        assert_eq!(
            message.attributes[..4],
            [[16, 0], (0x8001_u16).to_ne_bytes()].concat()
        );
        assert_eq!(message.attributes[8..], *b"eth0\0\0\0\0");
    }

    #[test]
    fn ethtool_answers_are_read_into_a_status() {
        let status = told(&answers());
        assert_eq!((&*status.port, &*status.duplex), ("Fibre", "Full"));
        assert_eq!((status.link_state, status.speed), (Some(true), Some(1000)));
        assert_eq!(status.our_modes, ["1000baseT/Full"]);
        assert_eq!(status.peer_modes, ["Autoneg"]);
        assert_eq!(status.wake_on_lan, ["unicast", "magic"]);
        let features: Vec<String> = status
            .features
            .iter()
            .map(|one| format!("{}: {}", one.name, one.status))
            .collect();
        assert_eq!(
            features,
            [
                "a: on",
                "b: off [requested on]",
                "c: on [fixed]",
                "d: off",
                "e: on [fixed]"
            ]
        );
        let rings = status.rings.unwrap();
        assert_eq!(
            (rings.rx_max, rings.rx, rings.tx),
            (Some(4096), Some(256), None)
        );
        assert_eq!(
            (rings.tcp_data_split, rings.tx_push),
            (Some(false), Some(false))
        );
        let channels = status.channels.unwrap();
        assert_eq!(
            (channels.combined_max, channels.combined),
            (Some(8), Some(2))
        );
    }

    #[test]
    fn link_without_a_cable_has_no_speed() {
        let mut status = EthernetStatus::default();
        modes(
            &[counted(5, UNKNOWN), written(6, vec![0xff])].concat(),
            &mut status,
        );
        assert_eq!((status.speed, &*status.duplex), (None, "Unknown"));
    }

    #[test]
    fn malformed_ethtool_answers_are_ignored() {
        for answer in answers() {
            for length in 0..answer.len() {
                for (_, tell) in OTHERS {
                    tell(&answer[..length], &mut EthernetStatus::default());
                }
            }
            for place in 0..answer.len() {
                let mut broken = answer.clone();
                broken[place] ^= 0xff;
                for (_, tell) in OTHERS {
                    tell(&broken, &mut EthernetStatus::default());
                }
            }
        }
    }
}
