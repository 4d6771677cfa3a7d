//! Shows the kernel's modules: built-in ones (`modules.builtin`, Documentation/kbuild/kbuild.rst) and loaded ones
//! (`/proc/modules`, proc(5)).

use std::fs;
use std::path::{Path, PathBuf};

use corten_base::sysfs;
use corten_resources::Draft;
use corten_resources::controller::{Context, Controller, Failure, Output};
use corten_types::kernel::{KernelModuleStatus, LoadedKernelModule};
use tokio::sync::watch;

use crate::uevents::Told;

#[derive(Debug, Clone)]
pub(crate) struct ModuleStatuses {
    /// `/`, except in tests.
    pub(crate) root: PathBuf,
    /// Signals that modules were loaded or unloaded.
    pub(crate) changes: watch::Receiver<Told>,
}

impl Controller for ModuleStatuses {
    fn name(&self) -> &'static str {
        "runtime.KernelModuleStatusController"
    }

    fn outputs(&self) -> Vec<Output> {
        vec![
            Output::exclusive::<KernelModuleStatus>(),
            Output::exclusive::<LoadedKernelModule>(),
        ]
    }

    async fn run(mut self, context: &mut Context) -> Result<(), Failure> {
        context.event().await;
        let built_in = built_in(&self.root);
        loop {
            self.changes.mark_unchanged();
            context.start_outputs();
            for name in &built_in {
                let status = KernelModuleStatus {
                    kind: "built-in",
                    module: LoadedKernelModule {
                        state: "built-in",
                        ..LoadedKernelModule::default()
                    },
                };
                context.put(Draft::new(name, status))?;
            }
            let loaded = sysfs::read(&self.root.join("proc/modules"));
            for (name, module) in loaded.lines().filter_map(loaded_module) {
                let status = KernelModuleStatus {
                    kind: "dynamic",
                    module: LoadedKernelModule {
                        state: status(module.state),
                        ..module.clone()
                    },
                };
                context.put(Draft::new(name, status))?;
                context.put(Draft::new(name, module))?;
            }
            context.remove_others::<KernelModuleStatus>()?;
            context.remove_others::<LoadedKernelModule>()?;
            if self.changes.changed().await.is_err() {
                return Ok(());
            }
        }
    }
}

/// Names of built-in modules, from the list of the running kernel's module directory; empty without the list.
fn built_in(root: &Path) -> Vec<String> {
    let release = sysfs::read(&root.join("proc/sys/kernel/osrelease"));
    let list = root.join("usr/lib/modules").join(release);
    let list = fs::read_to_string(list.join("modules.builtin")).unwrap_or_default();
    list.lines()
        .filter_map(|path| path.rsplit('/').next()?.strip_suffix(".ko"))
        .filter(|name| !name.is_empty())
        .map(|name| name.replace('-', "_"))
        .collect()
}

/// Parses `name size uses users state address`; each user ends in a comma, and `-` means none.
fn loaded_module(line: &str) -> Option<(&str, LoadedKernelModule)> {
    let mut fields = line.split(' ');
    let (name, size, uses) = (fields.next()?, fields.next()?, fields.next()?);
    let (users, state, address) = (fields.next()?, fields.next()?, fields.next()?);
    let users = users.split(',').filter(|user| !matches!(*user, "" | "-"));
    let module = LoadedKernelModule {
        size: size.parse().ok()?,
        // A kernel that cannot unload modules reports no count.
        reference_count: uses.parse().unwrap_or_default(),
        dependencies: users.map(str::to_owned).collect(),
        state: ["Live", "Loading", "Unloading"]
            .into_iter()
            .find(|known| *known == state)?,
        address: address.to_owned(),
    };
    (!name.is_empty()).then_some((name, module))
}

fn status(state: &str) -> &'static str {
    match state {
        "Loading" => "loading",
        "Unloading" => "unloading",
        _ => "live",
    }
}

#[cfg(test)]
mod tests {
    use corten_base::sample::until;
    use corten_resources::Store;
    use corten_resources::controller::Runtime;

    use super::*;

    #[tokio::test]
    async fn modules_are_built_in_loaded_and_removed() {
        let root = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = root.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("proc/sys/kernel/osrelease", "6.12.1\n");
        write(
            "usr/lib/modules/6.12.1/modules.builtin",
            "kernel/fs/ext4/ext4.ko\nkernel/arch/x86/crypto/aes-x86_64.ko\n\nnonsense\n.ko\n",
        );
        let nbd = "nbd 65536 2 - Live 0x0000000000000000\n";
        write(
            "proc/modules",
            &format!(
                "virtio_net 90112 1 a,b, Loading 0x0000000000000000 (E)\n{nbd}\
                 x 1\n x y z a b c\nz -1 0 - Live 0x0\nz 1 0 - Gone 0x0\n"
            ),
        );
        let store = Store::new();
        let mut runtime = Runtime::new(store.clone());
        let changes = watch::Sender::new(Told::default());
        let statuses = ModuleStatuses {
            root: root.path().to_owned(),
            changes: changes.subscribe(),
        };
        runtime.add(statuses).unwrap();
        tokio::spawn(runtime.run(|notice| panic!("{notice}")));
        until::<KernelModuleStatus>(&store, "nbd", |module| module.is_some()).await;
        let loading = store.get_as::<KernelModuleStatus>("virtio_net").unwrap();
        assert_eq!((loading.kind, loading.module.state), ("dynamic", "loading"));
        assert_eq!(loading.module.dependencies, ["a", "b"]);
        let yaml = loading.resource().spec().to_yaml().unwrap();
        let fields = yaml.lines().filter_map(|line| line.split_once(':'));
        let fields: Vec<&str> = fields.map(|(field, _)| field).collect();
        let expected = "type size referenceCount dependencies state address";
        assert_eq!(fields.join(" "), expected, "{yaml}");
        let nbd = store.get_as::<LoadedKernelModule>("nbd").unwrap();
        assert_eq!(
            (nbd.size, nbd.reference_count, nbd.state),
            (65536, 2, "Live")
        );
        let ext4 = store.get_as::<KernelModuleStatus>("ext4").unwrap();
        assert_eq!((ext4.kind, ext4.module.state), ("built-in", "built-in"));
        for (name, is) in [
            ("aes_x86_64", true),
            ("nonsense", false),
            ("x", false),
            ("z", false),
        ] {
            let module = store.get_as::<KernelModuleStatus>(name);
            assert_eq!(module.is_some(), is, "{name}");
        }
        assert!(store.get_as::<LoadedKernelModule>("ext4").is_none());
        write("proc/modules", "");
        changes.send_replace(Told::default());
        until::<KernelModuleStatus>(&store, "nbd", |module| module.is_none()).await;
        until::<KernelModuleStatus>(&store, "ext4", |module| module.is_some()).await;
    }
}
