//! Installing the node to a disk.

use super::Selector;
use crate::read::section;

section! {
    /// The installation to a disk without an operator.
    pub struct UnattendedInstallConfig {
        Later "reboot" reboot: Option<bool> = "Whether the machine reboots afterwards";
        Held "installer" installer: Installer = "Settings of the installer";
        Held "provisioning" provisioning: InstallProvisioning = "Target disk", required;
    }
}

section! {
    /// The installer to run.
    pub struct Installer {
        Held "image" image: Option<String> = "Installer image";
    }
}

section! {
    /// The target of the installation.
    pub struct InstallProvisioning {
        Held "diskSelector" disk_selector: Option<Selector> = "Selector of the disk", required;
        Held "wipe" wipe: Option<bool> = "Whether the disk is wiped first; absent: yes";
    }
}
