//! Disks and their encryption, in the old form.

use crate::kinds::Encryption;
use crate::read::section;
use crate::values::{AbsolutePath, Size};

section! {
    /// A disk to partition.
    pub struct MachineDisk {
        Held "device" device: AbsolutePath = "The device", required;
        Held "partitions" partitions: Vec<DiskPartition> = "Made in order";
    }
}

section! {
    /// A partition.
    pub struct DiskPartition {
        Held "size" size: Option<Size> = "Its size; absent: the rest of the disk";
        Held "mountpoint" mountpoint: AbsolutePath = "Where it is mounted", required;
    }
}

section! {
    /// `machine.systemDiskEncryption`.
    pub struct SystemDiskEncryption {
        Acted "state" state: Option<Encryption> = "Of the config and identity";
        Acted "ephemeral" ephemeral: Option<Encryption> = "Of `/var`";
    }
}
