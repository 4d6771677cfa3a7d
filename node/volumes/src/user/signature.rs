//! The identity of a disk that is a user volume as a whole: the label and ID of its file system or LUKS header. A disk
//! that is taken for a volume has them in the first sector of an unfinished XFS.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write as _};

use corten_luks::{Luks, LuksError};
use uuid::Uuid;

use crate::{LONGEST_LABEL, encryption};

const SECTOR: usize = 512;
/// Magic of an XFS superblock (kernel: `struct xfs_dsb` in fs/xfs/libxfs/xfs_format.h). The offsets in bytes are those
/// of its id (`sb_uuid`), label (`sb_fname`) and unfinished-`mkfs` flag (`sb_inprogress`).
const XFS: &[u8] = b"XFSB";
const XFS_ID: usize = 32;
pub(super) const XFS_LABEL: usize = 108;
const XFS_IN_PROGRESS: usize = 126;
/// Magic of a LUKS header.
const LUKS: &[u8] = b"LUKS\xba\xbe";

/// Label of a volume's file system: its id, or a truncated hash of the id if that is too long.
pub(super) fn label(volume: &str) -> String {
    if volume.len() <= LONGEST_LABEL {
        return volume.to_owned();
    }
    let number = Uuid::new_v5(&Uuid::NAMESPACE_OID, volume.as_bytes()).simple();
    let mut label = format!("u-{number}");
    label.truncate(LONGEST_LABEL);
    label
}

/// Identity of a disk as a whole: a file system, or an encrypted volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signature {
    /// Label on the disk; empty for none.
    pub label: String,
    /// Id of the file system or the encrypted volume.
    pub id: Uuid,
    /// Whether it is encrypted.
    pub is_luks: bool,
}

impl Signature {
    /// Reads the identity; `None` for content of a kind the node does not make.
    ///
    /// # Errors
    /// The disk cannot be read, or has a damaged LUKS volume.
    pub fn of(disk: &File) -> io::Result<Option<Signature>> {
        let mut start = [0; SECTOR];
        let mut reader = disk;
        reader.rewind()?;
        match reader.read_exact(&mut start) {
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(None),
            read => read?,
        }
        if start.starts_with(XFS) {
            return Ok(Some(Signature::of_xfs(&start)));
        }
        if !start.starts_with(LUKS) {
            return Ok(None);
        }
        match Luks::read(disk) {
            Ok(luks) => Ok(luks.as_ref().and_then(Signature::of_luks)),
            Err(LuksError::Device(error)) => Err(error),
            Err(error @ LuksError::Damaged(_)) => Err(io::Error::other(error)),
            Err(_) => Ok(None),
        }
    }

    fn of_xfs(superblock: &[u8; SECTOR]) -> Signature {
        let field = |at, length| superblock.iter().skip(at).take(length).copied();
        let mut id = [0; 16];
        for (to, from) in id.iter_mut().zip(field(XFS_ID, 16)) {
            *to = from;
        }
        let label = field(XFS_LABEL, LONGEST_LABEL).take_while(|byte| *byte != 0);
        let label: Vec<u8> = label.collect();
        Signature {
            label: String::from_utf8_lossy(&label).into_owned(),
            id: Uuid::from_bytes(id),
            is_luks: false,
        }
    }

    fn of_luks(luks: &Luks) -> Option<Signature> {
        Some(Signature {
            label: luks.label().to_owned(),
            id: Uuid::parse_str(luks.uuid()).ok()?,
            is_luks: true,
        })
    }

    /// Whether it belongs to this volume, whose recorded id is `known`.
    pub(super) fn is_of(&self, volume: &str, known: Option<Uuid>) -> bool {
        // Early versions put the file system's label in the LUKS header.
        let has_label = self.label == label(volume)
            || self.is_luks && self.label == encryption::mapping(volume);
        has_label || known == Some(self.id)
    }
}

/// Whether a disk begins like a whole-disk volume.
///
/// # Errors
/// Those of the disk.
pub(super) fn is_volume<D: Read + Seek>(disk: &mut D) -> io::Result<bool> {
    let mut start = [0; LUKS.len()];
    disk.rewind()?;
    disk.read_exact(&mut start)?;
    Ok(start.starts_with(XFS) || start.starts_with(LUKS))
}

/// Marks an empty disk with the volume for which it is made.
pub(super) fn mark(mut disk: File, label: &str) -> io::Result<()> {
    let mut sector = [0; SECTOR];
    for (at, field) in [
        (0, XFS),
        (XFS_ID, Uuid::new_v4().as_bytes()),
        (XFS_LABEL, label.as_bytes()),
        (XFS_IN_PROGRESS, &[1]),
    ] {
        for (to, from) in sector.iter_mut().skip(at).zip(field) {
            *to = *from;
        }
    }
    disk.seek(SeekFrom::Start(0))?;
    disk.write_all(&sector)?;
    disk.sync_all()
}
