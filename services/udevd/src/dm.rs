//! Properties that the device mapper's tools derive from a name or number (dmsetup(8), `udevflags` and `splitname`). No
//! I/O.

use crate::event::Properties;

/// Requests of the device mapper tool that caused an event, by bit (libdevmapper.h, `DM_UDEV_*`).
const FLAGS: [&str; 7] = [
    "DISABLE_DM_RULES",
    "DISABLE_SUBSYSTEM_RULES",
    "DISABLE_DISK_RULES",
    "DISABLE_OTHER_RULES",
    "LOW_PRIORITY",
    "DISABLE_LIBRARY_FALLBACK",
    "PRIMARY_SOURCE",
];

/// The flags in the upper half of an event's cookie, each as a property. `None` if `cookie` is not a number.
pub fn flags(cookie: &str) -> Option<Properties> {
    let number = match cookie.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16),
        None => cookie.parse(),
    };
    let bits = number.ok()? >> 16;
    let name = |bit: usize| match FLAGS.get(bit) {
        Some(name) => format!("DM_UDEV_{name}_FLAG"),
        None if bit < 8 => format!("DM_UDEV_FLAG{bit}"),
        None => format!("DM_SUBSYSTEM_UDEV_FLAG{}", bit - 8),
    };
    let set = (0..16).filter(|bit| bits & (1 << bit) != 0);
    Some(set.map(|bit| (name(bit), "1".to_owned())).collect())
}

/// The parts of a logical volume's name `vg-lv-layer`. A hyphen within a part is written twice. `None` unless there are
/// two or three parts.
pub fn volume(name: &str) -> Option<Properties> {
    let mut parts = vec![String::new()];
    let mut chars = name.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '-' if chars.next_if_eq(&'-').is_none() => parts.push(String::new()),
            c => parts.last_mut()?.push(c),
        }
    }
    let (vg, lv, layer) = match parts.as_slice() {
        [vg, lv] => (vg, lv, ""),
        [vg, lv, layer] => (vg, lv, layer.as_str()),
        _ => return None,
    };
    let property = |key: &str, value: &str| (key.to_owned(), value.to_owned());
    Some(
        [
            property("DM_VG_NAME", vg),
            property("DM_LV_NAME", lv),
            property("DM_LV_LAYER", layer),
        ]
        .into(),
    )
}

#[cfg(test)]
mod tests {
    use super::{flags, volume};

    #[test]
    fn device_mapper_cookie_flags_are_decoded() {
        let keys = |cookie: &str| {
            flags(cookie).map(|found| found.into_keys().collect::<Vec<_>>().join(" "))
        };
        let primary = "DM_UDEV_DISABLE_LIBRARY_FALLBACK_FLAG DM_UDEV_PRIMARY_SOURCE_FLAG";
        assert_eq!(keys("6342525").as_deref(), Some(primary));
        let others = "DM_SUBSYSTEM_UDEV_FLAG0 DM_UDEV_FLAG7";
        assert_eq!(keys("0x1800001").as_deref(), Some(others));
        assert_eq!(
            (keys("77").as_deref(), keys("-1"), keys("")),
            (Some(""), None, None)
        );
    }

    #[test]
    fn lvm_names_are_split_into_group_and_volume() {
        let parts = |name: &str| {
            volume(name).map(|found| found.into_values().collect::<Vec<_>>().join(","))
        };
        assert_eq!(parts("vg-lv").as_deref(), Some(",lv,vg"));
        assert_eq!(
            parts("my--vg-data--1-tpool").as_deref(),
            Some("tpool,data-1,my-vg")
        );
        assert_eq!(
            (parts("vg"), parts("a-b-c-d"), parts("")),
            (None, None, None)
        );
    }
}
