//! Conflicts between documents.

use std::collections::HashMap;

use corten_yaml::problem::{Mark, Notes, printable};
use corten_yaml::tree::{Key, Node};

use crate::identity::identity;

/// Kinds that create or configure the link `name`.
const LINKS: &[&str] = &[
    "LinkConfig",
    "DummyLinkConfig",
    "BondConfig",
    "BridgeConfig",
    "VLANConfig",
    "VRFConfig",
    "VethConfig",
    "WireguardConfig",
];

/// Kinds that mount a volume at `/var/mnt/` and their `name`.
const MOUNTED: &[&str] = &["UserVolumeConfig", "ExistingVolumeConfig"];

/// A kind, or a field of one, and the equivalent field of the document without a kind. Lists and maps whose entries add up,
/// such as kernel modules, are not here: a document may come to a config that has the older field.
const SAME: &[(&str, &str)] = &[
    ("HostnameConfig", "machine.network.hostname"),
    ("TimeSyncConfig", "machine.time"),
    ("ResolverConfig.nameservers", "machine.network.nameservers"),
    (
        "ResolverConfig.searchDomains",
        "machine.network.searchDomains",
    ),
    ("ResolverConfig.hostDNS", "machine.features.hostDNS"),
    (
        "CRIBaseRuntimeSpecConfig",
        "machine.baseRuntimeSpecOverrides",
    ),
    ("ImageCacheConfig", "machine.features.imageCache"),
    ("KubeClusterConfig", "cluster.clusterName"),
    ("KubeClusterConfig", "cluster.controlPlane.endpoint"),
    ("KubeNetworkConfig", "cluster.network"),
    ("KubeFlannelCNIConfig", "cluster.network"),
    ("KubeAPIServerCAConfig", "cluster.ca"),
    ("KubeAPIServerCAConfig", "cluster.acceptedCAs"),
    ("KubeAggregatorCAConfig", "cluster.aggregatorCA"),
    ("KubeServiceAccountConfig", "cluster.serviceAccount"),
    ("KubeEtcdEncryptionConfig", "cluster.aescbcEncryptionSecret"),
    (
        "KubeEtcdEncryptionConfig",
        "cluster.secretboxEncryptionSecret",
    ),
    ("KubeNodeConfig", "machine.nodeLabels"),
    ("KubeNodeConfig", "machine.nodeAnnotations"),
    ("KubeNodeConfig", "machine.nodeTaints"),
    ("KubeNodeConfig", "machine.kubelet.skipNodeRegistration"),
    ("KubeNodeConfig", "machine.kubelet.registerWithFQDN"),
    ("KubeNodeConfig", "machine.kubelet.nodeIP"),
    ("KubeNodeConfig", "cluster.allowSchedulingOnMasters"),
    ("KubeNodeConfig", "cluster.allowSchedulingOnControlPlanes"),
    ("KubeletConfig", "machine.kubelet"),
    ("KubeCredentialProviderConfig", "machine.kubelet"),
    ("KubePrismConfig", "machine.features.kubePrism"),
    ("KubeAPIServerConfig", "cluster.apiServer"),
    (
        "KubeAPIServerConfig",
        "cluster.controlPlane.localAPIServerPort",
    ),
    ("KubeControllerManagerConfig", "cluster.controllerManager"),
    (
        "KubeControllerManagerConfig",
        "machine.controlPlane.controllerManager",
    ),
    ("KubeSchedulerConfig", "cluster.scheduler"),
    ("KubeSchedulerConfig", "machine.controlPlane.scheduler"),
    (
        "KubeAdmissionControlConfig",
        "cluster.apiServer.admissionControl",
    ),
    ("KubeAuditPolicyConfig", "cluster.apiServer.auditPolicy"),
    (
        "KubeAuthorizerConfig",
        "cluster.apiServer.authorizationConfig",
    ),
    (
        "KubeTalosAPIAccessConfig",
        "machine.features.kubernetesTalosAPIAccess",
    ),
    ("KubeProxyConfig", "cluster.proxy"),
    ("KubeCoreDNSConfig", "cluster.coreDNS"),
    ("KubeSpanConfig", "machine.network.kubespan"),
    ("DiscoveryServiceConfig", "cluster.discovery"),
    ("DiscoveryIdentityConfig", "cluster.id"),
    ("DiscoveryIdentityConfig", "cluster.secret"),
    ("UnattendedInstallConfig", "machine.install"),
];

/// Members of links: the name of the other link, if it has one, and the place in the text.
type Members<'a> = HashMap<&'a str, (Option<&'a str>, Mark)>;

/// Reports every document that contradicts an earlier one.
pub(crate) fn check(trees: &[Node], notes: &mut Notes) {
    let mut documents = HashMap::new();
    let mut links: HashMap<&str, Mark> = HashMap::new();
    let mut members = Members::new();
    let mut mounted: HashMap<&str, Mark> = HashMap::new();
    let root = trees.iter().find(|node| node.get("kind").is_none());
    if let Some(root) = root {
        members_in_root(root, &mut members, notes);
    }
    for node in trees.iter().filter(|node| node.get("kind").is_some()) {
        let identity = identity(node);
        if let Some(first) = documents.insert(identity.clone(), node.mark) {
            let what = printable(&identity.to_string());
            notes.add(
                node.mark,
                "",
                format!(
                    "a second document {what}; the first is on line {}",
                    first.line
                ),
            );
            continue;
        }
        contradicts_root(node, &identity.kind, root, notes);
        let name = node.get("name");
        if MOUNTED.contains(&identity.kind.as_str())
            && let Some(name) = name
        {
            once(
                name,
                "the volume",
                "is described twice",
                &mut mounted,
                notes,
            );
        }
        if !LINKS.contains(&identity.kind.as_str()) {
            continue;
        }
        let peer = node.get("peer").and_then(|peer| peer.get("name"));
        for name in [name, peer].into_iter().flatten() {
            once(name, "the link", "is described twice", &mut links, notes);
        }
        for member in node.get("links").map(Node::items).unwrap_or_default() {
            part_of(name, member, "the link", &mut members, notes);
        }
    }
    sysctls(trees, notes);
}

/// The members of links in the old form.
fn members_in_root<'a>(root: &'a Node, members: &mut Members<'a>, notes: &mut Notes) {
    let path = ["machine", "network", "interfaces"];
    let links = path.iter().try_fold(root, |node, step| node.get(step));
    let links = links.map(Node::items).unwrap_or_default();
    for (index, link) in links.iter().enumerate() {
        let path = format!("machine.network.interfaces[{index}]");
        let name = link.get("interface");
        for kind in ["bond", "bridge"] {
            let parts = link.get(kind).and_then(|made| made.get("interfaces"));
            let what = format!("{path}.{kind}.interfaces: the link");
            for member in parts.map(Node::items).unwrap_or_default() {
                part_of(name, member, &what, members, notes);
            }
        }
        if let (Some(name), Some(port)) = (name, link.get("bridgePort")) {
            let what = format!("{path}.bridgePort: the link");
            part_of(port.get("master"), name, &what, members, notes);
        }
    }
}

/// Reports a link that belongs to two others, or to itself. Both ends may state one membership.
fn part_of<'a>(
    other: Option<&'a Node>,
    member: &'a Node,
    what: &str,
    members: &mut Members<'a>,
    notes: &mut Notes,
) {
    let Some(name) = member.text() else { return };
    let shown = printable(name);
    let other = other.and_then(Node::text);
    if let Some((before, first)) = members.insert(name, (other, member.mark))
        && (before.is_none() || before != other)
    {
        let line = first.line;
        let why = format!("{what} {shown} belongs to two links; first on line {line}");
        notes.add(member.mark, "", why);
    }
    if other == Some(name) {
        let why = format!("{what} {shown} is part of itself; remove it");
        notes.add(member.mark, "", why);
    }
}

fn once<'a>(
    node: &'a Node,
    what: &str,
    why: &str,
    seen: &mut HashMap<&'a str, Mark>,
    notes: &mut Notes,
) {
    let Some(name) = node.text() else { return };
    if let Some(first) = seen.insert(name, node.mark) {
        let name = printable(name);
        notes.add(
            node.mark,
            "",
            format!("{what} {name} {why}; first on line {}", first.line),
        );
    }
}

fn contradicts_root(node: &Node, kind: &str, root: Option<&Node>, notes: &mut Notes) {
    let given = |node: &Node, path: &str| {
        let found = path.split('.').try_fold(node, Node::get);
        found
            .filter(|value| !value.is_empty())
            .map(|value| value.mark)
    };
    for (same, path) in SAME {
        let (name, field) = same.split_once('.').unwrap_or((same, ""));
        if name != kind || (!field.is_empty() && given(node, field).is_none()) {
            continue;
        }
        if let Some(old) = root.and_then(|root| given(root, path)) {
            let line = old.line;
            notes.add(
                node.mark,
                kind,
                format!("{same} excludes {path} (line {line})"),
            );
        }
    }
}

/// Reports a duplicate kernel parameter: only the last value would count. A document may replace the value of the older
/// field.
fn sysctls(trees: &[Node], notes: &mut Notes) {
    let old = trees
        .iter()
        .filter_map(|node| node.get("machine")?.get("sysctls"));
    let new = trees
        .iter()
        .filter(|node| node.get("kind").and_then(Node::text) == Some("SysctlConfig"))
        .filter_map(|node| node.get("params"));
    let old = old.flat_map(Node::entries).map(|entry| (entry, true));
    let new = new.flat_map(Node::entries).map(|entry| (entry, false));
    let mut seen: HashMap<String, (&Key, bool)> = HashMap::new();
    for ((key, _), is_old) in old.chain(new) {
        let name = key.name.replace('/', ".");
        let Some((first, was_old)) = seen.insert(name, (key, is_old)) else {
            continue;
        };
        if was_old && !is_old && first.name == key.name {
            continue;
        }
        let name = printable(&key.name);
        let line = first.mark.line;
        notes.add(
            key.mark,
            "",
            format!("the sysctl {name} is set twice; first on line {line}"),
        );
    }
}

/// All kinds above.
#[cfg(test)]
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    LINKS
        .iter()
        .chain(MOUNTED)
        .copied()
        .chain(SAME.iter().filter_map(|(same, _)| same.split('.').next()))
}
