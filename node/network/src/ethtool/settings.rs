//! Builds the requests that change a link's device.

use corten_types::names::{WAKE_UPS, number};
use corten_types::network_ethernet::EthernetSpec;

use super::message::{BIT, BITS, Message, NAME, NO_MASK, PLACE, SET};
use super::message::{counted, named, nested, written};

/// Requests (`ETHTOOL_MSG_*_SET`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Setting {
    WakeUps = 10,
    Features = 12,
    Rings = 16,
    Channels = 18,
}

/// Requests that apply the wanted settings, with their fields in the config. The kernel ignores settings that already
/// apply.
pub(super) fn settings(link: &str, wanted: &EthernetSpec) -> Vec<(&'static str, Message)> {
    let (rings, channels) = (&wanted.rings, &wanted.channels);
    let amount = |kind, number: Option<u32>| {
        let counted = |number| counted(kind, number);
        number.map(counted).unwrap_or_default()
    };
    let byte = |kind, byte: Option<u8>| {
        let written = |byte| written(kind, vec![byte]);
        byte.map(written).unwrap_or_default()
    };
    let split = rings
        .tcp_data_split
        .map(|is_split| if is_split { 2 } else { 1 });
    let rings = [
        amount(6, rings.rx),
        amount(7, rings.rx_mini),
        amount(8, rings.rx_jumbo),
        amount(9, rings.tx),
        amount(10, rings.rx_buf_len),
        byte(11, split),
        amount(12, rings.cqe_size),
        byte(13, rings.tx_push.map(u8::from)),
        byte(14, rings.rx_push.map(u8::from)),
        amount(15, rings.tx_push_buf_len),
    ];
    let channels = [
        amount(6, channels.rx),
        amount(7, channels.tx),
        amount(8, channels.other),
        amount(9, channels.combined),
    ];
    let settings = [
        ("rings", Setting::Rings, rings.concat()),
        ("features", Setting::Features, wanted_features(wanted)),
        ("channels", Setting::Channels, channels.concat()),
        ("wakeOnLan", Setting::WakeUps, wanted_wake_ups(wanted)),
    ];
    let given = settings
        .into_iter()
        .filter(|(_, _, content)| !content.is_empty());
    given
        .map(|(field, setting, content)| (field, Message::new(setting as u8, link, &content)))
        .collect()
}

/// Features that the config does not name stay as they are.
fn wanted_features(wanted: &EthernetSpec) -> Vec<u8> {
    let feature = |(name, is_on): (&String, &bool)| {
        let mut parts = vec![named(NAME, name)];
        if *is_on {
            parts.push(written(SET, Vec::new()));
        }
        nested(BIT, &parts)
    };
    let features: Vec<_> = wanted.features.iter().map(feature).collect();
    if features.is_empty() {
        return Vec::new();
    }
    nested(3, &[nested(BITS, &features)])
}

/// Modes that the config does not name are switched off.
fn wanted_wake_ups(wanted: &EthernetSpec) -> Vec<u8> {
    let Some(wake_ups) = &wanted.wake_on_lan else {
        return Vec::new();
    };
    let known = wake_ups.iter().filter_map(|one| number(one, WAKE_UPS));
    let bit = |bit: u32| nested(BIT, &[counted(PLACE, bit.trailing_zeros())]);
    let bits: Vec<_> = known.map(bit).collect();
    nested(2, &[written(NO_MASK, Vec::new()), nested(BITS, &bits)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_configured_ethtool_settings_are_sent() {
        assert!(settings("eth0", &EthernetSpec::default()).is_empty());
        let mut wanted = EthernetSpec::default();
        wanted.rings.tx = Some(512);
        wanted.rings.tcp_data_split = Some(false);
        wanted.channels.combined = Some(4);
        wanted.wake_on_lan = Some(vec!["unicast", "magic"]);
        wanted.features = [("tso".to_owned(), false), ("gro".to_owned(), true)].into();
        let found = settings("eth0", &wanted);
        let message = |command, content: &[u8]| Message::new(command, "eth0", content);
        let rings = [counted(9, 512), written(11, vec![1])].concat();
        let gro = nested(1, &[written(2, b"gro\0".to_vec()), written(3, Vec::new())]);
        let tso = nested(1, &[written(2, b"tso\0".to_vec())]);
        let features = nested(3, &[gro, tso]);
        let wake_ups = nested(
            BITS,
            &[nested(1, &[counted(1, 1)]), nested(1, &[counted(1, 5)])],
        );
        let expected = [
            ("rings", message(16, &rings)),
            ("features", message(12, &nested(3, &[features]))),
            ("channels", message(18, &counted(9, 4))),
            (
                "wakeOnLan",
                message(10, &nested(2, &[written(NO_MASK, Vec::new()), wake_ups])),
            ),
        ];
        assert_eq!(found, expected);
        let nothing = EthernetSpec {
            wake_on_lan: Some(Vec::new()),
            ..EthernetSpec::default()
        };
        let none = nested(2, &[written(NO_MASK, Vec::new()), nested(BITS, &[])]);
        assert_eq!(
            settings("eth0", &nothing),
            [("wakeOnLan", message(10, &none))]
        );
    }
}
