//! Installing the node to a disk.

use corten_values::DiskFacts;
use corten_yaml::read::Reader;
use corten_yaml::section;
use corten_yaml::tree::Node;

use super::Selector;
use super::links::check_selector;

section! {
    /// The installation to a disk without an operator.
    pub struct UnattendedInstallConfig {
        Acted "reboot" reboot: Option<bool> = "Whether the machine restarts from the disk afterwards; absent: yes";
        Acted "installer" installer: Installer = "Settings of the installer";
        Acted "provisioning" provisioning: InstallProvisioning = "Target disk", required;
    }
}

section! {
    /// The installer to run.
    pub struct Installer {
        Acted "image" image: Option<String> = "Installer image; absent: the medium that the machine was started from";
    }
}

section! {
    /// The target of the installation.
    pub struct InstallProvisioning [check_disk] {
        Acted "diskSelector" disk_selector: Option<Selector> = "Selector of the disk; the first of several matches", required;
        Acted "wipe" wipe: Option<bool> = "Whether a disk that holds data may be overwritten; absent: yes";
    }
}

fn check_disk(provisioning: &InstallProvisioning, node: &Node, reader: &mut Reader<'_>) {
    if let Some(selector) = &provisioning.disk_selector {
        check_selector::<DiskFacts>(selector, "a disk", (node, "diskSelector"), reader);
    }
}
