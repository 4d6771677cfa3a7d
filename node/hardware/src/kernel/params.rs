//! Sets kernel parameters, and restores their previous values when they are dropped.

use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;

use corten_base::console;
use corten_base::mode::{Ability, Mode};
use corten_resources::Draft;
use corten_resources::controller::{Context, Controller, Dependency, Failure, Input, Output};
use corten_sys::sysctl;
use corten_types::kernel::{KernelParamSpec, KernelParamStatus};

#[derive(Debug, Clone)]
pub(crate) struct Params {
    /// `/`, or a test's.
    pub(crate) root: PathBuf,
}

impl Default for Params {
    fn default() -> Params {
        Params { root: "/".into() }
    }
}

impl Controller for Params {
    fn name(&self) -> &'static str {
        "runtime.KernelParamController"
    }

    fn inputs(&self) -> Vec<Input> {
        vec![Input::of::<KernelParamSpec>(Dependency::Weak)]
    }

    fn outputs(&self) -> Vec<Output> {
        vec![Output::exclusive::<KernelParamStatus>()]
    }

    async fn run(self, context: &mut Context) -> Result<(), Failure> {
        loop {
            context.event().await;
            let specs = context.list::<KernelParamSpec>()?;
            let known = context.list::<KernelParamStatus>()?;
            let wanted: BTreeSet<&str> = specs.iter().map(|spec| spec.id()).collect();
            for status in known.iter().filter(|status| !wanted.contains(status.id())) {
                if !status.unsupported {
                    self.restore(status.id(), &status.default);
                }
            }
            context.start_outputs();
            for spec in &specs {
                let before = known.iter().find(|status| status.id() == spec.id());
                let default = before.map(|status| status.default.clone());
                let status = self.set(spec.id(), spec, default);
                context.put(Draft::new(spec.id(), status))?;
            }
            context.remove_others::<KernelParamStatus>()?;
        }
    }
}

impl Params {
    fn set(&self, id: &str, spec: &KernelParamSpec, default: Option<String>) -> KernelParamStatus {
        let (base, key) = self.place(id);
        let default = default.or_else(|| sysctl::read(&base, key).ok());
        let written = set_by(Mode::now(), id, || sysctl::write(&base, key, &spec.value));
        if let Err(error) = &written
            && !(spec.ignore_errors && error.kind() == io::ErrorKind::NotFound)
        {
            console::warn(&format!(
                "cannot set {id} to {}: {error}; correct machine.sysctls or machine.sysfs",
                spec.value
            ));
        }
        KernelParamStatus {
            // Some parameters are write-only.
            current: sysctl::read(&base, key).unwrap_or_default(),
            default: default.unwrap_or_default(),
            unsupported: written.is_err(),
        }
    }

    fn restore(&self, id: &str, default: &str) {
        let (base, key) = self.place(id);
        if let Err(error) = sysctl::write(&base, key, default) {
            console::warn(&format!("{id} cannot be set back to {default:?}: {error}"));
        }
    }

    /// Directory and name of an id's parameter.
    fn place<'a>(&self, id: &'a str) -> (PathBuf, &'a str) {
        match id.strip_prefix("proc.sys.") {
            Some(key) => (self.root.join("proc/sys"), key),
            None => (self.root.join("sys"), id.strip_prefix("sys.").unwrap_or(id)),
        }
    }
}

/// Writes a parameter, unless another owner must set it.
fn set_by(mode: Mode, id: &str, write: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
    match mode.check(Ability::Sysctls) {
        // A parameter in /sys is no sysctl, and belongs to no namespace.
        Err(why) if !mode.sets(id.strip_prefix("proc.sys.").unwrap_or_default()) => {
            Err(io::Error::new(io::ErrorKind::PermissionDenied, why))
        }
        _ => write(),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use corten_base::sample::until;
    use corten_resources::controller::Runtime;
    use corten_resources::{Pointer, Store};

    use super::*;

    const ID: &str = "proc.sys.vm.swappiness";

    fn want(store: &Store, id: &str, value: &str) {
        let spec = KernelParamSpec {
            value: value.to_owned(),
            ignore_errors: false,
        };
        store.put(Draft::new(id, spec), "").unwrap();
    }

    fn value(root: &Path) -> String {
        fs::read_to_string(root.join("proc/sys/vm/swappiness")).unwrap()
    }

    #[tokio::test]
    async fn a_parameter_is_set_changed_and_set_back() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("proc/sys/vm")).unwrap();
        fs::create_dir_all(root.path().join("sys/module/x")).unwrap();
        fs::write(root.path().join("proc/sys/vm/swappiness"), "60\n").unwrap();
        let store = Store::new();
        let mut runtime = Runtime::new(store.clone());
        runtime
            .add(Params {
                root: root.path().to_owned(),
            })
            .unwrap();
        let _running = tokio::spawn(runtime.run(|notice| panic!("{notice}")));
        for wanted in ["10", "20"] {
            want(&store, ID, wanted);
            until::<KernelParamStatus>(&store, ID, |status| {
                status.is_some_and(|status| {
                    status.current == wanted && status.default == "60" && !status.unsupported
                })
            })
            .await;
        }
        want(&store, "proc.sys.no.such", "1");
        until::<KernelParamStatus>(&store, "proc.sys.no.such", |status| {
            status.is_some_and(|status| status.unsupported)
        })
        .await;
        want(&store, "sys.module.x.option", "Y");
        let id = "sys.module.x.option";
        until::<KernelParamStatus>(&store, id, |status| status.is_some()).await;
        assert!(root.path().join("sys/module/x/option").exists());
        store
            .destroy(&Pointer::of::<KernelParamSpec>(ID), "")
            .unwrap();
        until::<KernelParamStatus>(&store, ID, |status| status.is_none()).await;
        assert_eq!(value(root.path()), "60\n");
    }
}
