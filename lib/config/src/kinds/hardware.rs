//! Drivers of devices.

use std::collections::HashMap;

use corten_values::{DriverName, PciAddress};
use corten_yaml::problem::{Mark, Notes, printable};
use corten_yaml::section;
use corten_yaml::tree::Node;

use crate::kinds::Kind as _;

section! {
    /// The driver of a PCI device, instead of the kernel's choice.
    pub struct PCIDriverRebindConfig {
        Acted "name" name: PciAddress = "Address of the device", required;
        Acted "targetDriver" target_driver: DriverName = "Name of the driver; if it is a module, a `KernelModuleConfig` must load it", required;
    }
}

/// Reports a device with two documents; an address has several spellings.
pub(crate) fn check(trees: &[Node], notes: &mut Notes) {
    let mut seen: HashMap<String, (&str, Mark)> = HashMap::new();
    for tree in trees {
        if tree.get("kind").and_then(Node::text) != Some(PCIDriverRebindConfig::NAME) {
            continue;
        }
        let name = tree.get("name").and_then(Node::text).unwrap_or_default();
        let Some(address) = PciAddress::parse(name) else {
            continue;
        };
        // Documents with the same spelling have the same name, which another check reports.
        if let Some((other, first)) = seen.insert(address.normal(), (name, tree.mark))
            && other != name
        {
            let (name, line) = (printable(name), first.line);
            let message = format!("the device {name} is described twice; first on line {line}");
            notes.add(tree.mark, PCIDriverRebindConfig::NAME, message);
        }
    }
}
