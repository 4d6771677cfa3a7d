//! Declares the services of system extensions. It finds them when the node starts and when the loaded extensions
//! change, and declares them again when their part of the machine config changes.

use std::collections::HashSet;
use std::ffi::OsString;
use std::fs;
use std::io::{self, Read as _};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use corten_base::bulkhead::Bulkhead;
use corten_base::console;
use corten_base::durable::{self, Access};
use corten_base::panics::again;
use corten_base::regular;
use corten_config::kinds::{ExtensionFile, ExtensionServiceConfig};
use corten_containerd::client::Containerd;
use corten_extension::layers::Layer;
use corten_extension::service::{DIRECTORY, LARGEST, Service};
use corten_server::node::Node as _;
use corten_supervisor::environment::with_variables;
use corten_supervisor::extension::{FILES, declare, file_path, id, unusable};
use corten_supervisor::supervisor::Supervisor;
use corten_supervisor::{CONTAINERD_SOCKET, Condition, ServiceSpec};
use tokio::sync::watch;
use tokio::time::sleep;

use super::{Machine, lock};

/// Interval between checks for a path that a service waits for.
const LOOK: Duration = Duration::from_secs(1);
/// Number of concurrent checks for paths. More paths than this on network mounts with dead servers block the others.
const LOOKS: usize = 16;
/// Interval between attempts to remove containers without a service.
const AGAIN: Duration = Duration::from_secs(10);

/// State of the extensions: their services, and the loaded layers.
#[derive(Debug)]
pub(super) struct Extensions {
    /// Services read from the files. The lock is held while they are declared.
    found: Arc<Mutex<Vec<Entry>>>,
    /// Paths that services wait for; each has one task that checks for it.
    awaited: Mutex<HashSet<PathBuf>>,
    looks: Bulkhead,
    /// Layers loaded over those of the image, the lowest first.
    pub(super) loaded: watch::Sender<Vec<Layer>>,
    /// Configs whose files are written as the config says.
    pub(super) in_place: watch::Sender<Vec<ExtensionServiceConfig>>,
}

impl Default for Extensions {
    fn default() -> Extensions {
        Extensions {
            found: Arc::default(),
            awaited: Mutex::default(),
            // A check has no timeout: its task waits for the answer.
            looks: Bulkhead::new(LOOKS, Duration::MAX),
            loaded: watch::Sender::default(),
            in_place: watch::Sender::default(),
        }
    }
}

/// Content of a file: a service, or a name and the reason why the file cannot be used.
#[derive(Debug)]
pub(super) struct Entry(Result<Service, (String, String)>);

impl Entry {
    /// The service's name in the API.
    fn id(&self) -> Arc<str> {
        match &self.0 {
            Ok(service) => id(&service.name),
            Err((name, _)) => id(name),
        }
    }
}

impl Machine {
    /// Finds and declares the services, and removes containers left by an earlier boot.
    pub(super) fn start_extensions(&self) {
        self.find_extensions();
        let (supervisor, found) = (self.supervisor.clone(), self.extensions.found.clone());
        tokio::spawn(again(move || {
            remove_others(supervisor.clone(), found.clone())
        }));
    }

    /// Reads the services anew: new ones start, and those whose file is gone stop.
    pub(super) fn find_extensions(&self) {
        let found = match find(Path::new(DIRECTORY)) {
            Ok(found) => found,
            Err(error) => return console::warn(&format!("cannot list {DIRECTORY}: {error}")),
        };
        for Entry(entry) in &found {
            let Ok(service) = entry else { continue };
            for need in declare(service, None).needs {
                if let Condition::Path(path) = need
                    && lock(&self.extensions.awaited).insert(path.clone())
                {
                    let (looks, conditions) =
                        (self.extensions.looks.clone(), self.supervisor.conditions());
                    tokio::spawn(async move {
                        again(|| is_there(&path, Path::exists, &looks)).await;
                        conditions.set(Condition::Path(path), Ok(()));
                    });
                }
            }
        }
        let ids: HashSet<Arc<str>> = found.iter().map(Entry::id).collect();
        let before = std::mem::replace(&mut *lock(&self.extensions.found), found);
        for gone in before.iter().map(Entry::id) {
            if !ids.contains(&gone) {
                self.supervisor.forget(&gone);
            }
        }
        self.declare_extensions();
    }

    /// Declares the services by the current config.
    pub(super) fn declare_extensions(&self) {
        // The lock comes before the read of the config: the last call then declares by the newest config.
        let found = lock(&self.extensions.found);
        let config = self.node.config();
        let variables = self.variables();
        let mut in_place = Vec::new();
        for Entry(entry) in &*found {
            let service = match entry {
                Ok(service) => service,
                Err((name, why)) => {
                    self.supervisor.declare(unusable(name, why.clone()));
                    continue;
                }
            };
            let own = config.as_ref().and_then(|document| {
                document
                    .all::<ExtensionServiceConfig>()
                    .find(|own| own.name == service.name)
            });
            // The files come first: a declared service may start at once.
            let spec = match write_files(Path::new(FILES), service, own) {
                Ok(()) => {
                    in_place.extend(own.cloned());
                    with_variables(declare(service, own), &variables)
                }
                Err(error) => {
                    let why =
                        format!("cannot write the files of its ExtensionServiceConfig: {error}");
                    unusable(&service.name, why)
                }
            };
            tell(&self.supervisor, service, own, spec);
            if let Err(error) = withdraw(Path::new(FILES), service, own) {
                let name = &service.name;
                console::warn(&format!("cannot remove withdrawn files of {name}: {error}"));
            }
        }
        self.extensions.in_place.send_replace(in_place);
    }
}

/// Declares the service and sets the condition of its config, in the order that never starts it without the config.
fn tell(
    supervisor: &Supervisor,
    service: &Service,
    config: Option<&ExtensionServiceConfig>,
    spec: ServiceSpec,
) {
    let conditions = supervisor.conditions();
    let condition = Condition::Configuration(service.name.clone());
    match config {
        Some(_) => {
            supervisor.declare(spec);
            conditions.set(condition, Ok(()));
        }
        None => {
            conditions.set(condition, Err("the machine config has none".to_owned()));
            supervisor.declare(spec);
        }
    }
}

/// Writes the config's files of the service. On the node only root reaches them; in the container every user reads
/// them.
fn write_files(
    directory: &Path,
    service: &Service,
    config: Option<&ExtensionServiceConfig>,
) -> io::Result<()> {
    let Some(config) = config else { return Ok(()) };
    fs::create_dir_all(directory)?;
    fs::set_permissions(directory, fs::Permissions::from_mode(0o700))?;
    let directory = directory.join(&service.name);
    fs::create_dir_all(&directory)?;
    for file in &config.config_files {
        let path = directory.join(file_name(service, file));
        // An atomic replacement: a running container has the directory mounted and must not see an empty file.
        durable::replace_now(&path, file.content.expose(), Access::ALL)?;
    }
    Ok(())
}

fn file_name(service: &Service, file: &ExtensionFile) -> OsString {
    let path = file_path(&service.name, file);
    path.file_name().unwrap_or_default().to_owned()
}

/// Removes the files that only an earlier config gave to the service: they may hold secrets. A container that is being
/// stopped keeps the files that it has mounted.
fn withdraw(
    directory: &Path,
    service: &Service,
    config: Option<&ExtensionServiceConfig>,
) -> io::Result<()> {
    let files = config.into_iter().flat_map(|config| &config.config_files);
    let kept: HashSet<OsString> = files.map(|file| file_name(service, file)).collect();
    let entries = match fs::read_dir(directory.join(&service.name)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => other?,
    };
    for entry in entries {
        let entry = entry?;
        if !kept.contains(&entry.file_name()) {
            durable::remove_if_there(&entry.path())?;
        }
    }
    Ok(())
}

/// Reads every service file, in the order of the names. A missing directory has none.
fn find(directory: &Path) -> io::Result<Vec<Entry>> {
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other?,
    };
    let mut paths: Vec<PathBuf> = entries
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<io::Result<_>>()?;
    paths.retain(|path| path.extension().is_some_and(|ending| ending == "yaml"));
    paths.sort();
    let mut found: Vec<Entry> = Vec::new();
    for path in paths {
        let read = read(&path).and_then(|service| {
            let same =
                |Entry(other): &Entry| matches!(other, Ok(other) if other.name == service.name);
            if found.iter().any(same) {
                return Err(format!("name: another file has {:?}", service.name));
            }
            Ok(service)
        });
        found.push(Entry(read.map_err(|why| {
            (stem(&path), format!("{}: {why}", path.display()))
        })));
    }
    keep_apart(&mut found);
    Ok(found)
}

/// Renames the unusable entries so that none takes the name of a usable one.
fn keep_apart(found: &mut [Entry]) {
    let good = found.iter().filter_map(|Entry(entry)| entry.as_ref().ok());
    let mut taken: HashSet<String> = good.map(|service| service.name.clone()).collect();
    for Entry(entry) in found {
        if let Err((name, _)) = entry {
            while !taken.insert(name.clone()) {
                name.push('_');
            }
        }
    }
}

fn read(path: &Path) -> Result<Service, String> {
    // One byte beyond the limit shows that the file is too large.
    let most = u64::try_from(LARGEST).map_or(u64::MAX, |largest| largest + 1);
    let mut bytes = Vec::new();
    regular::open(path, true)
        .and_then(|file| file.take(most).read_to_end(&mut bytes))
        .map_err(|error| error.to_string())?;
    Service::parse(&bytes).map_err(|problem| problem.to_string())
}

/// Name of a service whose file gives none: the file's stem, with `_` for each character that a name cannot have.
fn stem(path: &Path) -> String {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '_';
    let part = |c: char| if plain(c) { c } else { '_' };
    stem.chars().map(part).take(64).collect()
}

/// Returns when the path exists. An extension chose the path, so a check may hang; then no second one begins.
async fn is_there(path: &Path, exists: fn(&Path) -> bool, looks: &Bulkhead) {
    loop {
        let path = path.to_owned();
        if let Ok(true) = looks.run(move || exists(&path)).await {
            return;
        }
        sleep(LOOK).await;
    }
}

/// Removes the containers of extensions that are gone: the records of an earlier boot's containers are still on the
/// disk. A present service removes its own.
async fn remove_others(supervisor: Supervisor, found: Arc<Mutex<Vec<Entry>>>) {
    let containerd = Containerd::new(Path::new(CONTAINERD_SOCKET));
    let mut told = String::new();
    loop {
        supervisor.up("containerd").await;
        // Each attempt uses the services of that moment: more extensions may be loaded by then.
        match containerd.remove_others(|id| is_found(&found, id)).await {
            Ok(removed) if removed.is_empty() => return,
            Ok(removed) => {
                let removed = removed.join(", ");
                return console::say(&format!("removed containers of another boot: {removed}"));
            }
            Err(error) => {
                let why = error.message();
                if told != why {
                    console::warn(&format!(
                        "cannot remove containers of another boot yet: {why}"
                    ));
                    why.clone_into(&mut told);
                }
                sleep(AGAIN).await;
            }
        }
    }
}

/// Whether a service of a present extension has this ID.
fn is_found(found: &Mutex<Vec<Entry>>, id: &str) -> bool {
    lock(found).iter().any(|entry| *entry.id() == *id)
}

#[cfg(test)]
#[path = "extensions_tests.rs"]
mod tests;
