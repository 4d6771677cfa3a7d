//! The root file system: one squashfs, or several as the layers of a read-only overlay.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use corten_sys::loopdev;
use corten_sys::mount::{self, MountFlags};

use crate::failure::{Failure, REWRITE};

const LAYERS: &str = "/layers";
const FLAGS: MountFlags = MountFlags::RDONLY
    .union(MountFlags::NOSUID)
    .union(MountFlags::NODEV);
const SUPERBLOCK_MAGIC: [u8; 4] = *b"hsqs";

/// What the root is made of.
#[derive(Debug, PartialEq, Eq)]
pub struct Parts {
    base: PathBuf,
    /// In lexical order; a later one lies above an earlier one.
    extensions: Vec<PathBuf>,
}

impl Parts {
    /// Looks in the initramfs at `top`.
    pub fn find(top: &Path) -> Result<Parts, Failure> {
        let base = top.join("rootfs.squashfs");
        if !base.is_file() {
            return Err(Failure::new(
                format!("{} is missing from the initramfs", base.display()),
                REWRITE,
            ));
        }
        let mut extensions: Vec<PathBuf> = match fs::read_dir(top.join("extensions")) {
            Ok(entries) => entries.flatten().map(|entry| entry.path()).collect(),
            Err(_) => Vec::new(),
        };
        extensions.retain(|path| {
            path.extension()
                .is_some_and(|extension| extension == "squashfs")
        });
        extensions.sort();
        Ok(Parts { base, extensions })
    }
}

impl std::fmt::Display for Parts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.base.display())?;
        for extension in &self.extensions {
            write!(f, " + {}", extension.display())?;
        }
        Ok(())
    }
}

/// Mounts the parts read-only at `target`.
pub fn assemble(parts: &Parts, target: &Path) -> Result<(), Failure> {
    if parts.extensions.is_empty() {
        return mount_image(&parts.base, target);
    }
    let images = std::iter::once(&parts.base).chain(&parts.extensions);
    let mut layers = Vec::new();
    for (number, image) in images.enumerate() {
        let layer = Path::new(LAYERS).join(number.to_string());
        mount_image(image, &layer)?;
        layers.push(layer);
    }
    let options = format!("lowerdir={}", lower_directories(&layers));
    make_directory(target)?;
    mount::mount(Path::new("corten"), target, "overlay", FLAGS, &options).map_err(|error| {
        Failure::new(
            format!("cannot lay the extensions over the root file system: {error}"),
            REWRITE,
        )
    })?;
    // The overlay holds the layers; nobody shall reach them past it.
    for layer in &layers {
        let _ = mount::detach(layer);
    }
    Ok(())
}

/// overlayfs takes the topmost layer first.
fn lower_directories(layers: &[PathBuf]) -> String {
    let names: Vec<String> = layers
        .iter()
        .rev()
        .map(|layer| layer.display().to_string())
        .collect();
    names.join(":")
}

fn mount_image(image: &Path, target: &Path) -> Result<(), Failure> {
    let failed = |what: &str, error: &io::Error| {
        Failure::new(format!("{} {what}: {error}", image.display()), REWRITE)
    };
    check_magic(image).map_err(|error| failed("is not a squashfs image", &error))?;
    make_directory(target)?;
    let (device, _open) = loopdev::attach_read_only(image)
        .map_err(|error| failed("cannot be attached to a loop device", &error))?;
    mount::mount(&device, target, "squashfs", FLAGS, "")
        .map_err(|error| failed("is damaged or needs a feature this kernel lacks", &error))
}

/// Tells a damaged file from a kernel that cannot mount it.
fn check_magic(image: &Path) -> io::Result<()> {
    let mut start = [0; SUPERBLOCK_MAGIC.len()];
    io::Read::read_exact(&mut fs::File::open(image)?, &mut start)?;
    if start == SUPERBLOCK_MAGIC {
        Ok(())
    } else {
        Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "wrong first bytes",
        ))
    }
}

fn make_directory(path: &Path) -> Result<(), Failure> {
    fs::create_dir_all(path)
        .map_err(|error| Failure::new(format!("cannot make {}: {error}", path.display()), REWRITE))
}

/// Reads the whole of the next program: damage shows here as an error to report, and not later as a dead
/// process 1. What is read stays in the page cache, so the program starts none the slower.
pub fn check_program(program: &Path) -> Result<(), Failure> {
    let read = fs::File::open(program).and_then(|mut file| io::copy(&mut file, &mut io::sink()));
    match read {
        Ok(0) => Err(Failure::new(
            format!("{} is empty", program.display()),
            REWRITE,
        )),
        Ok(_) => Ok(()),
        Err(error) => Err(Failure::new(
            format!("cannot read {}: {error}", program.display()),
            REWRITE,
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scratch(name: &str) -> PathBuf {
        let dir = std::env::temp_dir().join(format!("corten-init-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(dir.join("extensions")).unwrap();
        dir
    }

    #[test]
    fn extensions_are_found_in_lexical_order() {
        let dir = scratch("order");
        for name in [
            "rootfs.squashfs",
            "extensions/20-b.squashfs",
            "extensions/10-a.squashfs",
            "extensions/note",
        ] {
            fs::write(dir.join(name), "hsqs").unwrap();
        }
        let parts = Parts::find(&dir).unwrap();
        let names: Vec<_> = parts
            .extensions
            .iter()
            .filter_map(|path| path.file_name())
            .collect();
        assert_eq!(names, ["10-a.squashfs", "20-b.squashfs"]);
        fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn a_missing_root_is_named() {
        let dir = scratch("missing");
        let failure = Parts::find(&dir).unwrap_err().to_string();
        assert!(failure.contains("rootfs.squashfs is missing"), "{failure}");
        fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn a_damaged_image_is_not_even_attached() {
        let dir = scratch("damaged");
        let image = dir.join("rootfs.squashfs");
        fs::write(&image, "zeros instead").unwrap();
        let failure = mount_image(&image, &dir.join("target"))
            .unwrap_err()
            .to_string();
        assert!(failure.contains("is not a squashfs image"), "{failure}");
        fs::write(&image, "hs").unwrap();
        assert!(check_magic(&image).is_err());
        fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn the_last_extension_lies_on_top() {
        let layers = [
            PathBuf::from("/layers/0"),
            PathBuf::from("/layers/1"),
            PathBuf::from("/layers/2"),
        ];
        assert_eq!(lower_directories(&layers), "/layers/2:/layers/1:/layers/0");
    }

    #[test]
    fn an_empty_program_is_refused() {
        let dir = scratch("empty");
        fs::write(dir.join("init"), "").unwrap();
        assert!(
            check_program(&dir.join("init"))
                .unwrap_err()
                .to_string()
                .contains("is empty")
        );
        fs::remove_dir_all(&dir).unwrap();
    }
}
