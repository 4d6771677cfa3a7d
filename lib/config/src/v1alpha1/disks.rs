//! Disks and their encryption, in the old form.

use corten_values::{AbsolutePath, Size};
use corten_yaml::section;

use crate::kinds::Encryption;

section! {
    /// A disk to partition.
    pub struct MachineDisk {
        Held "device" device: AbsolutePath = "Device of the disk", required;
        Held "partitions" partitions: Vec<DiskPartition> = "Partitions, created in order";
    }
}

section! {
    /// A partition.
    pub struct DiskPartition {
        Held "size" size: Option<Size> = "Size; absent: the rest of the disk";
        Held "mountpoint" mountpoint: AbsolutePath = "Mount point", required;
    }
}

section! {
    /// `machine.systemDiskEncryption`.
    pub struct SystemDiskEncryption {
        Acted "state" state: Option<Encryption> = "Encryption of STATE, with the config and the identity";
        Acted "ephemeral" ephemeral: Option<Encryption> = "Encryption of EPHEMERAL (`/var`)";
    }
}
