//! Plans a cluster on this machine before anything is made. Pure functions.

use std::net::Ipv4Addr;
use std::path::PathBuf;

use anyhow::Context as _;
use ring::digest::{SHA256, digest};
use serde::{Deserialize, Serialize};

/// Node limit of a cluster: each node is a whole node, and all run on one machine.
const MOST_NODES: usize = 32;
/// Number of the first node in the network; the one before is the bridge's.
const FIRST_HOST: u32 = 2;
/// Length limit of a cluster's name: with a node's suffix, it must still be a valid host name.
const LONGEST_NAME: usize = 32;

/// Plan of a cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Plan {
    pub(super) name: String,
    #[serde(default)]
    pub(super) provisioner: Provisioner,
    /// The root file system of its nodes, the disk image of its machines, or the name of Docker's image.
    pub(super) image: PathBuf,
    /// The image cache that its nodes serve.
    pub(super) image_cache: Option<PathBuf>,
    /// Name of the cluster's bridge, and its address, which is that of this machine among the nodes.
    pub(super) bridge: String,
    pub(super) gateway: Ipv4Addr,
    pub(super) prefix: u8,
    pub(super) nodes: Vec<NodePlan>,
}

/// Plan of a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct NodePlan {
    pub(super) name: String,
    pub(super) role: Role,
    pub(super) address: Ipv4Addr,
    /// The node's link on this machine, a port of the bridge.
    pub(super) link: String,
}

impl NodePlan {
    /// Hardware address of the node's machine; unique in the cluster's network.
    pub(super) fn mac(&self) -> String {
        let [_, a, b, c] = self.address.octets();
        format!("52:54:00:{a:02x}:{b:02x}:{c:02x}")
    }
}

/// How the nodes are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Provisioner {
    /// Containers in kernel namespaces.
    #[default]
    Namespaces,
    /// Virtual machines in QEMU.
    Qemu(Shape),
    /// Containers of Docker.
    Docker,
}

/// Shape of the virtual machines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Shape {
    pub(super) cpus: u32,
    /// Memory of a control plane node and of a worker, in MiB.
    pub(super) control_plane_mib: u32,
    pub(super) worker_mib: u32,
    /// Size of the disk, in MiB.
    pub(super) disk_mib: u64,
}

/// Role of a node in its cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Role {
    ControlPlane,
    Worker,
}

impl Role {
    /// The role in names and messages.
    pub(super) fn name(self) -> &'static str {
        match self {
            Role::ControlPlane => "controlplane",
            Role::Worker => "worker",
        }
    }
}

/// The operator's request, from the flags.
#[derive(Debug, Clone)]
pub(super) struct Wish {
    pub(super) name: String,
    pub(super) provisioner: Provisioner,
    pub(super) image: PathBuf,
    pub(super) image_cache: Option<PathBuf>,
    pub(super) subnet: Subnet,
    pub(super) control_planes: usize,
    pub(super) workers: usize,
}

/// An IPv4 network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Subnet {
    base: u32,
    prefix: u8,
}

impl std::str::FromStr for Subnet {
    type Err = String;

    fn from_str(text: &str) -> Result<Subnet, String> {
        let wrong = || format!("{text:?} is not a network such as 10.5.0.0/24");
        let (base, prefix) = text.split_once('/').ok_or_else(wrong)?;
        let base = u32::from(base.parse::<Ipv4Addr>().map_err(|_| wrong())?);
        let prefix: u8 = prefix.parse().map_err(|_| wrong())?;
        if !(8..=30).contains(&prefix) {
            return Err(format!("{text}: the prefix must be from 8 to 30"));
        }
        let subnet = Subnet { base, prefix };
        if base & (subnet.size() - 1) != 0 {
            let network = Ipv4Addr::from(base & !(subnet.size() - 1));
            return Err(format!("{text}: the network is {network}/{prefix}"));
        }
        Ok(subnet)
    }
}

impl Subnet {
    /// Number of addresses.
    fn size(self) -> u32 {
        1 << (32 - u32::from(self.prefix))
    }

    /// The address with this number; `None` for the network and broadcast addresses.
    fn host(self, number: u32) -> Option<Ipv4Addr> {
        let is_hosts = number > 0 && number < self.size() - 1;
        is_hosts.then(|| Ipv4Addr::from(self.base + number))
    }
}

impl Plan {
    /// Plans the requested cluster.
    ///
    /// # Errors
    /// A sentence that names the flag.
    pub(super) fn of(wish: Wish) -> Result<Plan, String> {
        check_name(&wish.name)?;
        if wish.control_planes == 0 {
            return Err("--controlplanes: a cluster needs at least one".to_owned());
        }
        let number = wish.control_planes.saturating_add(wish.workers);
        if number > MOST_NODES {
            return Err(format!(
                "--controlplanes and --workers: a cluster on one machine has at most {MOST_NODES} nodes"
            ));
        }
        let full = || format!("--cidr: the network has no room for {number} nodes");
        let gateway = wish.subnet.host(1).ok_or_else(full)?;
        let tag = tag(&wish.name);
        let of_role = |role, count: usize| (1..=count).map(move |at| (role, at));
        let roles = of_role(Role::ControlPlane, wish.control_planes);
        let roles = roles.chain(of_role(Role::Worker, wish.workers));
        let node = |(host, (role, at)): (u32, (Role, usize))| {
            Ok(NodePlan {
                name: format!("{}-{}-{at}", wish.name, role.name()),
                role,
                address: wish.subnet.host(host).ok_or_else(full)?,
                link: link(&tag, host),
            })
        };
        let nodes = (FIRST_HOST..).zip(roles).map(node);
        Ok(Plan {
            bridge: bridge(&tag),
            gateway,
            prefix: wish.subnet.prefix,
            nodes: nodes.collect::<Result<_, String>>()?,
            name: wish.name,
            provisioner: wish.provisioner,
            image: wish.image,
            image_cache: wish.image_cache,
        })
    }

    /// The network of the nodes, such as `10.5.0.0/24`.
    pub(super) fn network(&self) -> String {
        let base = Ipv4Addr::from(u32::from(self.gateway).saturating_sub(1));
        format!("{base}/{}", self.prefix)
    }

    /// The cgroup of the cluster.
    pub(super) fn cgroup(&self) -> String {
        cgroup(&self.name)
    }

    /// Endpoint of the Kubernetes API.
    ///
    /// # Errors
    /// A stored plan has no control plane node.
    pub(super) fn endpoint(&self) -> anyhow::Result<String> {
        Ok(format!("https://{}:6443", self.first()?.address))
    }

    /// The first control plane node, which begins the cluster.
    ///
    /// # Errors
    /// A stored plan has none.
    pub(super) fn first(&self) -> anyhow::Result<&NodePlan> {
        let first = self.with_role(Role::ControlPlane).next();
        first.context("the plan has no control plane node")
    }

    pub(super) fn with_role(&self, role: Role) -> impl Iterator<Item = &NodePlan> {
        self.nodes.iter().filter(move |node| node.role == role)
    }
}

/// The parts of a cluster on this machine besides its directory.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Parts {
    pub(super) cgroup: String,
    /// Links of the nodes, then the bridge.
    pub(super) links: Vec<String>,
}

impl Parts {
    /// The parts that any cluster of this name may have.
    pub(super) fn of(name: &str) -> Parts {
        let tag = tag(name);
        let links = (FIRST_HOST..).take(MOST_NODES).map(|host| link(&tag, host));
        Parts {
            cgroup: cgroup(name),
            links: links.chain([bridge(&tag)]).collect(),
        }
    }

    /// The bridge.
    pub(super) fn bridge(&self) -> String {
        self.links.last().cloned().unwrap_or_default()
    }
}

fn cgroup(name: &str) -> String {
    format!("corten-{name}")
}

fn bridge(tag: &str) -> String {
    format!("co{tag}")
}

fn link(tag: &str, host: u32) -> String {
    format!("co{tag}{host}")
}

/// Refuses a name that is not valid in a host name. The name also becomes part of a path.
pub(super) fn check_name(name: &str) -> Result<(), String> {
    let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let good = !name.is_empty()
        && name.len() <= LONGEST_NAME
        && name.chars().all(is_plain)
        && !name.starts_with('-')
        && !name.ends_with('-');
    if good {
        return Ok(());
    }
    Err(format!(
        "--name {name:?}: a cluster name has 1 to {LONGEST_NAME} characters of a-z, 0-9 and -, and does not begin or end with -"
    ))
}

/// Short stand-in for a name: a link name has at most 15 characters.
fn tag(name: &str) -> String {
    let digest = digest(&SHA256, name.as_bytes());
    let bytes = digest.as_ref().iter().take(4);
    bytes.map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wish(name: &str, subnet: &str, control_planes: usize, workers: usize) -> Wish {
        Wish {
            name: name.to_owned(),
            provisioner: Provisioner::Namespaces,
            image: "/image".into(),
            image_cache: None,
            subnet: subnet.parse().unwrap(),
            control_planes,
            workers,
        }
    }

    #[test]
    fn nodes_get_names_and_addresses_in_order() {
        let plan = Plan::of(wish("lab", "10.5.0.0/24", 2, 1)).unwrap();
        let nodes = plan.nodes.iter();
        let nodes: Vec<_> = nodes
            .map(|node| (&*node.name, node.address.to_string(), node.role.name()))
            .collect();
        let expected = [
            ("lab-controlplane-1", "10.5.0.2", "controlplane"),
            ("lab-controlplane-2", "10.5.0.3", "controlplane"),
            ("lab-worker-1", "10.5.0.4", "worker"),
        ];
        let expected = expected.map(|(name, address, role)| (name, address.to_owned(), role));
        assert_eq!(nodes, expected);
        assert_eq!(plan.gateway.to_string(), "10.5.0.1");
        assert_eq!(plan.network(), "10.5.0.0/24");
        assert_eq!(plan.endpoint().unwrap(), "https://10.5.0.2:6443");
        assert_eq!(plan.cgroup(), "corten-lab");
    }

    #[test]
    fn link_names_of_clusters_are_unique_and_fit_the_kernels_limit() {
        let mut links = Vec::new();
        for name in ["a", &"x".repeat(LONGEST_NAME)] {
            let plan = Plan::of(wish(name, "10.5.0.0/24", 3, 29)).unwrap();
            links.push(plan.bridge.clone());
            links.extend(plan.nodes.into_iter().map(|node| node.link));
        }
        assert!(links.iter().all(|link| link.len() <= 15), "{links:?}");
        let number = links.len();
        links.sort();
        links.dedup();
        assert_eq!(links.len(), number);
    }

    #[test]
    fn parts_of_every_plan_follow_from_its_name() {
        let all = Parts::of("lab");
        for (subnet, workers) in [("10.5.0.0/24", 31), ("10.9.0.0/16", 0)] {
            let plan = Plan::of(wish("lab", subnet, 1, workers)).unwrap();
            let mut links = plan.nodes.iter().map(|node| &node.link);
            assert!(links.all(|link| all.links.contains(link)));
            assert_eq!(all.links.last(), Some(&plan.bridge));
            assert_eq!(all.cgroup, plan.cgroup());
        }
        let others = Parts::of("lab2").links;
        assert!(!others.iter().any(|link| all.links.contains(link)));
    }

    #[test]
    fn hostile_cluster_names_reach_no_path() {
        for name in ["", "..", "a/b", "-a", "a-", "A", "a b", &"x".repeat(33)] {
            let refused = Plan::of(wish(name, "10.5.0.0/24", 1, 0)).unwrap_err();
            assert!(refused.starts_with("--name"), "{refused}");
        }
    }

    #[test]
    fn invalid_node_counts_and_networks_are_refused_by_flag() {
        let refused = |subnet: &str, control_planes, workers| {
            Plan::of(wish("a", subnet, control_planes, workers)).unwrap_err()
        };
        assert!(refused("10.5.0.0/24", 0, 1).starts_with("--controlplanes"));
        assert!(refused("10.5.0.0/24", 1, 32).contains("at most 32"));
        assert!(refused("10.5.0.0/30", 1, 1).starts_with("--cidr"));
        Plan::of(wish("a", "10.5.0.0/30", 1, 0)).unwrap();
        for (subnet, word) in [
            ("10.5.0.0", "not a network"),
            ("10.5.0.0/x", "not a network"),
            ("fd00::/64", "not a network"),
            ("10.5.0.0/31", "prefix"),
            ("10.5.0.1/24", "the network is 10.5.0.0/24"),
        ] {
            let error = subnet.parse::<Subnet>().unwrap_err();
            assert!(error.contains(word), "{error}");
        }
    }
}
