//! The root filesystem: manifest and locks to a squashfs.
