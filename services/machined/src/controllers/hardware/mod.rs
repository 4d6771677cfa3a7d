//! What the machine is made of.

pub(super) mod cores;
pub(super) mod pci;
mod pci_bus;
pub(super) mod rebind;
mod smbios;
pub(super) mod system;
