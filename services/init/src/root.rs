//! The root file system: one squashfs, or several as layers of a read-only overlay.

use std::ffi::OsStr;
use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use corten_sys::loopdev;
use corten_sys::mount::{self, MountFlags};

use crate::failure::{Failure, REWRITE};
use crate::program;

const LAYERS: &str = "/layers";
const FLAGS: MountFlags = MountFlags::RDONLY
    .union(MountFlags::NOSUID)
    .union(MountFlags::NODEV);
const SUPERBLOCK_MAGIC: [u8; 4] = *b"hsqs";

/// Lists the image's layers, one per line. A boot loader may prepend another archive to the initramfs; its files are
/// not in the list, because the image's list replaces its own.
const LIST: &str = "extensions.list";

/// The layer with the image's machine config. It is not an extension: a node that starts without it would accept a
/// config from any caller.
const CONFIG_LAYER: &str = "99-config.squashfs";

/// The images of the root file system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parts {
    base: PathBuf,
    /// In lexical order; a later layer covers an earlier one.
    layers: Vec<PathBuf>,
}

impl Parts {
    /// Finds the images in the initramfs at `top`. Skips layers that the image does not list, and reports them to
    /// `complain`.
    pub fn find(top: &Path, complain: impl Fn(&str)) -> Result<Parts, Failure> {
        let base = top.join("rootfs.squashfs");
        if !base.is_file() {
            return Err(Failure::new(
                format!("{} is missing from the initramfs", base.display()),
                REWRITE,
            ));
        }
        let mut layers: Vec<PathBuf> = match fs::read_dir(top.join("extensions")) {
            Ok(entries) => entries.flatten().map(|entry| entry.path()).collect(),
            Err(_) => Vec::new(),
        };
        layers.retain(|path| {
            path.extension()
                .is_some_and(|extension| extension == "squashfs")
        });
        layers.sort();
        let list = fs::read_to_string(top.join(LIST)).unwrap_or_default();
        layers.retain(|path| {
            let is_listed = list
                .lines()
                .any(|name| path.file_name() == Some(OsStr::new(name)));
            if !is_listed {
                let text = format!("{} is left out: the image does not list it", path.display());
                complain(&text);
            }
            is_listed
        });
        Ok(Parts { base, layers })
    }

    /// The root without optional layers; `None` if there are none.
    fn without_extensions(&self) -> Option<Parts> {
        let mut fewer = self.clone();
        fewer.layers.retain(|layer| !is_extension(layer));
        (fewer != *self).then_some(fewer)
    }
}

fn is_extension(layer: &Path) -> bool {
    layer.file_name().is_none_or(|name| name != CONFIG_LAYER)
}

impl std::fmt::Display for Parts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.base.display())?;
        for layer in &self.layers {
            write!(f, " + {}", layer.display())?;
        }
        Ok(())
    }
}

/// Mounts the images read-only at `target`, and checks that `program` in it is readable.
///
/// Skips an extension that cannot be mounted. If the root does not work with the remaining ones, skips all extensions.
/// Reports skipped extensions to `complain`.
pub fn assemble(
    parts: &Parts,
    target: &Path,
    program: &str,
    complain: impl Fn(&str),
) -> Result<(), Failure> {
    let attempt = |parts: &Parts| {
        mount_root(parts, target, &complain)?;
        program::check(&target.join(program.trim_start_matches('/')))
    };
    match (attempt(parts), parts.without_extensions()) {
        (Err(failure), Some(fewer)) => {
            complain(&format!("the extensions are left out: {failure}"));
            let _ = mount::detach(target);
            attempt(&fewer)
        }
        (done, _) => done,
    }
}

/// Mounts an overlay of the images at `target`, or the base alone if it is the only layer.
fn mount_root(parts: &Parts, target: &Path, complain: impl Fn(&str)) -> Result<(), Failure> {
    if parts.layers.is_empty() {
        return mount_image(&parts.base, target);
    }
    let layers = mount_layers(parts, mount_image, complain)?;
    let mounted = if layers.len() > 1 {
        stack(&layers, target)
    } else {
        mount_image(&parts.base, target)
    };
    // The overlay keeps the layers alive; detach them so that no path leads to them.
    for layer in &layers {
        let _ = mount::detach(layer);
    }
    mounted
}

/// Mounts every image at its own mount point; returns the mount points, the base first.
fn mount_layers(
    parts: &Parts,
    mount: impl Fn(&Path, &Path) -> Result<(), Failure>,
    complain: impl Fn(&str),
) -> Result<Vec<PathBuf>, Failure> {
    let mut layers = Vec::new();
    for (number, image) in std::iter::once(&parts.base)
        .chain(&parts.layers)
        .enumerate()
    {
        let layer = Path::new(LAYERS).join(number.to_string());
        match mount(image, &layer) {
            Ok(()) => layers.push(layer),
            Err(failure) if number > 0 && is_extension(image) => {
                complain(&format!("an extension is left out: {failure}"));
            }
            Err(failure) => return Err(failure),
        }
    }
    Ok(layers)
}

fn stack(layers: &[PathBuf], target: &Path) -> Result<(), Failure> {
    let options = format!("lowerdir={}", lower_directories(layers));
    make_directory(target)?;
    mount::mount(Path::new("corten"), target, "overlay", FLAGS, &options).map_err(|error| {
        Failure::new(
            format!("cannot mount the extensions over the root file system: {error}"),
            REWRITE,
        )
    })
}

/// The option `lowerdir`; overlayfs expects the top layer first.
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

/// Distinguishes a damaged file from an unsupported one.
fn check_magic(image: &Path) -> io::Result<()> {
    let mut start = [0; SUPERBLOCK_MAGIC.len()];
    fs::File::open(image)?.read_exact(&mut start)?;
    if start == SUPERBLOCK_MAGIC {
        Ok(())
    } else {
        Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "wrong magic number",
        ))
    }
}

fn make_directory(path: &Path) -> Result<(), Failure> {
    fs::create_dir_all(path)
        .map_err(|error| Failure::new(format!("cannot make {}: {error}", path.display()), REWRITE))
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
        fs::write(dir.join(LIST), "20-b.squashfs\n10-a.squashfs\nnote\n").unwrap();
        let parts = Parts::find(&dir, |text| panic!("{text}")).unwrap();
        let names: Vec<_> = parts
            .layers
            .iter()
            .filter_map(|path| path.file_name())
            .collect();
        assert_eq!(names, ["10-a.squashfs", "20-b.squashfs"]);
        fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn layer_that_the_image_does_not_list_is_ignored() {
        let dir = scratch("foreign");
        for name in [
            "rootfs.squashfs",
            "extensions/00-own.squashfs",
            "extensions/99-config.squashfs",
            "extensions/99-foreign.squashfs",
        ] {
            fs::write(dir.join(name), "hsqs").unwrap();
        }
        let own = dir.join("extensions/00-own.squashfs");
        for (list, wanted) in [
            ("00-own.squashfs\n", &[own][..]),
            ("", &[]),
            ("\n/\nsquashfs\n..\n", &[]),
        ] {
            fs::write(dir.join(LIST), list).unwrap();
            let said = std::cell::RefCell::new(Vec::new());
            let complain = |text: &str| said.borrow_mut().push(text.to_owned());
            let parts = Parts::find(&dir, complain).unwrap();
            assert_eq!(parts.layers, wanted, "{list:?}");
            let said = said.borrow().join("\n");
            for name in ["99-config.squashfs", "99-foreign.squashfs"] {
                let line = format!("{name} is left out: the image does not list it");
                assert!(said.contains(&line), "{said}");
            }
        }
        fs::remove_file(dir.join(LIST)).unwrap();
        assert_eq!(
            Parts::find(&dir, |_| ()).unwrap().layers,
            [] as [PathBuf; 0]
        );
        fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn a_missing_root_is_named() {
        let dir = scratch("missing");
        let failure = Parts::find(&dir, |_| ()).unwrap_err().to_string();
        assert!(failure.contains("rootfs.squashfs is missing"), "{failure}");
        fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn only_the_broken_extension_is_left_out() {
        let at = |name: &str| Path::new("/extensions").join(name);
        let parts = Parts {
            base: "/rootfs.squashfs".into(),
            layers: vec![at("00-a.squashfs"), at("01-b.squashfs"), at(CONFIG_LAYER)],
        };
        let fails = |broken: &'static str| {
            move |image: &Path, _: &Path| match image.to_str() {
                Some(name) if name.ends_with(broken) => {
                    Err(Failure::new(format!("{name} is broken"), REWRITE))
                }
                _ => Ok(()),
            }
        };
        let said = std::cell::RefCell::new(Vec::new());
        let complain = |text: &str| said.borrow_mut().push(text.to_owned());
        let layers = mount_layers(&parts, fails("00-a.squashfs"), complain).unwrap();
        assert_eq!(lower_directories(&layers), "/layers/3:/layers/2:/layers/0");
        assert!(said.borrow()[0].contains("/extensions/00-a.squashfs is broken"));
        for needed in ["rootfs.squashfs", CONFIG_LAYER] {
            mount_layers(&parts, fails(needed), complain).unwrap_err();
        }
        assert_eq!(said.borrow().len(), 1);

        let fewer = parts.without_extensions().unwrap();
        assert_eq!(fewer.layers, [at(CONFIG_LAYER)]);
        assert_eq!(fewer.without_extensions(), None);
    }

    #[test]
    fn damaged_image_is_not_attached() {
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
    fn last_extension_is_the_topmost_layer() {
        let layers = [
            PathBuf::from("/layers/0"),
            PathBuf::from("/layers/1"),
            PathBuf::from("/layers/2"),
        ];
        assert_eq!(lower_directories(&layers), "/layers/2:/layers/1:/layers/0");
    }
}
