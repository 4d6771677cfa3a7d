//! What the machine is made of.

pub(super) mod cores;
pub(super) mod pci;
mod smbios;
pub(super) mod system;
