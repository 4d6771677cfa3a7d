//! Network interface names that are stable across reboots, derived from the interface's location:
//! systemd.net-naming-scheme(7) for PCI, USB and device trees.

use crate::event::{Event, Properties};
use crate::sysfs::{Ancestor, Sysfs};

/// The longest name (linux/if.h, `IFNAMSIZ` without the NUL).
const LONGEST: usize = 15;
/// Onboard indexes above this limit are firmware bugs.
const LARGEST_INDEX: u32 = 16383;
/// Offset of the header type in a PCI device's configuration space, and its multi-function bit (PCI Local Bus 3.0,
/// 6.2.1).
const HEADER_TYPE: usize = 0x0e;
const HAS_FUNCTIONS: u8 = 0x80;
/// The kernel assigned the name by enumeration (linux/netdevice.h, `NET_NAME_ENUM`).
const BY_CHANCE: &str = "1";
/// The address is the hardware's permanent one (linux/netdevice.h, `NET_ADDR_PERM`).
const PERMANENT: &str = "0";

/// The properties `ID_NET_NAME_ONBOARD`, `_SLOT`, `_PATH` and `_MAC` of a network interface, as far as it has them.
pub fn names(sysfs: &Sysfs, event: &Event) -> Properties {
    let mut found = Properties::new();
    let Some(kind) = kind(sysfs, event) else {
        return found;
    };
    let chain = sysfs.chain(&event.devpath);
    let is = |kind: &'static str| move |above: &&Ancestor| above.subsystem == kind;
    let mut set = |key: &str, rest: Option<String>| {
        let name = rest.map(|rest| format!("{kind}{rest}"));
        if let Some(name) = name.filter(|name| name.len() <= LONGEST) {
            found.insert(format!("ID_NET_NAME_{key}"), name);
        }
    };
    let usb = chain.iter().find(is("usb"));
    if let Some(pci) = chain.iter().find(is("pci"))
        && let Some(place) = Place::of(sysfs, event, pci)
    {
        match usb.map(|device| ports(device.sysname())) {
            None => {
                set("ONBOARD", place.onboard(sysfs));
                set("SLOT", place.slot(sysfs));
                set("PATH", Some(place.path()));
            }
            Some(Some(ports)) => {
                set("SLOT", place.slot(sysfs).map(|slot| slot + &ports));
                set("PATH", Some(place.path() + &ports));
            }
            // The interface's port on its USB hub is unknown.
            Some(None) => {}
        }
    } else if usb.is_none() {
        set("ONBOARD", in_device_tree(sysfs, event));
    }
    let is_own = sysfs.text(&event.devpath, "addr_assign_type").as_deref() == Some(PERMANENT);
    // A virtual interface has no parent device.
    if is_own && chain.len() > 1 {
        let address = sysfs.text(&event.devpath, "address").unwrap_or_default();
        let digits: String = address.chars().filter(|c| *c != ':').collect();
        set("MAC", (digits.len() == 12).then(|| format!("x{digits}")));
    }
    found
}

/// The new name of the interface. `None` if the name was assigned on purpose, or the location is unknown.
pub fn wanted(sysfs: &Sysfs, event: &Event, names: &Properties) -> Option<String> {
    let by = sysfs.text(&event.devpath, "name_assign_type")?;
    if by != BY_CHANCE {
        return None;
    }
    let order = ["ONBOARD", "SLOT", "PATH"];
    let mut names = order
        .iter()
        .filter_map(|key| names.get(&format!("ID_NET_NAME_{key}")));
    names.next().cloned()
}

/// Prefix of the name: the kind of interface.
fn kind(sysfs: &Sysfs, event: &Event) -> Option<&'static str> {
    let layer = sysfs.text(&event.devpath, "type")?;
    match (event.property("DEVTYPE"), layer.as_str()) {
        (Some("wlan"), _) => Some("wl"),
        (Some("wwan"), _) => Some("ww"),
        // linux/if_arp.h: Ethernet, InfiniBand, SLIP.
        (None, "1") => Some("en"),
        (None, "32") => Some("ib"),
        (None, "256") => Some("sl"),
        _ => None,
    }
}

/// Location of an interface on PCI.
struct Place {
    /// Path of the PCI function; for a virtual function, of its physical function.
    devpath: String,
    domain: u32,
    bus: u32,
    slot: u32,
    /// `f0` and so on for a multi-function device, else empty.
    function: String,
    /// Suffix: the port of the function, and the number of the virtual function.
    end: String,
}

impl Place {
    fn of(sysfs: &Sysfs, event: &Event, pci: &Ancestor) -> Option<Place> {
        let (devpath, virtual_function) = match physical(sysfs, &pci.devpath) {
            Some((devpath, number)) => (devpath, format!("v{number}")),
            None => (pci.devpath.clone(), String::new()),
        };
        // 0000:00:1f.2
        let name = devpath.rsplit('/').next()?;
        let (address, function) = name.rsplit_once('.')?;
        let mut parts = address
            .split(':')
            .map(|part| u32::from_str_radix(part, 16).ok());
        let (domain, bus, slot) = (parts.next()??, parts.next()??, parts.next()??);
        let head: Option<[u8; HEADER_TYPE + 1]> = sysfs.head(&devpath, "config");
        let header = head.and_then(|head| head.last().copied());
        let several = function != "0" || header.is_some_and(|kind| kind & HAS_FUNCTIONS != 0);
        Some(Place {
            domain,
            bus,
            slot,
            function: if several {
                format!("f{function}")
            } else {
                String::new()
            },
            end: port(sysfs, &event.devpath) + &virtual_function,
            devpath,
        })
    }

    fn domain(&self) -> String {
        match self.domain {
            0 => String::new(),
            domain => format!("P{domain}"),
        }
    }

    fn path(&self) -> String {
        let Place {
            bus,
            slot,
            function,
            end,
            ..
        } = self;
        format!("{}p{bus}s{slot}{function}{end}", self.domain())
    }

    /// The firmware's number of an onboard device.
    fn onboard(&self, sysfs: &Sysfs) -> Option<String> {
        let number = |name| sysfs.text(&self.devpath, name)?.parse().ok();
        let index = number("acpi_index").or_else(|| number("index"))?;
        let end = &self.end;
        (1..=LARGEST_INDEX)
            .contains(&index)
            .then(|| format!("o{index}{end}"))
    }

    /// The number of the hotplug slot.
    fn slot(&self, sysfs: &Sysfs) -> Option<String> {
        let (address, _) = self.devpath.rsplit('/').next()?.rsplit_once('.')?;
        let slots = sysfs.names("/bus/pci/slots");
        let number = slots
            .into_iter()
            .filter_map(|name| name.parse::<u32>().ok());
        let mut found = number.filter(|number| {
            let slot = format!("/bus/pci/slots/{number}");
            *number > 0 && sysfs.text(&slot, "address").as_deref() == Some(address)
        });
        let Place { function, end, .. } = self;
        found
            .next()
            .map(|number| format!("{}s{number}{function}{end}", self.domain()))
    }
}

/// For a virtual function: its physical function, and its number.
fn physical(sysfs: &Sysfs, devpath: &str) -> Option<(String, u32)> {
    let above = sysfs.devpath(&sysfs.path(devpath).join("physfn"))?;
    let number = sysfs.names(&above).into_iter().find_map(|name| {
        let number = name.strip_prefix("virtfn")?.parse().ok()?;
        let own = sysfs.devpath(&sysfs.path(&above).join(&name))?;
        (own == devpath).then_some(number)
    })?;
    Some((above, number))
}

/// Suffix that tells apart the interfaces of one function: the port's name, or its number unless it is the first.
fn port(sysfs: &Sysfs, devpath: &str) -> String {
    if let Some(name) = sysfs.text(devpath, "phys_port_name") {
        return match representative(&name) {
            Some(number) => format!("r{number}"),
            None => format!("n{name}"),
        };
    }
    let number = |name| {
        sysfs
            .text(devpath, name)
            .and_then(|text| text.parse::<u32>().ok())
    };
    match number("dev_port") {
        Some(port) if port > 0 => format!("d{port}"),
        _ => String::new(),
    }
}

/// Number of the virtual function that a switch port `pf0vf3` represents.
fn representative(port: &str) -> Option<u32> {
    let (physical, number) = port.strip_prefix("pf")?.split_once("vf")?;
    physical.parse::<u32>().ok()?;
    number.parse().ok()
}

/// `1-1.2:1.0` is port 1.2, configuration 1, interface 0: `u1u2`. Configuration 1 and interface 0 are left out.
fn ports(name: &str) -> Option<String> {
    let (_, place) = name.split_once('-')?;
    let (ports, rest) = place.split_once(':')?;
    let (configuration, interface) = rest.split_once('.')?;
    let mut text: String = ports.split('.').map(|port| format!("u{port}")).collect();
    if configuration != "1" {
        text.push_str(&format!("c{configuration}"));
    }
    if interface != "0" {
        text.push_str(&format!("i{interface}"));
    }
    Some(text)
}

/// The number of an onboard interface in the aliases of the device tree (Devicetree Specification 0.4, 3.3).
fn in_device_tree(sysfs: &Sysfs, event: &Event) -> Option<String> {
    let node = sysfs
        .path(&event.devpath)
        .join("device/of_node")
        .canonicalize()
        .ok()?;
    let base = "/firmware/devicetree/base";
    let node = node
        .strip_prefix(sysfs.path(base).canonicalize().ok()?)
        .ok()?;
    let aliases = format!("{base}/aliases");
    sysfs.names(&aliases).into_iter().find_map(|alias| {
        let number = alias.strip_prefix("ethernet")?;
        let number: u32 = if number.is_empty() {
            0
        } else {
            number.parse().ok()?
        };
        let path = sysfs.text(&aliases, &alias)?;
        (path.trim_start_matches('/') == node.to_str()?).then(|| format!("d{number}"))
    })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::testing::Tree;

    const PCI: &str = "/devices/pci0000:00/0000:00:02.0";

    fn pci(tree: &Tree, devpath: &str, header: u8) {
        let mut config = [0; 64];
        config[HEADER_TYPE] = header;
        tree.device(devpath, "pci")
            .attribute(devpath, "config", config);
    }

    /// An interface as the kernel creates it.
    fn interface(tree: &Tree, above: &str) -> Event {
        let devpath = format!("{above}/net/eth0");
        tree.device(&devpath, "net")
            .attribute(&devpath, "type", "1\n")
            .attribute(&devpath, "name_assign_type", "1\n")
            .attribute(&devpath, "addr_assign_type", "0\n")
            .attribute(&devpath, "address", "52:54:00:12:34:56\n")
            .attribute(&devpath, "dev_port", "0\n");
        let text =
            format!("ACTION=add\nDEVPATH={devpath}\nSUBSYSTEM=net\nIFINDEX=2\nINTERFACE=eth0");
        Event::parse(text.as_bytes()).unwrap()
    }

    fn all(tree: &Tree, event: &Event) -> Vec<String> {
        let sysfs = Sysfs::new(tree.path());
        let names = names(&sysfs, event);
        let wanted = wanted(&sysfs, event, &names).unwrap_or_default();
        let shown = names.iter().map(|(key, name)| format!("{key}={name}"));
        shown.chain([wanted]).collect()
    }

    #[test]
    fn interface_is_named_by_its_bus_path() {
        let tree = Tree::new();
        pci(&tree, PCI, 0);
        let virtio = format!("{PCI}/virtio1");
        tree.device(&virtio, "virtio");
        let event = interface(&tree, &virtio);
        let mac = "ID_NET_NAME_MAC=enx525400123456";
        assert_eq!(
            all(&tree, &event),
            [mac, "ID_NET_NAME_PATH=enp0s2", "enp0s2"]
        );
        // Userspace renamed it already.
        tree.attribute(&event.devpath, "name_assign_type", "4\n");
        assert_eq!(all(&tree, &event).last().unwrap(), "");
        tree.attribute(&event.devpath, "name_assign_type", "1\n");
        // A multi-function device with ports.
        pci(&tree, PCI, HAS_FUNCTIONS);
        tree.attribute(&event.devpath, "dev_port", "1\n");
        assert_eq!(all(&tree, &event).last().unwrap(), "enp0s2f0d1");
        tree.attribute(&event.devpath, "phys_port_name", "p1\n");
        assert_eq!(all(&tree, &event).last().unwrap(), "enp0s2f0np1");
        tree.attribute(&event.devpath, "phys_port_name", "pf0vf3\n");
        assert_eq!(all(&tree, &event).last().unwrap(), "enp0s2f0r3");
    }

    #[test]
    fn firmware_index_wins_over_slot_and_path_for_interface_names() {
        let tree = Tree::new();
        let devpath = "/devices/pci0001:00/0001:02:03.1";
        pci(&tree, devpath, 0);
        let event = interface(&tree, devpath);
        assert_eq!(all(&tree, &event).last().unwrap(), "enP1p2s3f1");
        tree.attribute("/bus/pci/slots/0", "address", "0001:02:03\n");
        tree.attribute("/bus/pci/slots/7", "address", "0001:02:03\n");
        assert_eq!(all(&tree, &event).last().unwrap(), "enP1s7f1");
        tree.attribute(devpath, "acpi_index", "0\n");
        assert_eq!(all(&tree, &event).last().unwrap(), "enP1s7f1");
        tree.attribute(devpath, "acpi_index", "3\n");
        assert_eq!(all(&tree, &event).last().unwrap(), "eno3");
    }

    #[test]
    fn virtual_function_is_named_after_its_physical_function() {
        let tree = Tree::new();
        let own = "/devices/pci0000:00/0000:00:10.4";
        pci(&tree, PCI, 0);
        pci(&tree, own, 0);
        let at = |devpath: &str, name: &str| tree.path().join(&devpath[1..]).join(name);
        symlink("../0000:00:02.0", at(own, "physfn")).unwrap();
        symlink("../0000:00:10.4", at(PCI, "virtfn6")).unwrap();
        let event = interface(&tree, own);
        assert_eq!(all(&tree, &event).last().unwrap(), "enp0s2v6");
    }

    #[test]
    fn usb_and_platform_interfaces_have_path_names_and_virtual_ones_none() {
        let tree = Tree::new();
        pci(&tree, PCI, 0);
        let usb = format!("{PCI}/usb1/1-1/1-1.2/1-1.2:1.0");
        for part in [
            "usb1",
            "usb1/1-1",
            "usb1/1-1/1-1.2",
            "usb1/1-1/1-1.2/1-1.2:1.0",
        ] {
            tree.device(&format!("{PCI}/{part}"), "usb");
        }
        let event = interface(&tree, &usb);
        assert_eq!(all(&tree, &event).last().unwrap(), "enp0s2u1u2");
        assert_eq!(ports("2-3:2.1").as_deref(), Some("u3c2i1"));
        assert_eq!(ports("usb1"), None);

        let board = "/devices/platform/fd580000.ethernet";
        tree.device(board, "platform");
        let event = interface(&tree, board);
        assert_eq!(all(&tree, &event).last().unwrap(), "");
        let node = "/firmware/devicetree/base/scb/ethernet@7d580000";
        tree.attribute(node, "status", "okay\0");
        let aliases = "/firmware/devicetree/base/aliases";
        tree.attribute(aliases, "ethernet0", "/scb/ethernet@7d580000\0");
        let root = tree.path();
        fs::create_dir_all(root.join(&event.devpath[1..]).join("device")).unwrap();
        symlink(
            root.join(&node[1..]),
            root.join(&event.devpath[1..]).join("device/of_node"),
        )
        .unwrap();
        assert_eq!(all(&tree, &event).last().unwrap(), "end0");

        let event = interface(&tree, "/devices/virtual");
        assert_eq!(all(&tree, &event), [""]);
    }
}
