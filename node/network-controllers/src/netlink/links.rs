//! Shows every link.

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use corten_network::ethtool::Ethtool;
use corten_network::{Setup, wireguard};
use corten_resources::Draft;
use corten_resources::controller::{Context, Controller, Failure, Output};
use corten_types::names::{DUPLEXES, LINK_FLAGS, LINK_TYPES, PORTS, flags, name};
use corten_types::network::LinkStatus;
use corten_types::network_kind::Veth;
use rtnetlink::MulticastGroup;
use rtnetlink::packet_route::link::{LinkAttribute, LinkFlags, LinkInfo, LinkMessage, Prop, State};
use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use super::addresses::named;
use super::names::Names;
use super::{Kernel, hardware_address, kinds};

/// Poll interval of tunnels, whose changes cause no kernel events.
const TUNNELS: Duration = Duration::from_secs(30);
/// Poll interval while a link awaits its final name, since a name that stays causes no event.
const AGAIN: Duration = Duration::from_millis(100);

#[derive(Debug, Clone, Default)]
pub(crate) struct Links {
    /// If set, waits for permission to start the network: `/sys` may be missing earlier.
    pub(crate) setup: Option<watch::Receiver<Option<Arc<Setup>>>>,
}

impl Controller for Links {
    fn name(&self) -> &'static str {
        "network.LinkStatusController"
    }

    fn outputs(&self) -> Vec<Output> {
        vec![Output::exclusive::<LinkStatus>()]
    }

    async fn run(self, context: &mut Context) -> Result<(), Failure> {
        if let Some(mut setup) = self.setup {
            Setup::wait(&mut setup).await;
        }
        let mut kernel = Kernel::connect(&[MulticastGroup::Link])?;
        let mut names = Names::default();
        // A kernel without ethtool netlink gives less detail.
        let ethtool = Ethtool::new().ok();
        context.event().await;
        loop {
            let links = statuses(&kernel.links().await?);
            let mut has_tunnel = false;
            names.look();
            let mut links: Vec<_> = links
                .into_iter()
                .filter(|(name, status)| names.is_final(name, status.index))
                .collect();
            for (name, status) in &mut links {
                add_device(status, Path::new("/sys/class/net"), name);
                if status.kind == wireguard::KIND {
                    has_tunnel = true;
                    // The tunnel may be gone meanwhile.
                    status.wireguard = wireguard::found(name).ok().map(|found| found.status());
                }
            }
            if let Some(ethtool) = ethtool.clone() {
                // A driver may have to query its device, which can be slow.
                links = spawn_blocking(move || with_cables(&ethtool, links)).await?;
            }
            context.start_outputs();
            for (name, status) in links {
                context.put(Draft::new(&name, status))?;
            }
            context.remove_others::<LinkStatus>()?;
            let patience = if names.are_awaited() {
                AGAIN
            } else if has_tunnel {
                TUNNELS
            } else {
                Duration::MAX
            };
            if let Ok(changed) = timeout(patience, kernel.changed()).await {
                changed?;
            }
        }
    }
}

fn statuses(messages: &[LinkMessage]) -> Vec<(String, LinkStatus)> {
    let names: HashMap<u32, &str> = messages.iter().filter_map(named).collect();
    let found = messages
        .iter()
        .filter_map(|message| status(message, &names));
    found.collect()
}

/// Adds the drivers' cable information. Veth pairs have none, and a node may have hundreds of them.
fn with_cables(
    ethtool: &Ethtool,
    mut links: Vec<(String, LinkStatus)>,
) -> Vec<(String, LinkStatus)> {
    let may_have = |status: &LinkStatus| status.link_type == "ether" && status.kind != "veth";
    for (name, status) in links.iter_mut().filter(|(_, status)| may_have(status)) {
        if let Ok(Some(cable)) = ethtool.cable(name) {
            (status.speed, status.port, status.duplex) = (cable.speed, cable.port, cable.duplex);
        }
    }
    links
}

/// Converts a message; `None` if it lacks a name.
fn status(message: &LinkMessage, names: &HashMap<u32, &str>) -> Option<(String, LinkStatus)> {
    let header = &message.header;
    let mut own_name = None;
    let mut link_is_here = true;
    let mut status = LinkStatus {
        alias: String::new(),
        alt_names: Vec::new(),
        index: header.index,
        link_type: name(u16::from(header.link_layer_type).into(), LINK_TYPES),
        link_index: 0,
        flags: flags(header.flags.bits(), LINK_FLAGS),
        hardware_addr: String::new(),
        permanent_addr: String::new(),
        broadcast_addr: String::new(),
        mtu: 0,
        queue_disc: String::new(),
        master_index: 0,
        operational_state: "unknown",
        kind: String::new(),
        slave_kind: String::new(),
        bus_path: String::new(),
        pci_id: String::new(),
        driver: String::new(),
        vendor_id: String::new(),
        product_id: String::new(),
        link_state: header.flags.contains(LinkFlags::LowerUp),
        speed: None,
        port: name(0xff, PORTS),
        duplex: name(0xff, DUPLEXES),
        vlan: None,
        bridge_master: None,
        bond_master: None,
        vrf_master: None,
        veth: None,
        wireguard: None,
    };
    for attribute in &message.attributes {
        match attribute {
            LinkAttribute::IfName(text) => own_name = Some(text.clone()),
            LinkAttribute::IfAlias(text) => status.alias.clone_from(text),
            LinkAttribute::Address(bytes) => status.hardware_addr = hardware_address(bytes),
            LinkAttribute::PermAddress(bytes) => status.permanent_addr = hardware_address(bytes),
            LinkAttribute::Broadcast(bytes) => status.broadcast_addr = hardware_address(bytes),
            LinkAttribute::Mtu(bytes) => status.mtu = *bytes,
            LinkAttribute::Qdisc(text) => status.queue_disc.clone_from(text),
            LinkAttribute::Link(index) => status.link_index = *index,
            // The lower link is in another namespace, whose indexes have another meaning.
            LinkAttribute::LinkNetNsId(_) => link_is_here = false,
            LinkAttribute::Controller(index) => status.master_index = *index,
            LinkAttribute::OperState(state) => status.operational_state = operational(*state),
            LinkAttribute::PropList(properties) => {
                status.alt_names = properties.iter().filter_map(other_name).collect();
            }
            LinkAttribute::LinkInfo(infos) => {
                for info in infos {
                    match info {
                        LinkInfo::Kind(kind) => status.kind = kind.to_string(),
                        LinkInfo::PortKind(kind) => status.slave_kind = kind.to_string(),
                        LinkInfo::Data(data) => kinds::add(&mut status, data, names),
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }
    if status.kind == "veth" && link_is_here {
        let peer = names.get(&status.link_index);
        status.veth = peer.map(|name| Veth {
            peer_name: (*name).to_owned(),
        });
    }
    Some((own_name?, status))
}

fn other_name(property: &Prop) -> Option<String> {
    match property {
        Prop::AltIfName(name) => Some(name.clone()),
        _ => None,
    }
}

fn operational(state: State) -> &'static str {
    match state {
        State::NotPresent => "notPresent",
        State::Down => "down",
        State::LowerLayerDown => "lowerLayerDown",
        State::Testing => "testing",
        State::Dormant => "dormant",
        State::Up => "up",
        _ => "unknown",
    }
}

/// Adds information about the link's device, which netlink lacks.
fn add_device(status: &mut LinkStatus, classes: &Path, name: &str) {
    let device = classes.join(name).join("device");
    let name_of = |path: &Path| {
        let target = fs::canonicalize(path).ok()?;
        Some(target.file_name()?.to_string_lossy().into_owned())
    };
    status.bus_path = name_of(&device).unwrap_or_default();
    status.driver = name_of(&device.join("driver")).unwrap_or_default();
    let number = |name: &str| {
        let text = fs::read_to_string(device.join(name)).ok()?;
        Some(text.trim().trim_start_matches("0x").to_owned())
    };
    if let (Some(vendor), Some(product)) = (number("vendor"), number("device")) {
        status.pci_id = format!("{vendor}:{product}");
        status.vendor_id = format!("0x{vendor}");
        status.product_id = format!("0x{product}");
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use rtnetlink::packet_route::link::{InfoKind, LinkLayerType};

    use super::*;

    fn message() -> LinkMessage {
        let mut message = LinkMessage::default();
        message.header.index = 2;
        message.header.link_layer_type = LinkLayerType::Ether;
        message.header.flags = LinkFlags::Up | LinkFlags::Multicast | LinkFlags::LowerUp;
        message.attributes = vec![
            LinkAttribute::IfName("eth0".into()),
            LinkAttribute::Address(vec![0x52, 0x54, 0, 1, 2, 0xfe]),
            LinkAttribute::Mtu(1500),
            LinkAttribute::OperState(State::Up),
        ];
        message
    }

    #[test]
    fn link_message_becomes_a_status() {
        let (name, status) = statuses(&[message()]).remove(0);
        assert_eq!(name, "eth0");
        assert_eq!((&*status.port, &*status.duplex), ("Other", "Unknown"));
        assert_eq!(status.flags, "UP,MULTICAST,LOWER_UP");
        assert_eq!(status.hardware_addr, "52:54:00:01:02:fe");
        assert_eq!(
            (
                status.link_type.as_str(),
                status.operational_state,
                status.mtu
            ),
            ("ether", "up", 1500)
        );
        assert!(status.link_state);
        let mut nameless = message();
        nameless.attributes.clear();
        assert!(statuses(&[nameless]).is_empty());
    }

    /// A link on top of the link with this index, here or in the namespace with this id.
    fn behind(
        name: &str,
        index: u32,
        kind: InfoKind,
        link: u32,
        elsewhere: Option<i32>,
    ) -> LinkMessage {
        let mut message = LinkMessage::default();
        message.header.index = index;
        message.attributes = vec![
            LinkAttribute::IfName(name.to_owned()),
            LinkAttribute::LinkInfo(vec![LinkInfo::Kind(kind)]),
            LinkAttribute::Link(link),
        ];
        let namespace = elsewhere.map(LinkAttribute::LinkNetNsId);
        message.attributes.extend(namespace);
        message
    }

    #[test]
    fn veth_peer_is_named_if_it_is_in_the_same_namespace() {
        let veth = |name: &str, index: u32, link: u32, elsewhere: Option<i32>| {
            behind(name, index, InfoKind::Veth, link, elsewhere)
        };
        let links = statuses(&[
            veth("veth0", 5, 6, None),
            veth("veth1", 6, 5, None),
            // Their indexes match, but the second one's namespace has no id.
            veth("lxc0", 7, 8, Some(0)),
            veth("lxc1", 8, 7, Some(-1)),
            veth("half", 9, 0, None),
            behind("vlan5", 10, InfoKind::Vlan, 5, None),
        ]);
        let peers: Vec<_> = links
            .iter()
            .filter_map(|(name, status)| Some((&**name, &*status.veth.as_ref()?.peer_name)))
            .collect();
        assert_eq!(peers, [("veth0", "veth1"), ("veth1", "veth0")]);
    }

    #[test]
    fn link_status_names_its_device() {
        let classes = tempfile::tempdir().unwrap();
        let bus = classes.path().join("bus/0000:00:03.0");
        let driver = classes.path().join("drivers/virtio_net");
        for directory in [&bus, &driver, &classes.path().join("eth0")] {
            fs::create_dir_all(directory).unwrap();
        }
        symlink(&bus, classes.path().join("eth0/device")).unwrap();
        symlink(&driver, bus.join("driver")).unwrap();
        fs::write(bus.join("vendor"), "0x1af4\n").unwrap();
        fs::write(bus.join("device"), "0x1041\n").unwrap();
        let (_, mut status) = statuses(&[message()]).remove(0);
        add_device(&mut status, classes.path(), "eth0");
        assert_eq!(status.bus_path, "0000:00:03.0");
        assert_eq!(status.driver, "virtio_net");
        assert_eq!(status.pci_id, "1af4:1041");
        assert_eq!(
            (&*status.vendor_id, &*status.product_id),
            ("0x1af4", "0x1041")
        );
        add_device(&mut status, classes.path(), "lo");
        assert_eq!(status.bus_path, "");
    }
}
