//! Installing the node to a disk.

use super::Selector;
use crate::read::section;

section! {
    /// The installation to a disk without an operator.
    pub struct UnattendedInstallConfig {
        Later "reboot" reboot: Option<bool> = "Start again afterwards";
        Held "installer" installer: Installer = "The installer";
        Held "provisioning" provisioning: InstallProvisioning = "Where to", required;
    }
}

section! {
    /// The installer to run.
    pub struct Installer {
        Held "image" image: Option<String> = "The installer image";
    }
}

section! {
    /// The target of the installation.
    pub struct InstallProvisioning {
        Held "diskSelector" disk_selector: Option<Selector> = "The disk", required;
        Held "wipe" wipe: Option<bool> = "Wipe the disk first; absent: yes";
    }
}
