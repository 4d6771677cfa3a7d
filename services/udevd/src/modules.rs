//! Loads modules through libkmod (crate `kmod`).
//!
//! The crate offers lookup by name or alias, dependencies, options and insertion. It lacks libkmod's probe call, which
//! applies deny-lists and soft dependencies. This module applies both, from [`crate::modprobe_d`].

use crate::modprobe_d::{Policy, normal};
use kmod::{Context, Module};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Directories of modprobe.d(5) files. A file hides files of the same name in later directories.
const DIRECTORIES: [&str; 4] = [
    "/etc/modprobe.d",
    "/run/modprobe.d",
    "/usr/local/lib/modprobe.d",
    "/usr/lib/modprobe.d",
];

/// `EEXIST`, the module is loaded already, and `ENODEV`, the driver found no device. Aliases match more modules than a
/// machine needs.
const HARMLESS: [i32; 2] = [17, 19];

/// Why a module was not loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// libkmod could not be set up.
    #[error("cannot set up libkmod")]
    Setup(#[source] kmod::Error),
    /// The index of aliases could not be searched.
    #[error("cannot look up {alias}")]
    Lookup {
        /// The alias.
        alias: String,
        /// libkmod's reason.
        source: kmod::Error,
    },
    /// There is no such module.
    #[error("there is no module {0}")]
    Unknown(String),
    /// A file of modprobe.d(5) or the kernel's command line forbids it.
    #[error("{0} must not be loaded (modprobe.d)")]
    Denied(String),
    /// The kernel refused to insert the module.
    #[error("cannot insert {module}")]
    Insert {
        /// The module.
        module: String,
        /// The kernel's reason.
        source: kmod::Error,
    },
}

/// Loads modules. One per thread, because libkmod's context is not thread-safe.
#[derive(Debug)]
pub struct Loader {
    context: Context,
    policy: Arc<Policy>,
    loaded: PathBuf,
}

/// The module policy of the node's files and the kernel command line.
pub fn policy() -> Policy {
    let mut policy = Policy::default();
    let own = ["modules.softdep", "modules.alias"].map(|name| directory().join(name));
    configuration()
        .into_iter()
        .chain(own)
        .filter_map(|file| fs::read_to_string(file).ok())
        .for_each(|text| policy.add(&text));
    if let Ok(line) = fs::read_to_string("/proc/cmdline") {
        policy.add_command_line(&line);
    }
    policy
}

/// Directory of the running kernel's modules.
pub fn directory() -> PathBuf {
    let release = rustix::system::uname();
    Path::new("/usr/lib/modules").join(&*release.release().to_string_lossy())
}

impl Loader {
    /// A loader for the running kernel's modules.
    ///
    /// # Errors
    /// [`LoadError::Setup`].
    pub fn new(sys: &Path, policy: Arc<Policy>) -> Result<Self, LoadError> {
        let context = Context::new().map_err(LoadError::Setup)?;
        Ok(Self {
            context,
            policy,
            loaded: sys.join("module"),
        })
    }

    /// Loads the modules for a device like [`Self::load`]. Skips the lookup for an alias that the policy does not know.
    pub fn load_for_device(&self, alias: &str) -> Result<Vec<String>, LoadError> {
        if self.policy.knows(alias) {
            self.load(alias)
        } else {
            Ok(Vec::new())
        }
    }

    /// Loads every module that `alias` stands for and that is not denied, each after its dependencies. Returns the
    /// names of newly loaded modules. An unknown alias is not an error.
    ///
    /// # Errors
    /// The first failure. The remaining modules are tried nevertheless.
    pub fn load(&self, alias: &str) -> Result<Vec<String>, LoadError> {
        let mut run = Run::new(self);
        run.alias(alias, &[]);
        run.result()
    }

    /// Loads a module by name. `parameters` follow those of modprobe.d(5). A loaded module keeps its parameters.
    ///
    /// # Errors
    /// Those of [`Self::load`], and an unknown or denied module.
    pub fn load_named(&self, name: &str, parameters: &[&str]) -> Result<Vec<String>, LoadError> {
        if self.policy.denies(name) {
            return Err(LoadError::Denied(name.to_owned()));
        }
        let mut run = Run::new(self);
        let denied = run.alias(name, parameters);
        if run.seen.is_empty() && run.error.is_none() {
            // An alias may stand for a module of another name.
            match denied {
                Some(module) if !self.present(&module) => return Err(LoadError::Denied(module)),
                None if !self.present(&normal(name)) => {
                    return Err(LoadError::Unknown(name.to_owned()));
                }
                _ => {}
            }
        }
        run.result()
    }

    /// Whether the module is built in or loaded.
    fn present(&self, module: &str) -> bool {
        self.loaded.join(module).exists()
    }
}

/// One call of [`Loader::load`].
struct Run<'a> {
    loader: &'a Loader,
    seen: BTreeSet<String>,
    new: Vec<String>,
    error: Option<LoadError>,
}

impl<'a> Run<'a> {
    fn new(loader: &'a Loader) -> Run<'a> {
        Run {
            loader,
            seen: BTreeSet::new(),
            new: Vec::new(),
            error: None,
        }
    }

    fn result(self) -> Result<Vec<String>, LoadError> {
        match self.error {
            None => Ok(self.new),
            Some(error) => Err(error),
        }
    }

    /// Loads the modules an alias stands for. Returns the first of them that is denied.
    fn alias(&mut self, alias: &str, parameters: &[&str]) -> Option<String> {
        let found = self
            .loader
            .context
            .module_new_from_lookup(OsStr::new(alias));
        let modules = match found {
            Ok(modules) => modules,
            Err(source) => {
                self.fail(LoadError::Lookup {
                    alias: alias.to_owned(),
                    source,
                });
                return None;
            }
        };
        let mut denied = None;
        for module in modules {
            let name = normal(&module.name().to_string_lossy());
            if self.loader.policy.denies(&name) {
                denied.get_or_insert(name);
            } else {
                self.module(&module, parameters);
            }
        }
        denied
    }

    /// Loads a module after its dependencies. Each module is visited once, so cycles end.
    fn module(&mut self, module: &Module, parameters: &[&str]) {
        let name = normal(&module.name().to_string_lossy());
        let policy = &self.loader.policy;
        // A module without a file is built in.
        let wanted = module.path().is_some() && !policy.denies(&name);
        if !self.seen.insert(name.clone()) || !wanted || self.loader.present(&name) {
            return;
        }
        let soft = policy.soft(&name).cloned().unwrap_or_default();
        soft.pre.iter().for_each(|name| drop(self.alias(name, &[])));
        module
            .dependencies()
            .for_each(|needed| self.module(&needed, &[]));
        let options = module.options().map(|o| o.to_string_lossy().into_owned());
        let options: Vec<&str> = options
            .as_deref()
            .into_iter()
            .chain(parameters.iter().copied())
            .collect();
        match module.insert_module(0, &options) {
            Ok(()) => self.new.push(name),
            Err(kmod::Error::InsertModule(errno)) if HARMLESS.contains(&errno.0) => {}
            Err(source) => self.fail(LoadError::Insert {
                module: name,
                source,
            }),
        }
        soft.post
            .iter()
            .for_each(|name| drop(self.alias(name, &[])));
    }

    fn fail(&mut self, error: LoadError) {
        self.error.get_or_insert(error);
    }
}

/// The files of [`DIRECTORIES`], sorted by name.
fn configuration() -> Vec<PathBuf> {
    let mut files = std::collections::BTreeMap::new();
    for directory in DIRECTORIES {
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            let path = entry.path();
            if path
                .extension()
                .is_some_and(|extension| extension == "conf")
            {
                files.entry(entry.file_name()).or_insert(path);
            }
        }
    }
    files.into_values().collect()
}
