//! Directories of the clusters on this machine, which keep their state.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow, ensure};
use corten_client::failure::Failure;
use corten_sys::mount_table;

use super::network::as_alias;
use super::plan::{NodePlan, Plan, check_name};

/// File with the plan of a cluster, in its directory.
const PLAN: &str = "cluster.json";
/// Directory of the nodes, in that of a cluster.
const NODES: &str = "nodes";
const CLIENT_CONFIG: &str = "cortenconfig";
const KUBECONFIG: &str = "kubeconfig";
/// Files that `create` writes into the directory of a cluster.
const FILES: [&str; 5] = [
    PLAN,
    CLIENT_CONFIG,
    KUBECONFIG,
    "controlplane.yaml",
    "worker.yaml",
];
/// Size limit of a plan, in bytes.
const LARGEST: u64 = 1 << 20;

/// The directory of a cluster.
#[derive(Debug, Clone)]
pub(super) struct Place(PathBuf);

impl Place {
    /// The directory of the cluster `name` below `state`, by default `~/.corten/clusters`.
    ///
    /// # Errors
    /// The name is invalid, or there is no home directory.
    pub(super) fn of(state: Option<&Path>, name: &str) -> Result<Place, Failure> {
        check_name(name).map_err(Failure::usage)?;
        Ok(Place(parent(state)?.join(name)))
    }

    pub(super) fn at(directory: PathBuf) -> Place {
        Place(directory)
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    /// The directory as a mark of the cluster's parts on this machine, by which `destroy` knows them.
    pub(super) fn mark(&self) -> String {
        let real = fs::canonicalize(&self.0).unwrap_or_else(|_| self.0.clone());
        as_alias(&real.to_string_lossy()).to_owned()
    }

    /// Makes the directory of a new cluster, and writes its plan into it.
    ///
    /// # Errors
    /// The cluster exists already, or the directory cannot be written.
    pub(super) fn begin(&self, plan: &Plan) -> anyhow::Result<()> {
        if let Some(parent) = self.0.parent() {
            fs::create_dir_all(parent).with_context(|| parent.display().to_string())?;
        }
        let made = fs::DirBuilder::new().mode(0o700).create(&self.0);
        made.map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => anyhow!(
                "there is a cluster {name} in {}; choose another --name, or remove it: cortenctl cluster destroy --name {name}",
                self.0.display(),
                name = plan.name,
            ),
            _ => anyhow!("{}: {error}", self.0.display()),
        })?;
        let text = serde_json::to_string_pretty(plan)?;
        let written = corten_client::files::write(&self.0.join(PLAN), &text, false);
        // Without its plan, no command could remove the directory.
        written.inspect_err(|_| drop(fs::remove_dir_all(&self.0)))
    }

    /// Reads the plan of an existing cluster.
    ///
    /// # Errors
    /// The plan is missing or damaged.
    pub(super) fn plan(&self) -> anyhow::Result<Plan> {
        let path = self.0.join(PLAN);
        ensure!(
            self.0.is_dir(),
            "there is no cluster in {}",
            self.0.display()
        );
        let text = corten_client::files::read(&path, LARGEST)?;
        serde_json::from_str(&text).with_context(|| path.display().to_string())
    }

    /// Directory of a node.
    pub(super) fn node(&self, node: &NodePlan) -> PathBuf {
        self.0.join(NODES).join(&node.name)
    }

    /// Directory with a node's machine config and nothing else.
    pub(super) fn config_directory(&self, node: &NodePlan) -> PathBuf {
        self.node(node).join("config")
    }

    /// A node's machine config.
    pub(super) fn config(&self, node: &NodePlan) -> PathBuf {
        self.config_directory(node).join("config.yaml")
    }

    /// Log of a node's console.
    pub(super) fn console(&self, node: &NodePlan) -> PathBuf {
        self.node(node).join("console.log")
    }

    /// The operator's client config for the cluster.
    pub(super) fn client_config(&self) -> PathBuf {
        self.0.join(CLIENT_CONFIG)
    }

    /// The administrator's kubeconfig.
    pub(super) fn kubeconfig(&self) -> PathBuf {
        self.0.join(KUBECONFIG)
    }

    /// Removes the directory, unless a file system is mounted below it. With `force`, it detaches such file systems, and
    /// needs no plan in a directory that has nothing but a cluster's files.
    ///
    /// # Errors
    /// It is no cluster's directory, a file system is mounted below it, or it cannot be removed.
    pub(super) fn remove(&self, force: bool) -> anyhow::Result<()> {
        if !self.0.exists() {
            return Ok(());
        }
        let real = fs::canonicalize(&self.0)?;
        // A wrong --state must not remove a directory of another program.
        ensure!(
            self.0.join(PLAN).is_file() || (force && has_only_a_clusters_files(&real)?),
            "{} has no {PLAN}: if it is a cluster's, remove it yourself",
            self.0.display()
        );
        let mounts = mount_table::read()?.into_iter();
        let below = mounts.filter(|mount| Path::new(&mount.target).starts_with(&real));
        // The last mount of a place is on top of the others.
        for mount in below.collect::<Vec<_>>().into_iter().rev() {
            ensure!(
                force,
                "{} is mounted; unmount it, and destroy the cluster again, or use --force",
                mount.target
            );
            corten_sys::mount::detach(Path::new(&mount.target))
                .with_context(|| format!("detaching {}", mount.target))?;
        }
        fs::remove_dir_all(&real).with_context(|| real.display().to_string())
    }
}

/// Whether a directory without a plan is the rest of a cluster. It is empty, or it has the directory of the nodes and
/// only files that `create` writes.
fn has_only_a_clusters_files(directory: &Path) -> anyhow::Result<bool> {
    let mut names = Vec::new();
    for entry in fs::read_dir(directory)? {
        names.push(entry?.file_name());
    }
    let is_known = |name: &OsString| FILES.iter().any(|known| name == known) || name == NODES;
    Ok(names.is_empty() || (names.iter().all(is_known) && directory.join(NODES).is_dir()))
}

/// Names of the clusters below `state`.
///
/// # Errors
/// The directory cannot be read.
pub(super) fn clusters(state: Option<&Path>) -> Result<Vec<String>, Failure> {
    let parent = parent(state)?;
    let entries = match fs::read_dir(&parent) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(Failure::call(format!("{}: {error}", parent.display()))),
    };
    let names = entries
        .flatten()
        .filter(|entry| entry.path().join(PLAN).is_file());
    let mut names: Vec<String> = names
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    names.sort();
    Ok(names)
}

fn parent(state: Option<&Path>) -> Result<PathBuf, Failure> {
    let given = state.map(|state| std::path::absolute(state).unwrap_or_else(|_| state.to_owned()));
    let home = || {
        let home = std::env::home_dir().filter(|home| home.is_absolute())?;
        Some(home.join(".corten").join("clusters"))
    };
    given
        .or_else(home)
        .ok_or_else(|| Failure::usage("there is no home directory: name one with --state"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Provisioner, Wish};

    fn plan() -> Plan {
        Plan::of(Wish {
            name: "lab".to_owned(),
            provisioner: Provisioner::Namespaces,
            image: "/image".into(),
            image_cache: Some("/cache".into()),
            subnet: "10.5.0.0/24".parse().unwrap(),
            control_planes: 1,
            workers: 1,
        })
        .unwrap()
    }

    #[test]
    fn stored_plan_is_read_back_and_never_replaced() {
        let state = tempfile::tempdir().unwrap();
        let place = Place::of(Some(state.path()), "lab").unwrap();
        let none = place.plan().unwrap_err().to_string();
        assert!(none.starts_with("there is no cluster in "), "{none}");
        assert_eq!(clusters(Some(state.path())).unwrap(), [""; 0]);
        place.begin(&plan()).unwrap();
        assert_eq!(place.plan().unwrap(), plan());
        assert_eq!(clusters(Some(state.path())).unwrap(), ["lab"]);
        let again = place.begin(&plan()).unwrap_err().to_string();
        assert!(again.contains("cluster destroy --name lab"), "{again}");
        place.remove(false).unwrap();
        place.remove(false).unwrap();
        assert!(!place.path().exists());
    }

    #[test]
    fn directory_without_a_plan_is_not_removed() {
        let state = tempfile::tempdir().unwrap();
        let place = Place::of(Some(state.path()), "lab").unwrap();
        fs::create_dir(place.path()).unwrap();
        let refused = place.remove(false).unwrap_err().to_string();
        assert!(refused.contains("has no cluster.json"), "{refused}");
        // A damaged plan still shows whose directory it is.
        fs::write(place.path().join(PLAN), "{").unwrap();
        place.plan().unwrap_err();
        place.remove(false).unwrap();
        assert!(!place.path().exists());
    }

    #[test]
    fn directory_without_a_plan_is_removed_by_force_if_it_has_only_a_clusters_files() {
        let state = tempfile::tempdir().unwrap();
        let place = Place::of(Some(state.path()), "lab").unwrap();
        let at = |path: &str| place.path().join(path);
        fs::create_dir_all(at("nodes/lab-worker-1/var")).unwrap();
        for name in FILES.into_iter().filter(|name| *name != PLAN) {
            fs::write(at(name), "x").unwrap();
        }
        place.remove(false).unwrap_err();
        fs::write(at("thesis.txt"), "x").unwrap();
        place.remove(true).unwrap_err();
        assert!(at("thesis.txt").exists() && at("nodes").exists());
        fs::remove_file(at("thesis.txt")).unwrap();
        place.remove(true).unwrap();
        assert!(!place.path().exists());
        // A kubeconfig alone may be anybody's.
        fs::create_dir(place.path()).unwrap();
        fs::write(at("kubeconfig"), "x").unwrap();
        place.remove(true).unwrap_err();
        fs::remove_file(at("kubeconfig")).unwrap();
        place.remove(true).unwrap();
        assert!(!place.path().exists());
    }
}
