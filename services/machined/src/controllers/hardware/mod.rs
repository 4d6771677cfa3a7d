//! Shows the machine's hardware.

pub(super) mod cores;
pub(super) mod pci;
mod pci_bus;
pub(super) mod rebind;
mod smbios;
pub(super) mod system;
