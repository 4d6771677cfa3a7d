//! The services of system extensions in the node's life: found once, for they are part of the image, and
//! declared again when the machine config says something else of them.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use corten_config::kinds::ExtensionServiceConfig;
use corten_extension::service::{DIRECTORY, Service};
use tokio::time::sleep;

use super::Machine;
use crate::console;
use crate::containerd::Containerd;
use crate::node::Node as _;
use crate::services::extension::{FILES, declare, file_path, id, unusable};
use crate::services::{CONTAINERD_SOCKET, Condition, ServiceSpec};
use crate::supervisor::{Conditions, Supervisor};

/// Between looks for a path that a service waits for.
const LOOK: Duration = Duration::from_secs(1);
/// Between attempts to remove what nobody wants any more.
const AGAIN: Duration = Duration::from_secs(10);

/// What the files say; before they were read: nothing.
pub(super) type Found = OnceLock<Vec<Entry>>;

/// A file: a service, or its name and why it cannot be used.
#[derive(Debug)]
pub(super) struct Entry(Result<Service, (String, String)>);

impl Machine {
    /// Finds the services, and wants them to run.
    pub(super) fn start_extensions(&self) {
        let found = match find(Path::new(DIRECTORY)) {
            Ok(found) => found,
            Err(error) => return console::warn(&format!("cannot list {DIRECTORY}: {error}")),
        };
        let conditions = self.supervisor.conditions();
        let specs = self.extensions.get_or_init(|| found);
        let mut awaited = HashSet::new();
        for Entry(entry) in specs {
            let Ok(service) = entry else { continue };
            for need in declare(service, None).needs {
                if let Condition::Path(path) = need
                    && awaited.insert(path.clone())
                {
                    tokio::spawn(await_path(path, conditions.clone()));
                }
            }
        }
        let ids = specs.iter().map(|Entry(entry)| match entry {
            Ok(service) => id(&service.name),
            Err((name, _)) => id(name),
        });
        tokio::spawn(remove_others(self.supervisor.clone(), ids.collect()));
        self.declare_extensions();
    }

    /// Declares the services by the config of now.
    pub(super) fn declare_extensions(&self) {
        let config = self.node.config();
        for Entry(entry) in self.extensions.get().into_iter().flatten() {
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
            let condition = Condition::Configuration(service.name.clone());
            let holds = own.map(drop).ok_or_else(|| "there is none".to_owned());
            self.supervisor.conditions().set(condition, holds);
            self.supervisor.declare(with_files(service, own));
        }
    }
}

/// The declaration, once the files of the config are where it says.
fn with_files(service: &Service, config: Option<&ExtensionServiceConfig>) -> ServiceSpec {
    match write_files(Path::new(FILES), service, config) {
        Ok(()) => declare(service, config),
        Err(error) => {
            let why = format!("cannot write the files of its ExtensionServiceConfig: {error}");
            unusable(&service.name, why)
        }
    }
}

/// Nobody but root can reach them on the node; in the container any user can read them.
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
        let named = file_path(&service.name, file);
        let path = directory.join(named.file_name().unwrap_or_default());
        fs::write(&path, file.content.expose())?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644))?;
    }
    Ok(())
}

/// Every file, in the order of their names. Without the directory there are none.
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

/// A file that cannot be used takes no name from one that can.
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
    let bytes = fs::read(path).map_err(|error| error.to_string())?;
    Service::parse(&bytes).map_err(|problem| problem.to_string())
}

/// What a service is called whose file does not tell: as the file, as far as that is a name.
fn stem(path: &Path) -> String {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '_';
    let part = |c: char| if plain(c) { c } else { '_' };
    stem.chars().map(part).take(64).collect()
}

/// Tells when the path is there.
async fn await_path(path: PathBuf, conditions: Conditions) {
    while !path.exists() {
        sleep(LOOK).await;
    }
    conditions.set(Condition::Path(path), Ok(()));
}

/// Containers outlive the boot they were made in as records on the disk. Those of extensions that are gone are
/// removed; the others remove their own.
async fn remove_others(supervisor: Supervisor, wanted: Vec<Arc<str>>) {
    let containerd = Containerd::new(Path::new(CONTAINERD_SOCKET));
    let wanted: Vec<&str> = wanted.iter().map(|id| &**id).collect();
    loop {
        supervisor.up("containerd").await;
        match containerd.remove_others(&wanted).await {
            Ok(removed) if removed.is_empty() => return,
            Ok(removed) => {
                let removed = removed.join(", ");
                return console::say(&format!("removed containers of another boot: {removed}"));
            }
            Err(_) => sleep(AGAIN).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broken_file_is_named_and_the_others_go_on() {
        let directory = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(directory.path().join(name), text).unwrap();
        write(
            "a.yaml",
            "name: a\ncontainer: {entrypoint: /a}\nrestart: always\n",
        );
        write(
            "Bad one.yaml",
            "name: b\ncontainer: {entrypoint: ''}\nrestart: always\n",
        );
        write(
            "c.yaml",
            "name: a\ncontainer: {entrypoint: /c}\nrestart: never\n",
        );
        write("d.yaml", "\0\u{1}: [");
        write("A.yaml", "");
        write("readme.txt", "no service");
        fs::create_dir(directory.path().join("e.yaml")).unwrap();
        let found = find(directory.path()).unwrap();
        let shown: Vec<(&str, &str)> = found
            .iter()
            .map(|Entry(entry)| match entry {
                Ok(service) => (service.name.as_str(), ""),
                Err((name, why)) => (name.as_str(), why.as_str()),
            })
            .collect();
        let names: Vec<&str> = shown.iter().map(|(name, _)| *name).collect();
        assert_eq!(names, ["_", "_ad_one", "a", "c", "d", "e"]);
        let at = |place: usize| shown[place].1;
        assert!(
            at(1).contains("Bad one.yaml: container.entrypoint: it is empty; name the program"),
            "{}",
            at(1)
        );
        assert_eq!(at(2), "");
        assert!(
            at(3).ends_with("c.yaml: name: another file has \"a\""),
            "{}",
            at(3)
        );
        assert!(at(4).contains("d.yaml: the file: "), "{}", at(4));
        assert!(at(5).contains("e.yaml: "), "{}", at(5));
        assert!(find(&directory.path().join("none")).unwrap().is_empty());
    }
}
