//! Users and groups of device nodes by name. No I/O.
//!
//! The image has no user database: these are Debian's fixed numbers (base-passwd, `group.master` and `passwd.master`).
//! Groups that Debian numbers at installation (`kvm`, `input`, `render`) are unknown: a rule must give their number.

use crate::plan::Permission;

const GROUPS: [(&str, u32); 20] = [
    ("root", 0),
    ("daemon", 1),
    ("bin", 2),
    ("sys", 3),
    ("adm", 4),
    ("tty", 5),
    ("disk", 6),
    ("lp", 7),
    ("man", 12),
    ("kmem", 15),
    ("dialout", 20),
    ("cdrom", 24),
    ("floppy", 25),
    ("tape", 26),
    ("audio", 29),
    ("shadow", 42),
    ("video", 44),
    ("plugdev", 46),
    ("users", 100),
    ("nogroup", 65534),
];

const USERS: [(&str, u32); 4] = [("root", 0), ("daemon", 1), ("bin", 2), ("nobody", 65534)];

/// The uid of a user name or number.
pub fn user(name: &str) -> Option<u32> {
    number(name, &USERS)
}

/// The gid of a group name or number.
pub fn group(name: &str) -> Option<u32> {
    number(name, &GROUPS)
}

/// Permission bits, in octal.
pub fn mode(text: &str) -> Option<u32> {
    u32::from_str_radix(text, 8)
        .ok()
        .filter(|mode| *mode <= 0o7777)
}

fn number(name: &str, names: &[(&str, u32)]) -> Option<u32> {
    let known = names.iter().find(|(known, _)| *known == name);
    // The kernel reads the highest number as "no change".
    known
        .map(|(_, id)| *id)
        .or_else(|| name.parse().ok().filter(|id| *id != u32::MAX))
}

/// Completes a partial permission. `before` is the node's current one. If a rule sets only a group and `before` is
/// `None`, the group gets read and write access.
pub fn permission(
    before: Option<Permission>,
    mode: Option<u32>,
    uid: Option<u32>,
    gid: Option<u32>,
) -> Permission {
    let group = gid.is_some_and(|gid| gid > 0);
    let usual = if group && before.is_none() {
        0o660
    } else {
        0o600
    };
    let before = before.unwrap_or(Permission {
        mode: usual,
        uid: 0,
        gid: 0,
    });
    Permission {
        mode: mode.unwrap_or(before.mode),
        uid: uid.unwrap_or(before.uid),
        gid: gid.unwrap_or(before.gid),
    }
}

#[cfg(test)]
mod tests {
    use super::{Permission, group, mode, permission, user};

    #[test]
    fn owners_groups_and_modes_parse() {
        assert_eq!(
            (user("root"), group("disk"), group("1001")),
            (Some(0), Some(6), Some(1001))
        );
        assert_eq!(
            (user("alice"), group("kvm"), group("4294967295")),
            (None, None, None)
        );
        assert_eq!(
            (mode("0660"), mode("8"), mode("10000"), mode("")),
            (Some(0o660), None, None, None)
        );
    }

    #[test]
    fn missing_owner_group_or_mode_gets_a_default() {
        let all = |mode, uid, gid| Permission { mode, uid, gid };
        assert_eq!(permission(None, None, None, Some(44)), all(0o660, 0, 44));
        assert_eq!(permission(None, None, Some(5), None), all(0o600, 5, 0));
        let before = Some(all(0o620, 0, 5));
        assert_eq!(permission(before, None, None, Some(44)), all(0o620, 0, 44));
        assert_eq!(
            permission(before, Some(0o666), None, None),
            all(0o666, 0, 5)
        );
    }
}
