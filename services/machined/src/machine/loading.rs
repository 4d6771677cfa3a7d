//! Loads the system extensions that the machine config names, while the node runs. containerd pulls them, registryd
//! checks and unpacks them, and an overlay lays them over `/usr/local`. A failed extension does not affect the others.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use corten_base::console;
use corten_base::durable::remove_directory_if_there;
use corten_base::panics::again;
use corten_config::Document;
use corten_config::registries::Registries;
use corten_containerd::client::{Containerd, Purpose, SYSTEM};
use corten_containerd::names::full_name;
use corten_extension::layers::{self, Layer};
use corten_extension::rules;
use corten_server::node::Node as _;
use corten_supervisor::supervisor::handover::{Found, Kind, walk};
use corten_supervisor::{Argument, CONTAINERD, CONTAINERD_SOCKET, CONTENT, REGISTRYD};
use corten_values::{ExtensionImage, ExtensionSource};
use corten_volumes::labelled;
use tokio::sync::{Mutex, mpsc};
use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};

use super::Machine;
use super::overlay::Overlay;

/// Directory under the extensions' overlay.
const OVER: &str = "/usr/local";
/// Directory of the unpacked extensions, one directory each. They are unpacked anew at every boot: the disk's content
/// is not trusted.
const UNPACKED: &str = "/var/lib/extensions";
/// Mount point of an extension's volume.
const MOUNT_POINT: &str = "/run/extension-source";
/// Timeout of a pull. A later attempt pulls again.
const PULL: Duration = Duration::from_secs(900);
/// First pause between attempts. It doubles up to [`LONGEST_PAUSE`].
const PAUSE: Duration = Duration::from_secs(10);
const LONGEST_PAUSE: Duration = Duration::from_secs(300);

/// An extension that can be laid over the node.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Loaded {
    image: ExtensionImage,
    layer: Layer,
}

/// Last reported error of each extension, by image, so that it is reported once.
#[derive(Debug, Default)]
struct Complaints(HashMap<String, String>);

impl Complaints {
    fn tell(&mut self, image: &ExtensionImage, why: String) {
        if self.0.get(&**image) != Some(&why) {
            console::warn(&format!("the extension {image} is not loaded: {why}"));
            self.0.insert(image.to_string(), why);
        }
    }

    fn forget_others(&mut self, wanted: &[ExtensionImage]) {
        self.0
            .retain(|image, _| wanted.iter().any(|wanted| **wanted == *image));
    }
}

/// State of the loading.
struct Loading {
    overlay: Overlay,
    /// Extensions in the overlay, the lowest first.
    loaded: Vec<Loaded>,
    complaints: Complaints,
}

impl Machine {
    /// Keeps the extensions loaded that the config names, for as long as the node runs.
    pub(super) async fn load_extensions(self: Arc<Machine>) {
        self.supervisor.up(CONTAINERD).await;
        if let Err(error) = remove_directory_if_there(Path::new(UNPACKED)) {
            console::warn(&format!("cannot remove {UNPACKED}: {error}"));
        }
        let overlay = match Overlay::over(Path::new(OVER)) {
            Ok(overlay) => overlay,
            Err(error) => return console::error(&format!("cannot open {OVER}: {error}")),
        };
        // Outside the loop, which may restart after a panic: the overlay is still mounted then.
        let loading = Mutex::new(Loading {
            overlay,
            loaded: Vec::new(),
            complaints: Complaints::default(),
        });
        again(|| self.load_by_config(&loading)).await;
    }

    async fn load_by_config(&self, loading: &Mutex<Loading>) {
        let mut loading = loading.lock().await;
        let loading = &mut *loading;
        let mut configs = self.node.configs();
        let mut pause = PAUSE;
        loop {
            let wanted = wanted(configs.borrow_and_update().as_ref());
            loading.complaints.forget_others(&wanted);
            // A registry that does not answer delays only the extensions that it has to give.
            let near = near(&wanted, &loading.loaded).await;
            for wanted in [&near, &wanted] {
                let now = self.obtain_all(wanted, loading).await;
                if now != loading.loaded {
                    self.lay(loading, now);
                }
            }
            let digests: Vec<&str> = wanted.iter().map(ExtensionImage::digest).collect();
            // A leftover only takes space; the next boot or config tries again.
            let _ = containerd().remove_other_extensions(&digests).await;
            let next = async {
                let images = loading.loaded.iter().map(|one| &one.image);
                if images.eq(&wanted) {
                    std::future::pending::<()>().await;
                }
                sleep(pause).await;
            };
            tokio::select! {
                changed = configs.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    pause = PAUSE;
                }
                () = next => pause = (pause * 2).min(LONGEST_PAUSE),
            }
        }
    }

    /// Obtains the wanted extensions, in their order, without those that fail.
    async fn obtain_all(&self, wanted: &[ExtensionImage], loading: &mut Loading) -> Vec<Loaded> {
        let complaints = &mut loading.complaints;
        let mut taken = names_in_the_image();
        let mut now: Vec<Loaded> = Vec::new();
        for image in wanted {
            let had = loading.loaded.iter().find(|one| one.image == *image);
            let obtained = match had {
                Some(had) => Ok(had.clone()),
                None => self.obtain(image).await,
            };
            let name = |one: &Loaded| one.layer.manifest.metadata.name.clone();
            match obtained {
                Ok(one) if taken.insert(name(&one)) => now.push(one),
                Ok(one) => complaints.tell(
                    image,
                    format!("another extension of this node has the name {}", name(&one)),
                ),
                Err(why) => complaints.tell(image, why),
            }
        }
        now
    }

    async fn obtain(&self, image: &ExtensionImage) -> Result<Loaded, String> {
        match image.source() {
            ExtensionSource::Registry(name) => {
                if !is_here(image).await? {
                    let config = self.node.config();
                    let registries = config.map(|config| config.registries());
                    pull(name, &registries.unwrap_or_default()).await?;
                }
                self.unpack(Path::new(CONTENT), image).await?;
            }
            ExtensionSource::Volume { label, file } => {
                let volume = labelled::attach(label, Path::new(MOUNT_POINT))?.ok_or_else(|| {
                    format!("no volume has the label {label}: attach one, with ISO 9660 or FAT")
                })?;
                self.unpack(&volume.path(file), image).await?;
            }
        }
        let manifest = layers::read(&directory(image).join("manifest.yaml"))
            .map_err(|problem| problem.to_string())?;
        Ok(Loaded {
            image: image.clone(),
            layer: Layer {
                image: image.to_string(),
                manifest,
            },
        })
    }

    async fn unpack(&self, from: &Path, image: &ExtensionImage) -> Result<(), String> {
        let directory = directory(image);
        let arguments = vec![
            Argument::word("unpack"),
            Argument::reads(from),
            Argument::word(image.digest()),
            Argument::fills(&directory),
        ];
        self.supervisor.run(REGISTRYD, arguments).await?;
        // registryd has checked the rules too, but it has parsed untrusted bytes and may be compromised.
        let checked = spawn_blocking(move || check(&directory)).await;
        checked.unwrap_or_else(|error| Err(error.to_string()))
    }

    /// Replaces the overlay's extensions by `now`.
    fn lay(&self, loading: &mut Loading, now: Vec<Loaded>) {
        if let Err(error) = loading.overlay.lay(&layers_of(&now)) {
            return console::error(&format!(
                "cannot mount the extensions over {OVER}: {error}; the former extensions stay"
            ));
        }
        let before = std::mem::replace(&mut loading.loaded, now);
        let now = &loading.loaded;
        for one in before.iter().filter(|one| !now.contains(one)) {
            console::say(&format!("the extension {} is no longer loaded", one.image));
        }
        for one in now.iter().filter(|one| !before.contains(one)) {
            let about = &one.layer.manifest.metadata;
            let (name, version, image) = (&about.name, &about.version, &one.image);
            console::say(&format!(
                "the extension {name} {version} is loaded from {image}"
            ));
        }
        let layers = now.iter().map(|one| one.layer.clone());
        self.extensions.loaded.send_replace(layers.collect());
        self.find_extensions();
    }
}

/// Extensions that the config names, each digest once.
fn wanted(config: Option<&Document>) -> Vec<ExtensionImage> {
    let install = config.map(|document| &document.machine.install);
    let mut digests = HashSet::new();
    let named = install.into_iter().flat_map(|install| &install.extensions);
    named
        .filter(|one| digests.insert(one.image.digest()))
        .map(|one| one.image.clone())
        .collect()
}

/// The extensions that need no registry.
async fn near(wanted: &[ExtensionImage], loaded: &[Loaded]) -> Vec<ExtensionImage> {
    let mut near = Vec::new();
    for image in wanted {
        let is_loaded = loaded.iter().any(|one| one.image == *image);
        let is_near = match image.source() {
            _ if is_loaded => true,
            ExtensionSource::Volume { .. } => true,
            ExtensionSource::Registry(_) => is_here(image).await == Ok(true),
        };
        if is_near {
            near.push(image.clone());
        }
    }
    near
}

/// Directory of an unpacked extension. The kernel limits the name of an overlay's layer to 255 bytes.
fn directory(image: &ExtensionImage) -> PathBuf {
    let hex = image.digest().strip_prefix("sha256:").unwrap_or_default();
    Path::new(UNPACKED).join(hex.get(..16).unwrap_or(hex))
}

/// Checks the unpacked files against the rules: a manifest, and files that an extension may add to a running node.
fn check(directory: &Path) -> Result<(), String> {
    let strange = |path: &str| {
        format!(
            "{}: an extension must not contain {path:?}",
            directory.display()
        )
    };
    let mut refused = None;
    let mut see = |found: &Found| {
        let kind = match &found.kind {
            Kind::Directory => rules::Kind::Directory,
            Kind::File => rules::Kind::File,
            Kind::Link(target) => rules::Kind::Link(target),
        };
        let checked = match (found.path.strip_prefix("rootfs/"), &found.kind) {
            (Some(inner), _) => rules::check(inner, kind, found.mode)
                .and_then(|()| rules::check_late(inner))
                .map_err(|problem| problem.to_string()),
            (None, Kind::Directory) if found.path == "rootfs" => Ok(()),
            (None, Kind::File) if found.path == "manifest.yaml" => Ok(()),
            (None, _) => Err(strange(&found.path)),
        };
        if let Err(why) = checked {
            refused.get_or_insert(why);
        }
    };
    walk(directory, |_, _, found| {
        see(found);
        Ok(())
    })
    .map_err(|error| format!("{}: {error}", directory.display()))?;
    refused.map_or(Ok(()), Err)
}

fn containerd() -> Containerd {
    Containerd::new(Path::new(CONTAINERD_SOCKET))
}

async fn is_here(image: &ExtensionImage) -> Result<bool, String> {
    let answer = containerd().has_image(SYSTEM, image.digest()).await;
    answer.map_err(|status| status.message().to_owned())
}

async fn pull(name: &str, registries: &Registries) -> Result<(), String> {
    let full = full_name(name).map_err(|error| format!("{name:?}: {error}"))?;
    console::say(&format!("pulling the extension {name}"));
    // The steps of the pull have no receiver.
    let (steps, _) = mpsc::channel(1);
    let (containerd, purpose) = (containerd(), Purpose::Extension);
    let pulled = timeout(
        PULL,
        containerd.pull(SYSTEM, &full, purpose, registries, steps),
    )
    .await;
    match pulled {
        Ok(pulled) => pulled.map_err(|status| status.message().to_owned()),
        Err(_) => Err(format!(
            "containerd did not pull it within {} s; check the registry and the network",
            PULL.as_secs()
        )),
    }
}

fn names_in_the_image() -> HashSet<String> {
    let (layers, _) = layers::list(Path::new("/")).unwrap_or_default();
    let names = layers.into_iter().map(|layer| layer.manifest.metadata.name);
    names.collect()
}

/// Directories of the overlay, the topmost first. An extension may consist of its manifest alone.
fn layers_of(extensions: &[Loaded]) -> Vec<PathBuf> {
    let directories = extensions.iter().rev();
    let directories = directories.map(|one| directory(&one.image).join("rootfs/usr/local"));
    directories.filter(|directory| directory.is_dir()).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use corten_base::sample;

    use super::*;

    #[test]
    fn extension_images_are_loaded_once_in_config_order() {
        let digest = |digit: &str| format!("sha256:{}", digit.repeat(64));
        let (one, two) = (digest("1"), digest("2"));
        let images = format!(
            "{{image: registry.example.org/hello:v1@{two}}}, \
             {{image: oci-archive://EXTRA/hello.tar@{one}}}, \
             {{image: oci-archive://EXTRA/again.tar@{two}}}"
        );
        let document = sample::config(&format!("install: {{extensions: [{images}]}}"), "");
        let wanted = wanted(Some(&document));
        let digests: Vec<&str> = wanted.iter().map(ExtensionImage::digest).collect();
        assert_eq!(digests, [&two, &one]);
        assert_eq!(
            directory(&wanted[1]),
            Path::new("/var/lib/extensions/1111111111111111")
        );
        assert!(super::wanted(None).is_empty());
    }

    #[test]
    fn unpacked_extension_is_checked_against_the_rules_again() {
        use std::os::unix::fs::symlink;
        let unpacked = || {
            let directory = tempfile::tempdir().unwrap();
            let tool = directory.path().join("rootfs/usr/local/bin/tool");
            fs::create_dir_all(tool.parent().unwrap()).unwrap();
            fs::write(tool, "").unwrap();
            fs::write(directory.path().join("manifest.yaml"), "").unwrap();
            directory
        };
        assert_eq!(check(unpacked().path()), Ok(()));
        let refused = |path: &str, leave: &dyn Fn(&Path)| {
            let directory = unpacked();
            let at = directory.path().join(path);
            let _ = fs::remove_file(&at);
            let _ = fs::remove_dir_all(&at);
            leave(&at);
            let why = check(directory.path()).unwrap_err();
            assert!(why.contains(path.trim_start_matches("rootfs")), "{why}");
        };
        refused("beside", &|at| fs::write(at, "").unwrap());
        refused("rootfs/usr/init", &|at| fs::write(at, "").unwrap());
        for link in ["manifest.yaml", "rootfs", "rootfs/usr", "rootfs/usr/local"] {
            refused(link, &|at| symlink("/", at).unwrap());
        }
    }

    #[test]
    fn complaint_is_logged_once_until_it_changes() {
        let mut complaints = Complaints::default();
        let image = ExtensionImage::default();
        complaints.tell(&image, "no volume".to_owned());
        complaints.tell(&image, "no volume".to_owned());
        assert_eq!(complaints.0[&*image], "no volume");
        complaints.tell(&image, "no file".to_owned());
        assert_eq!(complaints.0[&*image], "no file");
        complaints.forget_others(std::slice::from_ref(&image));
        assert_eq!(complaints.0.len(), 1);
        complaints.forget_others(&[]);
        assert!(complaints.0.is_empty());
    }
}
