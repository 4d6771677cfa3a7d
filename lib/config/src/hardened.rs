//! Kernel parameters of the image for the kernel's self-protection (`kernel-config/sysctl*.conf`).
//!
//! A config may make them stricter, never weaker.

use corten_yaml::read::Reader;
use corten_yaml::tree::Node;

/// Values that are at least as strict as the image's.
#[derive(Debug, Clone, Copy)]
enum Rule {
    /// This value and above.
    AtLeast(i64),
    /// From the first to the last value; 0 often means "no limit".
    Within(i64, i64),
}

use Rule::{AtLeast, Within};

/// Two parameters are not in the list. `user.max_user_namespaces`: pods with user namespaces need some, and only the
/// config knows how many. The reaction to a locked-up processor (`kernel.softlockup_panic`,
/// `kernel.hardlockup_panic`): it is no protection, and machined chooses it by the machine.
const RULES: &[(&str, Rule)] = &[
    ("dev.tty.ldisc_autoload", Within(0, 0)),
    ("dev.tty.legacy_tiocsti", Within(0, 0)),
    ("fs.protected_fifos", AtLeast(2)),
    ("fs.protected_hardlinks", AtLeast(1)),
    ("fs.protected_regular", AtLeast(2)),
    ("fs.protected_symlinks", AtLeast(1)),
    ("fs.suid_dumpable", Within(0, 0)),
    ("kernel.dmesg_restrict", AtLeast(1)),
    ("kernel.kptr_restrict", AtLeast(2)),
    ("kernel.oops_limit", Within(1, 100)),
    ("kernel.perf_event_paranoid", AtLeast(3)),
    ("kernel.randomize_va_space", AtLeast(2)),
    ("kernel.unknown_nmi_panic", AtLeast(1)),
    // A value of 2 can be set back to 0; 1 is permanent.
    ("kernel.unprivileged_bpf_disabled", Within(1, 1)),
    ("kernel.warn_limit", Within(1, 100)),
    ("kernel.yama.ptrace_scope", AtLeast(2)),
    ("net.core.bpf_jit_harden", AtLeast(2)),
    ("net.ipv4.conf.all.accept_redirects", Within(0, 0)),
    ("net.ipv4.conf.all.accept_source_route", Within(0, 0)),
    ("net.ipv4.conf.default.accept_redirects", Within(0, 0)),
    ("net.ipv4.conf.default.accept_source_route", Within(0, 0)),
    ("net.ipv4.icmp_echo_ignore_broadcasts", AtLeast(1)),
    ("net.ipv4.icmp_ignore_bogus_error_responses", AtLeast(1)),
    ("net.ipv4.tcp_syncookies", AtLeast(1)),
    ("net.ipv6.conf.all.accept_redirects", Within(0, 0)),
    // A negative value is stricter: it also refuses those of mobile IPv6.
    ("net.ipv6.conf.all.accept_source_route", Within(-1, 0)),
    ("net.ipv6.conf.default.accept_redirects", Within(0, 0)),
    ("net.ipv6.conf.default.accept_source_route", Within(-1, 0)),
    ("vm.mmap_min_addr", AtLeast(65_536)),
    ("vm.mmap_rnd_bits", AtLeast(32)),
];

/// Reports every parameter of a map that is weaker than the image's.
pub(crate) fn check(node: &Node, field: &str, reader: &mut Reader<'_>) {
    let entries = node.get(field).map(Node::entries).unwrap_or_default();
    reader.within(field, |reader| {
        for (key, value) in entries {
            let Some(allowed) = weaker(&key.name, value.text().unwrap_or_default()) else {
                continue;
            };
            let what = format!(
                "must be {allowed}: the image protects the kernel with it; leave it out, or make it stricter"
            );
            reader.within(&key.name, |reader| reader.wrong(value.mark, &what));
        }
    });
}

/// Description of the valid values; `None`: the value is valid, or the parameter has no rule.
fn weaker(key: &str, value: &str) -> Option<String> {
    let rule = rule(&plain(key))?;
    let number: Option<i64> = value.trim().parse().ok();
    let (good, allowed) = match rule {
        AtLeast(least) => (number >= Some(least), format!("at least {least}")),
        Within(first, last) if first == last => (number == Some(first), first.to_string()),
        Within(first, last) => (
            number.is_some_and(|number| (first..=last).contains(&number)),
            format!("from {first} to {last}"),
        ),
    };
    (!good).then_some(allowed)
}

/// The image's rule for a parameter. A rule for future links (`default`) applies to each link.
fn rule(key: &str) -> Option<Rule> {
    let find = |key: &str| RULES.iter().find(|(name, _)| *name == key);
    let of_links = || {
        let families = ["net.ipv4.conf.", "net.ipv6.conf."];
        let family = families
            .into_iter()
            .find(|family| key.starts_with(family))?;
        let (_, parameter) = key.rsplit_once('.')?;
        find(&format!("{family}default.{parameter}"))
    };
    find(key).or_else(of_links).map(|(_, rule)| *rule)
}

/// Canonical spelling of a parameter's name.
fn plain(key: &str) -> String {
    let parts = key.split(['.', '/']).filter(|part| !part.is_empty());
    parts.collect::<Vec<_>>().join(".")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// A config may have every value of the image, and each except those above has a rule.
    #[test]
    fn hardening_rules_cover_every_sysctl_of_the_image() {
        let read = |name: &str| {
            let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/../../kernel-config");
            std::fs::read_to_string(format!("{dir}/{name}")).unwrap()
        };
        for (own, without) in [
            ("sysctl.x86_64.conf", ""),
            // arm64 has no such interrupts.
            ("sysctl.arm64.conf", "kernel.unknown_nmi_panic"),
        ] {
            let text = read("sysctl.conf") + &read(own);
            let lines = text.lines().filter(|line| !line.starts_with('#'));
            let mut image: BTreeMap<&str, &str> = lines
                .filter_map(|line| line.split_once('='))
                .map(|(key, value)| (key.trim(), value.trim()))
                .collect();
            assert_eq!(image.remove("user.max_user_namespaces"), Some("0"));
            let ruled = RULES.iter().map(|(key, _)| *key);
            let ruled: Vec<&str> = ruled.filter(|key| *key != without).collect();
            assert_eq!(ruled, image.keys().copied().collect::<Vec<_>>());
            for (key, value) in image {
                assert_eq!(weaker(key, value), None, "{own}: {key}");
            }
        }
    }

    #[test]
    fn stricter_sysctls_are_allowed_and_no_spelling_bypasses_the_rules() {
        for (key, value) in [
            ("kernel.yama.ptrace_scope", "3"),
            ("kernel.oops_limit", "1"),
            ("net.ipv6.conf.all.accept_source_route", "-1"),
            ("net.ipv4.conf.eth0.accept_redirects", "0"),
            ("net.ipv6.conf.eth0.accept_source_route", "-1"),
            ("net.ipv4.conf.eth0.rp_filter", "0"),
            ("vm.swappiness", "x"),
            ("kernel.softlockup_panic", "0"),
            ("kernel.hardlockup_panic", "0"),
        ] {
            assert_eq!(weaker(key, value), None, "{key}");
        }
        for (key, value, allowed) in [
            ("kernel.kptr_restrict", "1", "at least 2"),
            ("kernel/kptr_restrict", "0", "at least 2"),
            ("kernel/./kptr_restrict", "0", "at least 2"),
            ("kernel//kptr_restrict/", "0", "at least 2"),
            ("kernel.kptr_restrict", "0x2", "at least 2"),
            ("kernel.kptr_restrict", "", "at least 2"),
            ("kernel.oops_limit", "0", "from 1 to 100"),
            ("kernel.unprivileged_bpf_disabled", "2", "1"),
            ("fs.suid_dumpable", "2", "0"),
            ("net.ipv4.conf.eth0.accept_redirects", "1", "0"),
            ("net/ipv4/conf/eth0.100/accept_redirects", "1", "0"),
            ("net.ipv6.conf.lo.accept_source_route", "1", "from -1 to 0"),
        ] {
            assert_eq!(
                weaker(key, value).as_deref(),
                Some(allowed),
                "{key} = {value}"
            );
        }
    }
}
