//! Tables that map kernel and wire numbers to the names clients see, and back.

/// Pairs of number and name. A resource's YAML carries the name alone, its message the number alone.
pub type Table = [(u32, &'static str)];

/// Link flags: `if.h`, without the prefix `IFF_`.
pub const LINK_FLAGS: &Table = &[
    (1, "UP"),
    (1 << 1, "BROADCAST"),
    (1 << 2, "DEBUG"),
    (1 << 3, "LOOPBACK"),
    (1 << 4, "POINTTOPOINT"),
    (1 << 5, "NOTRAILERS"),
    (1 << 6, "RUNNING"),
    (1 << 7, "NOARP"),
    (1 << 8, "PROMISC"),
    (1 << 9, "ALLMULTI"),
    (1 << 10, "MASTER"),
    (1 << 11, "SLAVE"),
    (1 << 12, "MULTICAST"),
    (1 << 13, "PORTSEL"),
    (1 << 14, "AUTOMEDIA"),
    (1 << 15, "DYNAMIC"),
    (1 << 16, "LOWER_UP"),
    (1 << 17, "DORMANT"),
    (1 << 18, "ECHO"),
];

/// Address flags: `if_addr.h`.
pub const ADDRESS_FLAGS: &Table = &[
    (1, "temporary"),
    (1 << 1, "nodad"),
    (1 << 2, "optimistic"),
    (1 << 3, "dadfailed"),
    (1 << 4, "homeaddress"),
    (1 << 5, "deprecated"),
    (1 << 6, "tentative"),
    (1 << 7, "permanent"),
    (1 << 8, "mngmtmpaddr"),
    (1 << 9, "noprefixroute"),
    (1 << 10, "mcautojoin"),
    (1 << 11, "stableprivacy"),
];

/// Hardware type of a link whose packets have no link-layer header, such as a tunnel: `if_arp.h`, `ARPHRD_NONE`.
pub const NO_HEADER: &str = "nohdr";

/// Hardware types of links: `if_arp.h`.
pub const LINK_TYPES: &Table = &[
    (1, "ether"),
    (32, "infiniband"),
    (512, "ppp"),
    (768, "ipip"),
    (769, "tunnel6"),
    (772, "loopback"),
    (776, "sit"),
    (778, "gre"),
    (823, "ip6gre"),
    (0xfffe, NO_HEADER),
    (0xffff, "void"),
];

/// Operational states of a link: `if.h`, `IF_OPER_*` (RFC 2863).
pub const OPERATIONAL_STATES: &Table = &[
    (0, "unknown"),
    (1, "notPresent"),
    (2, "down"),
    (3, "lowerLayerDown"),
    (4, "testing"),
    (5, "dormant"),
    (6, "up"),
];

/// Connector types of a network port: `ethtool.h`, `PORT_*`.
pub const PORTS: &Table = &[
    (0, "TwistedPair"),
    (1, "AUI"),
    (2, "MII"),
    (3, "Fibre"),
    (4, "BNC"),
    (5, "DirectAttach"),
    (0xef, "None"),
    (0xff, "Other"),
];

/// Duplex modes: `ethtool.h`, `DUPLEX_*`.
pub const DUPLEXES: &Table = &[(0, "Half"), (1, "Full"), (0xff, "Unknown")];

/// Wake-on-LAN triggers: `ethtool.h`, `WAKE_*`.
pub const WAKE_UPS: &Table = &[
    (1, "phy"),
    (1 << 1, "unicast"),
    (1 << 2, "multicast"),
    (1 << 3, "broadcast"),
    (1 << 4, "arp"),
    (1 << 5, "magic"),
    (1 << 6, "magicsecure"),
    (1 << 7, "filter"),
];

/// VLAN protocols: `if_ether.h`, `ETH_P_8021Q`, `ETH_P_8021AD`.
pub const VLAN_PROTOCOLS: &Table = &[(0x8100, "802.1q"), (0x88a8, "802.1ad")];

/// Address families: `socket.h`.
pub const FAMILIES: &Table = &[(2, "inet4"), (10, "inet6")];

/// Scopes of addresses and routes: `rtnetlink.h`.
pub const SCOPES: &Table = &[
    (0, "global"),
    (200, "site"),
    (253, "link"),
    (254, "host"),
    (255, "nowhere"),
];

/// Orders of a node's addresses.
pub const SORT_ALGORITHMS: &Table = &[(0, "v1"), (1, "v2")];

/// Route types: `rtnetlink.h`.
pub const ROUTE_TYPES: &Table = &[(1, "unicast"), (6, "blackhole")];

/// Actions of a routing rule: `fib_rules.h`, `rtnetlink.h`.
pub const RULE_ACTIONS: &Table = &[
    (0, "unspec"),
    (1, "unicast"),
    (6, "blackhole"),
    (7, "unreachable"),
    (8, "prohibit"),
];

/// Operators: the protocols by which a link obtains addresses. `vip` is the election of a shared address.
pub const OPERATORS: &Table = &[(0, "dhcp4"), (1, "dhcp6"), (2, "vip")];

/// Client identifiers a node sends to a DHCP server.
pub const CLIENT_IDENTIFIERS: &Table = &[(0, "none"), (1, "mac"), (2, "duid")];

/// Named routing tables: `rtnetlink.h`.
pub const ROUTING_TABLES: &Table = &[
    (0, "unspec"),
    (253, "default"),
    (254, "main"),
    (255, "local"),
];

/// Origins of routes: `rtnetlink.h`.
pub const ROUTE_PROTOCOLS: &Table = &[
    (0, "unspec"),
    (1, "redirect"),
    (2, "kernel"),
    (3, "boot"),
    (4, "static"),
    (9, "ra"),
    (12, "bird"),
    (16, "dhcp"),
    (186, "bgp"),
    (188, "ospf"),
];

/// Phases of a volume's life cycle.
pub const VOLUME_PHASES: &Table = &[
    (0, "waiting"),
    (1, "failed"),
    (2, "missing"),
    (3, "located"),
    (4, "provisioned"),
    (5, "prepared"),
    (6, "ready"),
    (7, "closed"),
];

/// Volume types: the storage a volume lies on.
pub const VOLUME_TYPES: &Table = &[
    (0, "partition"),
    (1, "disk"),
    (2, "tmpfs"),
    (3, "directory"),
    (4, "symlink"),
    (5, "overlay"),
    (6, "external"),
];

/// Encryption providers of volumes.
pub const ENCRYPTION_PROVIDERS: &Table = &[(0, "none"), (1, "luks2")];

/// File systems of volumes; other file systems have no number.
pub const FILE_SYSTEMS: &Table = &[
    (0, "none"),
    (1, "xfs"),
    (2, "vfat"),
    (3, "ext4"),
    (4, "iso9660"),
    (5, "swap"),
    (6, "virtiofs"),
    (7, "btrfs"),
];

/// SELinux modes.
pub const SELINUX_STATES: &Table = &[
    (0, "disabled"),
    (1, "enabled, permissive"),
    (2, "enabled, enforcing"),
];

/// FIPS modes of the kernel's cryptography.
pub const FIPS_STATES: &Table = &[(0, "disabled"), (1, "enabled"), (2, "enabled, strict")];

/// How a kernel module is linked.
pub const MODULE_TYPES: &Table = &[(0, "unknown"), (1, "built-in"), (2, "dynamic")];

/// States of a kernel module.
pub const MODULE_STATES: &Table = &[
    (0, "live"),
    (1, "loading"),
    (2, "unloading"),
    (3, "built-in"),
];

/// States of the image cache.
pub const IMAGE_CACHE_STATES: &Table = &[
    (0, "unknown"),
    (1, "disabled"),
    (2, "preparing"),
    (3, "ready"),
];

/// States of the copy of the image cache on the node's disk.
pub const IMAGE_CACHE_COPIES: &Table =
    &[(0, "unknown"), (1, "skipped"), (2, "copying"), (3, "ready")];

/// Status bits of the kernel's clock: `timex.h`.
pub const CLOCK_STATUSES: &Table = &[
    (1, "STA_PLL"),
    (1 << 1, "STA_PPSFREQ"),
    (1 << 2, "STA_PPSTIME"),
    (1 << 3, "STA_FLL"),
    (1 << 4, "STA_INS"),
    (1 << 5, "STA_DEL"),
    (1 << 6, "STA_UNSYNC"),
    (1 << 7, "STA_FREQHOLD"),
    (1 << 8, "STA_PPSSIGNAL"),
    (1 << 9, "STA_PPSJITTER"),
    (1 << 10, "STA_PPSWANDER"),
    (1 << 11, "STA_PPSERROR"),
    (1 << 12, "STA_CLOCKERR"),
    (1 << 13, "STA_NANO"),
    (1 << 14, "STA_MODE"),
    (1 << 15, "STA_CLK"),
];

/// The name of `number`, or the number in decimal if the table does not name it.
#[must_use]
pub fn name(number: u32, table: &Table) -> String {
    let found = table.iter().find(|(one, _)| *one == number);
    found.map_or_else(|| number.to_string(), |(_, name)| (*name).to_owned())
}

/// The inverse of [`name`]; `None` for text that is neither a name in the table nor a number.
#[must_use]
pub fn number(name: &str, table: &Table) -> Option<u32> {
    let found = table.iter().find(|(_, one)| *one == name);
    found.map_or_else(|| name.parse().ok(), |(number, _)| Some(*number))
}

/// The names of the bits that are set, joined by commas.
#[must_use]
pub fn flags(bits: u32, table: &Table) -> String {
    let set = table.iter().filter(|(bit, _)| bits & bit != 0);
    set.map(|(_, name)| *name).collect::<Vec<_>>().join(",")
}

/// The inverse of [`flags`]; bits without a name are lost.
#[must_use]
pub fn bits(flags: &str, table: &Table) -> u32 {
    let names = flags.split(',').filter_map(|flag| number(flag, table));
    names.fold(0, |all, bit| all | bit)
}

/// Name of a routing table, or its number if it has no name.
#[must_use]
pub fn table_name(table: u32) -> String {
    name(table, ROUTING_TABLES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_convert_both_ways() {
        assert_eq!(flags(0b1_0000_0000_0000_0001, LINK_FLAGS), "UP,LOWER_UP");
        assert_eq!(bits("UP,LOWER_UP", LINK_FLAGS), 0x1_0001);
        assert_eq!((bits("", LINK_FLAGS), bits("NEW", LINK_FLAGS)), (0, 0));
        assert_eq!(name(186, ROUTE_PROTOCOLS), "bgp");
        assert_eq!(name(77, ROUTE_PROTOCOLS), "77");
        assert_eq!(number("77", ROUTE_PROTOCOLS), Some(77));
        assert_eq!(number("main", ROUTING_TABLES), Some(254));
        assert_eq!(name(0xfffe, LINK_TYPES), "nohdr");
        assert_eq!(number("x", SCOPES), None);
    }
}
