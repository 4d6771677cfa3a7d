//! Judges the answers of several nodes together.

use std::collections::BTreeSet;

use corten_api::machine::EtcdMember;
use corten_cluster::NodeReadiness;
use corten_types::cluster::Member;
use http::Uri;

/// How a node takes part in Kubernetes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Registration {
    /// Name of its object.
    pub(super) name: String,
    pub(super) is_control_plane: bool,
}

/// Each node must know the same members of etcd as the first one. Two clusters, or a member that was added anew, differ.
pub(super) fn same_members(told: &[(String, Vec<EtcdMember>)]) -> Vec<String> {
    let Some(((first, expected), others)) = told.split_first() else {
        return Vec::new();
    };
    let known = |members: &[EtcdMember]| -> BTreeSet<(u64, String, bool)> {
        let members = members.iter();
        members
            .map(|member| (member.id, member.hostname.clone(), member.is_learner))
            .collect()
    };
    let differs = |(node, members): &(String, Vec<EtcdMember>)| {
        (known(members) != known(expected)).then(|| {
            format!(
                "{node}: its etcd members are {}, but those of {first} are {}",
                listed(members),
                listed(expected)
            )
        })
    };
    others.iter().filter_map(differs).collect()
}

fn listed(members: &[EtcdMember]) -> String {
    let mut names: Vec<String> = members
        .iter()
        .map(|member| {
            let learner = if member.is_learner { ", learner" } else { "" };
            format!("{} ({:016x}{learner})", member.hostname, member.id)
        })
        .collect();
    names.sort();
    names.join(", ")
}

/// Each member of etcd must be a control plane node: the own member of a checked node, or a node that the cluster knows.
/// A member that stayed after its node was deleted is neither.
pub(super) fn strangers(
    members: &[EtcdMember],
    own: &[(String, String)],
    known: &[Member],
) -> Vec<String> {
    let is_own = |member: &EtcdMember| {
        let id = format!("{:016x}", member.id);
        own.iter().any(|(_, own)| *own == id)
    };
    let is_known = |member: &EtcdMember| {
        let mut nodes = known.iter().filter(|node| node.control_plane.is_some());
        nodes.any(|node| node.hostname == member.hostname || listens(member, node))
    };
    let strangers = members
        .iter()
        .filter(|member| !is_own(member) && !is_known(member));
    let told = strangers.map(|member| {
        let id = format!("{:016x}", member.id);
        format!(
            "the etcd member {} ({id}) is no control plane node; if the node is gone, call `cortenctl etcd \
             remove-member {id}`",
            member.hostname
        )
    });
    told.collect()
}

/// Whether a member serves the others at an address of the node.
fn listens(member: &EtcdMember, node: &Member) -> bool {
    let hosts = member.peer_urls.iter().filter_map(|url| {
        let uri: Uri = url.parse().ok()?;
        // An IPv6 address in brackets.
        uri.host()?.trim_matches(['[', ']']).parse().ok()
    });
    let mut hosts = hosts;
    hosts.any(|host| node.addresses.contains(&host))
}

/// Each node must be registered with Kubernetes.
pub(super) fn unregistered(asked: &[Registration], nodes: &[NodeReadiness]) -> Vec<String> {
    let missing = asked
        .iter()
        .filter(|own| nodes.iter().all(|node| node.name != own.name));
    let told = missing.map(|own| format!("{}: it has not registered yet", own.name));
    told.collect()
}

/// Each control plane node must have the label of one in Kubernetes.
pub(super) fn unlabelled(asked: &[Registration], nodes: &[NodeReadiness]) -> Vec<String> {
    let is_one = |own: &Registration| {
        let mut nodes = nodes.iter();
        nodes.any(|node| node.name == own.name && node.is_control_plane)
    };
    let asked = asked.iter().filter(|own| own.is_control_plane);
    let told = asked.filter(|own| !is_one(own)).map(|own| {
        format!(
            "{}: Kubernetes knows no control plane node of that name",
            own.name
        )
    });
    told.collect()
}

/// The kubelet of each node must run a static pod of each component.
pub(super) fn missing_pods(told: &[(String, Vec<String>)], components: &[&str]) -> Vec<String> {
    let missing = |(node, pods): &(String, Vec<String>)| {
        let runs = |component: &str| {
            let start = format!("kube-system/{component}-");
            pods.iter().any(|pod| pod.starts_with(&start))
        };
        let missing: Vec<&str> = components
            .iter()
            .copied()
            .filter(|component| !runs(component))
            .collect();
        (!missing.is_empty()).then(|| format!("{node}: no pod {}", missing.join(", ")))
    };
    told.iter().filter_map(missing).collect()
}

#[cfg(test)]
mod tests {
    use corten_types::cluster::ControlPlane;
    use corten_types::config::MachineType;

    use super::*;

    fn member(id: u64, hostname: &str, host: &str) -> EtcdMember {
        EtcdMember {
            id,
            hostname: hostname.to_owned(),
            peer_urls: vec![format!("https://{host}:2380")],
            ..Default::default()
        }
    }

    #[test]
    fn nodes_with_different_members_of_etcd_are_named_with_both_lists() {
        let (one, two) = (member(1, "cp-1", "10.0.0.1"), member(2, "cp-2", "10.0.0.2"));
        let told = |node: &str, members: &[&EtcdMember]| {
            let members = members.iter().map(|&member| member.clone());
            (node.to_owned(), members.collect::<Vec<_>>())
        };
        let same = [told("n1", &[&one, &two]), told("n2", &[&two, &one])];
        assert_eq!(same_members(&same), [""; 0]);
        assert_eq!(same_members(&[]), [""; 0]);
        let split = [told("n1", &[&one]), told("n2", &[&two])];
        assert_eq!(
            same_members(&split),
            [
                "n2: its etcd members are cp-2 (0000000000000002), but those of n1 are cp-1 (0000000000000001)"
            ]
        );
        let learner = EtcdMember {
            is_learner: true,
            ..two.clone()
        };
        let learns = [told("n1", &[&one, &two]), told("n2", &[&one, &learner])];
        let differs = same_members(&learns);
        assert!(
            differs[0].contains("cp-2 (0000000000000002, learner)"),
            "{differs:?}"
        );
    }

    #[test]
    fn member_of_etcd_without_a_control_plane_node_is_named_with_the_remedy() {
        let members = [
            member(10, "cp-1", "10.0.0.1"),
            member(11, "renamed", "[fd00::2]"),
            member(12, "cp-3", "10.0.0.3"),
        ];
        let node = |hostname: &str, address: &str, is_control_plane: bool| Member {
            node_id: String::new(),
            addresses: vec![address.parse().unwrap()],
            hostname: hostname.to_owned(),
            machine_type: MachineType::from(corten_config::MachineType::ControlPlane),
            operating_system: String::new(),
            control_plane: is_control_plane.then_some(ControlPlane { port: 6443 }),
        };
        let own = [("n1".to_owned(), "000000000000000a".to_owned())];
        let by_address = node("cp-2", "fd00::2", true);
        let by_name = node("cp-3", "10.9.9.9", true);
        assert_eq!(
            strangers(&members, &own, &[by_address.clone(), by_name]),
            [""; 0]
        );
        let worker = node("cp-3", "10.0.0.3", false);
        let found = strangers(&members, &own, &[by_address, worker]);
        assert_eq!(found.len(), 1);
        assert!(
            found[0]
                .starts_with("the etcd member cp-3 (000000000000000c) is no control plane node")
                && found[0].ends_with("etcd remove-member 000000000000000c`"),
            "{found:?}"
        );
    }

    fn registered(name: &str, is_control_plane: bool) -> NodeReadiness {
        NodeReadiness {
            name: name.to_owned(),
            ready: Ok(()),
            is_schedulable: true,
            is_control_plane,
        }
    }

    #[test]
    fn node_that_has_not_registered_or_has_no_label_is_named() {
        let own = |name: &str, is_control_plane| Registration {
            name: name.to_owned(),
            is_control_plane,
        };
        let asked = [own("cp-1", true), own("cp-2", true), own("w-1", false)];
        let nodes = [
            registered("cp-1", true),
            registered("cp-2", false),
            registered("other", true),
        ];
        assert_eq!(
            unregistered(&asked, &nodes),
            ["w-1: it has not registered yet"]
        );
        assert_eq!(
            unlabelled(&asked, &nodes),
            ["cp-2: Kubernetes knows no control plane node of that name"]
        );
    }

    #[test]
    fn control_plane_node_without_a_static_pod_of_a_component_is_named() {
        let told = |node: &str, pods: &[&str]| {
            let pods = pods.iter().map(|pod| format!("kube-system/{pod}"));
            (node.to_owned(), pods.collect::<Vec<_>>())
        };
        let components = ["kube-apiserver", "kube-scheduler"];
        let whole = told("n1", &["kube-apiserver-n1", "kube-scheduler-n1", "other"]);
        let half = told("n2", &["kube-apiserver-n2"]);
        assert_eq!(
            missing_pods(&[whole, half], &components),
            ["n2: no pod kube-scheduler"]
        );
    }
}
