use base64::Engine as _;
use corten_config::Document;
use corten_config::testing::{crt, doc, document, future, good, key};

use crate::{Plan, diff};

/// The plan of a node with these services.
pub(super) fn plan(old: Option<&Document>, new: &Document) -> Plan {
    crate::plan(old, new, &["apid", "containerd", "ext-ups", "ext-ups-2"])
}

pub(super) fn with(documents: &str) -> Document {
    let plain = good().replace(
        "        hostname: 'cp-1'\n        nameservers:\n            - 10.0.2.3\n",
        "        hostname:\n",
    );
    future(&format!(
        "{plain}---\n{}",
        documents.trim_start_matches("---\n")
    ))
}

/// A tunnel with keys of one repeated byte.
fn tunnel(private: u8, port: &str, peers: &[u8]) -> String {
    let key = |byte| base64::engine::general_purpose::STANDARD.encode([byte; 32]);
    let peers: Vec<String> = peers
        .iter()
        .map(|peer| format!("{{publicKey: {}}}", key(*peer)))
        .collect();
    let fields = format!(
        "name: wg0\nprivateKey: {}\nlistenPort: {port}\npeers: [{}]",
        key(private),
        peers.join(", ")
    );
    doc("WireguardConfig", &fields)
}

#[test]
fn a_diff_shows_what_changed_and_no_secret() {
    let old = document(&good());
    assert_eq!(diff(Some(&old), &old), None);
    // Order and quotes are not a difference.
    let other = good()
        .replace("hostname: 'cp-1'", "hostname: cp-1")
        .replace(
            "version: v1alpha1\ndebug: false\n",
            "debug: false\nversion: \"v1alpha1\"\n",
        );
    assert_eq!(diff(Some(&old), &document(&other)), None);

    let new = good()
        .replace("cp-1", "cp-2")
        .replace("abcdef.0123456789abcdef", "fedcba.hunter2hunter2hu");
    let text = diff(Some(&old), &document(&new)).unwrap();
    assert!(
        text.contains("-        hostname: cp-1\n+        hostname: cp-2\n"),
        "{text}"
    );
    assert!(
        text.contains("-    token: \"******\"\n+    token: \"****** (changed)\"\n"),
        "{text}"
    );
    assert!(
        !text.contains("hunter2") && !text.contains("0123456789"),
        "{text}"
    );
    // The cluster's secret is unchanged, so it is not in the diff.
    assert!(!text.contains("secret:"), "{text}");
    assert!(diff(None, &old).unwrap().contains("+version: v1alpha1\n"));
}

#[test]
fn a_plan_names_fields_restarts_and_reboots() {
    let old = document(&good());
    assert_eq!(plan(Some(&old), &old).to_string(), "nothing changes\n");
    assert!(plan(None, &old).reboot.is_empty());

    let new = document(
        &good()
            .replace("cp-1", "cp-2")
            .replace("        vm.max_map_count: 262144\n", "")
            .replace("/dev/vda", "/dev/vdb")
            .replace("type: controlplane", "type: worker")
            .replace(&format!("        key: {}\n", key()), "")
            .replace("- 10.0.2.3", "- 10.0.2.4"),
    );
    let plan = plan(Some(&old), &new);
    assert_eq!(
        plan.to_string(),
        "~ machine.type
- machine.ca.key
~ machine.network.hostname
~ machine.network.nameservers
- machine.sysctls.vm.max_map_count
~ machine.install.disk
needs a reboot: the type of a node is set at boot (machine.type)
no change found that cuts you off
"
    );
}

#[test]
fn a_plan_names_the_services_that_run_and_no_other() {
    let old = document(&good());
    let env = good().replace("    network:\n", "    env: {A: b}\n    network:\n");
    let extension = |name: &str| {
        let fields = format!("name: {name}\nenvironment: [A=b]");
        good() + &doc("ExtensionServiceConfig", &fields)
    };
    for (new, restarts) in [
        (env, "restarts: containerd, ext-ups, ext-ups-2\n"),
        (extension("ups"), "restarts: ext-ups\n"),
        (extension("none"), ""),
    ] {
        let plan = plan(Some(&old), &document(&new)).to_string();
        assert!(plan.contains(restarts), "{new}\n{plan}");
        assert_eq!(plan.contains("restarts"), !restarts.is_empty(), "{plan}");
    }
    let stopped = crate::plan(Some(&old), &document(&extension("ups")), &[]);
    assert!(stopped.restarts.is_empty(), "{stopped}");
}

#[test]
fn extensions_and_the_installation_disk_are_changes_with_effect() {
    let image = format!("registry.example.org/a@sha256:{}", "0".repeat(64));
    let extensions = format!("disk: /dev/vdb\n        extensions: [{{image: '{image}'}}]");
    let new = good().replace("disk: /dev/vda", &extensions);
    let plan = plan(Some(&document(&good())), &document(&new)).to_string();
    assert!(plan.contains("~ machine.install.extensions\n"), "{plan}");
    assert!(plan.contains("~ machine.install.disk\n"), "{plan}");
}

#[test]
fn added_and_removed_documents_are_changes() {
    let old = with(&doc("SysctlConfig", "params: {a: 1, b: 2}"));
    let new = with(&doc("SysctlConfig", "params: {a: '1'}"));
    let plan = plan(Some(&old), &new);
    assert_eq!(plan.changes.len(), 1);
    assert_eq!(plan.changes[0].path, "SysctlConfig: params.b");
    assert!(
        plan.changes[0].removed && plan.reboot.is_empty(),
        "{plan:?}"
    );
    let gone = self::plan(Some(&old), &document(&good()));
    assert!(
        gone.changes
            .iter()
            .any(|change| change.path == "SysctlConfig" && change.removed),
        "{gone:?}"
    );
}

pub(super) fn told(old: &str, new: &str, risk: &str) {
    let plan = plan(Some(&with(old)), &with(new));
    assert!(
        plan.risks.iter().any(|text| text.contains(risk)),
        "{risk}: {plan:?}"
    );
}

pub(super) fn address_of_eth0() -> String {
    let fields = "name: eth0\naddresses: [{address: 10.0.0.5/24}]\nroutes: [{gateway: 10.0.0.1}]";
    doc("LinkConfig", fields)
}

#[test]
fn changes_that_cut_off_the_operator_are_reported() {
    let link = address_of_eth0();
    let dhcp = doc("DHCPv4Config", "name: eth0");
    let block = doc("NetworkDefaultActionConfig", "ingress: block");
    let rule = |subnet: &str| {
        doc(
            "NetworkRuleConfig",
            &format!(
                "name: api\nportSelector: {{ports: [50000], protocol: tcp}}\ningress: [{{subnet: {subnet}}}]"
            ),
        )
    };
    for (old, new, risk) in [
        (
            link.clone(),
            link.replace("10.0.0.5", "10.0.0.6"),
            "eth0 loses the address 10.0.0.5/24",
        ),
        (
            link.clone(),
            link.replace("name: eth0", "name: eth0\nup: false"),
            "eth0 is switched off",
        ),
        (
            link.clone(),
            link.replace("\nroutes: [{gateway: 10.0.0.1}]", ""),
            "eth0 loses its routes through a gateway",
        ),
        (
            dhcp.clone(),
            doc("HostnameConfig", "hostname: x"),
            "eth0 no longer uses DHCP",
        ),
        (
            doc("HostnameConfig", "hostname: x"),
            link.clone(),
            "eth0 no longer uses DHCP by default",
        ),
        (
            link.clone(),
            format!("{link}{}", doc("BridgeConfig", "name: br0\nlinks: [eth0]")),
            "eth0 becomes part of br0",
        ),
        (
            link.clone(),
            format!("{link}{block}"),
            "the firewall blocks all callers of port 50000",
        ),
        (
            link.clone(),
            format!("{link}{block}{}", rule("192.168.0.0/16")),
            "allows calls to port 50000 only from 192.168.0.0/16",
        ),
    ] {
        told(&old, &new, risk);
    }
    // None of these is a risk.
    let both = format!("{block}{}", rule("10.0.0.0/8"));
    for (old, new) in [
        (
            link.clone(),
            format!("{link}{}", doc("DummyLinkConfig", "name: d0")),
        ),
        (link.clone(), format!("{link}{dhcp}")),
        (
            format!("{link}{both}"),
            format!("{link}{both}{}", doc("HostnameConfig", "hostname: x")),
        ),
        (format!("{link}{both}"), link.clone()),
    ] {
        let plan = plan(Some(&with(&old)), &with(&new));
        assert_eq!(plan.risks, Vec::<String>::new(), "{new}");
    }
}

#[test]
fn changes_of_links_routes_and_rules_are_reported() {
    let link = address_of_eth0();
    let dhcp = doc("DHCPv4Config", "name: eth0");
    let vlan = doc(
        "VLANConfig",
        "name: v\nvlanID: 7\nparent: eth0\naddresses: [{address: 10.7.0.5/24}]",
    );
    let two = format!("{link}{}", doc("LinkConfig", "name: eth1"));
    let moved = "10.0.0.5/24}]\nroutes: [{gateway: 10.0.0.1}]";
    for (old, new, risk) in [
        (
            link.clone(),
            link.replace("gateway: 10.0.0.1", "gateway: 10.0.0.2"),
            "eth0 loses the default route through 10.0.0.1",
        ),
        (
            link.clone(),
            link.replace("10.0.0.5/24", "10.0.0.5/32"),
            "the network around eth0's address 10.0.0.5 changes",
        ),
        (
            two.clone(),
            two.replace(moved, "10.0.0.6/24}]").replace(
                "name: eth1",
                &format!("name: eth1\naddresses: [{{address: {moved}"),
            ),
            "the address 10.0.0.5/24 moves from eth0 to eth1",
        ),
        (
            two.clone(),
            two.replace(
                "name: eth1",
                "name: eth1\nroutes: [{gateway: 10.1.0.1, metric: 5}]",
            ),
            "packets take another route: eth1 gets the default route through 10.1.0.1",
        ),
        (
            vlan.clone(),
            vlan.replace("vlanID: 7", "vlanID: 8"),
            "v is created with other settings",
        ),
        (
            vlan.clone(),
            vlan.replace("parent: eth0", "parent: eth1"),
            "v is created with other settings",
        ),
        (
            link.clone(),
            link.replace("name: eth0", "name: eth0\nmtu: 1280"),
            "eth0 gets another MTU",
        ),
        (
            dhcp.clone(),
            dhcp.replace("name: eth0", "name: eth0\nignoreRoutes: true"),
            "eth0 uses other DHCP settings",
        ),
        (
            link.clone(),
            format!("{link}{}", doc("BlackholeRouteConfig", "name: 10.1.0.0/16")),
            "packets to 10.1.0.0/16 are dropped",
        ),
        (
            link.clone(),
            format!("{link}{}", doc("RoutingRuleConfig", "name: '5'\ntable: 9")),
            "the routing rule 5 is added",
        ),
        (
            doc("DummyLinkConfig", "name: d0"),
            doc("HostnameConfig", "hostname: x"),
            "d0 is removed",
        ),
    ] {
        told(&old, &new, risk);
    }
}

#[test]
fn changes_of_a_wireguard_tunnel_are_reported() {
    for (old, new, risk) in [
        (
            tunnel(1, "51820", &[3]),
            tunnel(2, "51820", &[3]),
            "wg0 gets another private key",
        ),
        (
            tunnel(1, "51820", &[3, 4]),
            tunnel(1, "51820", &[4, 5]),
            "wg0 loses its peer AwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwM=",
        ),
        (
            tunnel(1, "51820", &[3]),
            tunnel(1, "51821", &[3]),
            "wg0 listens on another port",
        ),
        (
            tunnel(1, "51820", &[3]),
            doc("HostnameConfig", "hostname: x"),
            "the tunnel wg0 is removed",
        ),
    ] {
        told(&old, &new, risk);
    }
    let one = "AwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwM=";
    let peer = |fields: &str| {
        let plain = format!("{{publicKey: {one}}}");
        tunnel(1, "51820", &[3]).replace(&plain, &format!("{{publicKey: {one}, {fields}}}"))
    };
    let before = peer(&format!("presharedKey: {one}, allowedIPs: [10.8.0.9/24]"));
    for (new, risk) in [
        (
            peer("allowedIPs: [10.8.0.0/24]"),
            "get another preshared key",
        ),
        (
            peer(&format!("presharedKey: {one}, allowedIPs: [10.9.0.0/24]")),
            "no longer accepts 10.8.0.0/24",
        ),
    ] {
        let plan = plan(Some(&with(&before)), &with(&new));
        let [told] = plan.risks.as_slice() else {
            panic!("{risk}: {plan:?}");
        };
        assert!(told.contains(risk), "{told}");
    }
    let more = tunnel(1, "51820", &[3, 4]);
    let plan = plan(Some(&with(&tunnel(1, "51820", &[3]))), &with(&more));
    assert_eq!(plan.risks, Vec::<String>::new());
}

#[test]
fn changes_of_ca_and_certificate_name_are_risks() {
    let old = document(&good());
    let other = base64::engine::general_purpose::STANDARD
        .encode("-----BEGIN CERTIFICATE-----\nBBBB\n-----END CERTIFICATE-----\n");
    let swapped = good().replace(&crt(), &other);
    let risks = plan(Some(&old), &document(&swapped)).risks;
    assert!(risks[0].contains("no longer in machine.ca"), "{risks:?}");
    // With the old CA accepted, no client is locked out.
    let kept = swapped.replace(
        "    certSANs",
        &format!("    acceptedCAs: [{{crt: {}}}]\n    certSANs", crt()),
    );
    assert!(plan(Some(&old), &document(&kept)).risks.is_empty());
    let unnamed = good().replace("[node.example, 10.0.2.15]", "[10.0.2.15]");
    let risks = plan(Some(&old), &document(&unnamed)).risks;
    assert!(
        risks[0].contains("no longer names node.example"),
        "{risks:?}"
    );
    assert!(!format!("{:?}", plan(Some(&old), &document(&swapped))).contains(&key()));
}
