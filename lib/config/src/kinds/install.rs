//! Installing the node to a disk.

use super::Selector;
use super::links::check_selector;
use crate::read::{Reader, section};
use crate::tree::Node;
use crate::values::DiskFacts;

section! {
    /// The installation to a disk without an operator.
    pub struct UnattendedInstallConfig {
        Later "reboot" reboot: Option<bool> = "Start again afterwards";
        Acted "installer" installer: Installer = "The installer";
        Acted "provisioning" provisioning: InstallProvisioning = "Where to", required;
    }
}

section! {
    /// What is installed.
    pub struct Installer {
        Acted "image" image: Option<String> = "The installer image; absent: what the machine was started from";
    }
}

section! {
    /// Where a node is installed to.
    pub struct InstallProvisioning [check_disk] {
        Acted "diskSelector" disk_selector: Option<Selector> = "The disk; of several the first", required;
        Acted "wipe" wipe: Option<bool> = "Also a disk that holds something; absent: yes";
    }
}

fn check_disk(provisioning: &InstallProvisioning, node: &Node, reader: &mut Reader<'_>) {
    if let Some(selector) = &provisioning.disk_selector {
        check_selector::<DiskFacts>(selector, "a disk", (node, "diskSelector"), reader);
    }
}
