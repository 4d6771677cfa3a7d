//! Well-formed documents with invalid settings, alone or together.

use super::{future_problems, good, with};

/// A kind, the fields of a document, and the expected problem.
const INVALID: &[(&str, &str, &str)] = &[
    (
        "HostnameConfig",
        "hostname: a..b",
        "hostname must be a name of letters",
    ),
    (
        "HostnameConfig",
        "hostname: a\nauto: stable",
        "auto excludes hostname",
    ),
    (
        "ResolverConfig",
        "nameservers: [{address: x}]",
        "nameservers[0].address must be an IP address",
    ),
    (
        "ResolverConfig",
        "nameservers: [{address: 10.0.0.1, protocol: dns}]",
        "must be one of do53, dot, doh",
    ),
    ("LinkConfig", "mtu: 9000", "name is required"),
    (
        "LinkConfig",
        "name: eth0\nmtu: 10",
        "mtu must be from 68 to 65536",
    ),
    (
        "LinkConfig",
        "name: a/b",
        "name must be the name of a network link",
    ),
    (
        "LinkConfig",
        "name: e\naddresses: [{address: 10.0.0.1/33}]",
        "addresses[0].address must be an address and prefix",
    ),
    (
        "LinkConfig",
        "name: e\naddresses: [{address: 10.0.0.1/8}, {address: 10.0.0.1/8}]",
        "addresses has one address twice",
    ),
    (
        "LinkConfig",
        "name: e\nroutes: [{metric: 1}]",
        "routes[0] needs destination or gateway",
    ),
    (
        "LinkConfig",
        "name: e\nroutes: [{destination: 10.0.0.0/8, gateway: 'fd00::1'}]",
        "routes[0] mixes IPv4 and IPv6",
    ),
    (
        "LinkConfig",
        "name: e\nroutes: [{gateway: 10.0.0.1, metrik: 3}]",
        "did you mean \"metric\"?",
    ),
    (
        "BondConfig",
        "name: b\nlinks: [a]\nbondMode: 802.3ad\nmiimon: 1\narpInterval: 1",
        "arpInterval excludes miimon",
    ),
    (
        "BondConfig",
        "name: b\nlinks: [a]\nbondMode: 802.3ad\nprimary: c",
        "primary must be one of links",
    ),
    (
        "BondConfig",
        "name: b\nbondMode: 802.3ad",
        "links is required",
    ),
    (
        "VLANConfig",
        "name: v\nvlanID: 5000\nparent: e",
        "vlanID must be from 1 to 4094",
    ),
    (
        "VLANConfig",
        "name: v\nvlanID: 5\nparent: v",
        "parent must be another link",
    ),
    (
        "WireguardConfig",
        "name: w\nprivateKey: c2hvcnQ=",
        "privateKey must be base64 of a key of 32 bytes",
    ),
    (
        "WireguardConfig",
        "name: w\nprivateKey: AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\npeers:
    - {publicKey: AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=, endpoint: 'gate.example:51820'}",
        "peers[0].endpoint must be an IP address and port such as 192.0.2.1:51820",
    ),
    (
        "WireguardConfig",
        "name: w\nprivateKey: AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\npeers:
    - {publicKey: AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=, persistentKeepaliveInterval: 500ms}",
        "peers[0].persistentKeepaliveInterval must be whole seconds, at most 65535s",
    ),
    (
        "WireguardConfig",
        "name: w\nprivateKey: AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\npeers:
    - {publicKey: AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=, allowedIPs: [10.8.1.0/16]}
    - {publicKey: AgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgI=, allowedIPs: [10.8.2.0/16]}",
        "peers has 10.8.0.0/16 in allowedIPs of two peers; only one can have it",
    ),
    (
        "WireguardConfig",
        "name: w\nprivateKey: AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\npeers:
    - {publicKey: AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=}
    - {publicKey: AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=}",
        "peers has one publicKey twice",
    ),
    (
        "DHCPv4Config",
        "name: e\nclientIdentifier: duid",
        "duidRaw is required",
    ),
    (
        "DHCPv4Config",
        "name: e\nclientIdentifier: duid\nduidRaw: xyz",
        "duidRaw must be hexadecimal",
    ),
    (
        "StaticHostConfig",
        "name: host\nhostnames: [a]",
        "name must be an IP address",
    ),
    (
        "RoutingRuleConfig",
        "name: '0'\ntable: 1",
        "name must be a priority from 1 to 32765",
    ),
    ("RoutingRuleConfig", "name: '5'", "table is required"),
    ("RoutingRuleConfig", "name: '5'\ntable: 0", "table must be"),
    (
        "TimeSyncConfig",
        "ntp: {servers: [a]}\nptp: {devices: [/dev/ptp0]}",
        "ptp excludes ntp",
    ),
    (
        "TimeSyncConfig",
        "bootTimeout: 5",
        "bootTimeout must be a duration",
    ),
    (
        "NetworkDefaultActionConfig",
        "ingress: drop",
        "ingress must be one of accept, block",
    ),
    (
        "VethConfig",
        "name: v0\npeer: {name: v0}",
        "peer must have another name",
    ),
    (
        "EthernetConfig",
        "name: eth0\nfeatures: {'tx checksum': true}",
        "features has an invalid name",
    ),
    (
        "RoutingRuleConfig",
        "name: 10\nsrc: 10.0.0.0/8\ndst: fd00::/8\ntable: 7",
        "dst must be of the family of src",
    ),
    (
        "SysctlConfig",
        "params: {kernel.kptr_restrict: 0}",
        "params.kernel.kptr_restrict must be at least 2",
    ),
    (
        "KernelModuleConfig",
        "name: nbd\nparameters: ['-f']",
        "parameters[0] must be a module's parameter",
    ),
    (
        "NetworkRuleConfig",
        "name: r\nportSelector: {protocol: tcp}",
        "portSelector.ports is required",
    ),
    (
        "NetworkRuleConfig",
        "name: r\nportSelector: {protocol: icmp, ports: [1]}",
        "ports must not be given",
    ),
    (
        "NetworkRuleConfig",
        "name: r\nportSelector: {protocol: tcp, ports: [9-1]}",
        "must be a port or a range",
    ),
    (
        "NetworkRuleConfig",
        "name: r\nportSelector: {protocol: tcp, ports: [1]}\ningress: [{subnet: 10.0.0.0/8, except: 11.0.0.0/16}]",
        "except must be a part of subnet",
    ),
    ("VolumeConfig", "name: DATA", "name must be one of STATE"),
    (
        "VolumeConfig",
        "name: STATE\nprovisioning: {minSize: 2GiB, maxSize: 1GiB}",
        "maxSize must not be below minSize",
    ),
    (
        "VolumeConfig",
        "name: STATE\nencryption: {provider: luks2, keys: [{slot: 0}]}",
        "keys[0] needs exactly one of",
    ),
    (
        "VolumeConfig",
        "name: STATE\nencryption: {provider: luks2, keys: [{nodeID: {}}, {slot: 0, nodeID: {}}]}",
        "keys has one slot twice",
    ),
    (
        "VolumeConfig",
        "name: STATE\nencryption: {provider: luks2, keys: [{nodeID: {}, lockToState: true}]}",
        "must not lock STATE to itself",
    ),
    (
        "UserVolumeConfig",
        "name: a b\nprovisioning: {diskSelector: {match: x}}",
        "name must be a name of letters",
    ),
    (
        "UserVolumeConfig",
        "name: a",
        "provisioning needs diskSelector",
    ),
    (
        "UserVolumeConfig",
        "name: a\nvolumeType: directory\nfilesystem: {type: xfs}",
        "filesystem must not be given for a directory",
    ),
    (
        "KmsgLogConfig",
        "name: a\nurl: http://x:1",
        "url must be tcp://host:port",
    ),
    (
        "EventSinkConfig",
        "endpoint: nowhere",
        "endpoint must be host:port",
    ),
    (
        "WatchdogTimerConfig",
        "device: /dev/watchdog\ntimeout: 1s",
        "timeout must be 10s or more",
    ),
    (
        "EnvironmentConfig",
        "variables: {A-B: x}",
        "variables has an invalid name",
    ),
    (
        "EnvironmentConfig",
        "variables: {A: \"x\\0y\"}",
        "variables has a value with a zero byte in it",
    ),
    (
        "ExtensionServiceConfig",
        "name: a\nenvironment: [novalue]",
        "environment[0] must be NAME=value",
    ),
    (
        "ExtensionServiceConfig",
        "name: a\nconfigFiles: [{content: x, mountPath: ../x}]",
        "mountPath must be an absolute path",
    ),
    (
        "EtcFileConfig",
        "name: ../shadow\ncontents: x",
        "name must be a path below /etc",
    ),
    (
        "EtcFileConfig",
        "name: a\nmode: '999'",
        "mode must be permissions in octal",
    ),
    (
        "SysctlConfig",
        "params: {a/../b: 1}",
        "params has an invalid name",
    ),
    (
        "SysctlConfig",
        "params: {/proc/sys/kernel/kptr_restrict: 0}",
        "params has an invalid name",
    ),
    (
        "SysctlConfig",
        "params: {.kernel.kptr_restrict: 0}",
        "params has an invalid name",
    ),
    (
        "SysfsConfig",
        "params: {/proc/sys/kernel/kptr_restrict: 0}",
        "params has an invalid name",
    ),
    (
        "TCPProbeConfig",
        "name: a\nendpoint: 'a:1'\ninterval: 1ns",
        "interval must be at least 100ms",
    ),
    (
        "LinkAliasConfig",
        "name: '%d'\nselector: {match: 'true'}",
        "name must be a name of at most 15 characters, or one of at most 12 with %d behind it",
    ),
    (
        "LinkAliasConfig",
        "name: net0\nselector: {match: 'link.colour == \"red\"'}",
        "selector cannot choose a link: ",
    ),
    (
        "LinkAliasConfig",
        "name: net0",
        "selector is required",
    ),
    (
        "HTTPProbeConfig",
        "name: a\nurl: http://a\ninterval: 1ms",
        "interval must be at least 100ms",
    ),
    (
        "HTTPProbeConfig",
        "name: a\nurl: ftp://a",
        "url must begin with http:// or https://",
    ),
    (
        "HTTPProbeConfig",
        "name: a\nurl: https://me:secret@a/",
        "url must not hold a user or password",
    ),
];

#[test]
fn invalid_settings_are_refused_with_their_field() {
    are_refused(INVALID);
}

/// Checks the problems of documents, given by kind and fields.
pub(super) fn are_refused(documents: &[(&str, &str, &str)]) {
    for (kind, fields, why) in documents {
        let found = future_problems(&with(kind, fields));
        assert!(
            found.iter().any(|p| p.contains(why)),
            "{kind} {fields}: {found:?}"
        );
    }
}

#[test]
fn documents_may_not_contradict_each_other() {
    for (more, why) in [
        (
            "kind: LinkConfig\nname: eth0\n---\napiVersion: v1alpha1\nkind: LinkConfig\nname: eth0",
            "a second document LinkConfig eth0; the first is on line",
        ),
        (
            "kind: LinkConfig\nname: eth0\n---\napiVersion: v1alpha1\nkind: DummyLinkConfig\nname: eth0",
            "the link eth0 is described twice",
        ),
        (
            "kind: BridgeConfig\nname: b\nlinks: [eth0]\n---\napiVersion: v1alpha1\nkind: VRFConfig\ntable: 1\nname: v\nlinks: [eth0]",
            "the link eth0 belongs to two links",
        ),
        (
            "kind: TimeSyncConfig\nntp: {servers: [a]}\n---\napiVersion: v1alpha1\nkind: TimeSyncConfig\nntp: {servers: [b]}",
            "a second document TimeSyncConfig",
        ),
        (
            "kind: LinkConfig\nname: eth0\n---\nmachine: {}",
            "a second document without a kind",
        ),
    ] {
        let found = future_problems(&format!("{}---\napiVersion: v1alpha1\n{more}\n", good()));
        assert!(found.iter().any(|p| p.contains(why)), "{more}: {found:?}");
    }
    let wrong = with("LinkConfig", "name: a").replace("apiVersion: v1alpha1", "apiVersion: v2");
    assert!(future_problems(&wrong)[0].contains("apiVersion must be v1alpha1"));
}
