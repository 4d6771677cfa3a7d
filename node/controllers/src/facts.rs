//! Shows constants of a boot, read once.

use std::fs;
use std::path::{Path, PathBuf};

use corten_api::parameters;
use corten_base::os_release;
use corten_resources::Draft;
use corten_resources::controller::{Context, Controller, Failure, Output};
use corten_types::runtime::{BootId, KernelCmdline, Version};

#[derive(Debug, Clone)]
pub(super) struct Facts {
    /// `/`, except in tests.
    root: PathBuf,
}

impl Default for Facts {
    fn default() -> Facts {
        Facts { root: "/".into() }
    }
}

impl Controller for Facts {
    fn name(&self) -> &'static str {
        "runtime.FactsController"
    }

    fn outputs(&self) -> Vec<Output> {
        vec![
            Output::exclusive::<BootId>(),
            Output::exclusive::<KernelCmdline>(),
            Output::exclusive::<Version>(),
        ]
    }

    async fn run(self, context: &mut Context) -> Result<(), Failure> {
        let version = Version {
            version: corten_api::version_tag(&os_release::image_version()),
            name: "Corten".to_owned(),
        };
        context.put(Draft::new("version", version))?;
        let boot_id = read(&self.root, "proc/sys/kernel/random/boot_id")?;
        context.put(Draft::new("boot-id", BootId { boot_id }))?;
        let cmdline = read(&self.root, "proc/cmdline")?;
        // Every reader may see it, and it may contain a config.
        let cmdline = parameters::hide(&cmdline);
        context.put(Draft::new(KernelCmdline::ID, KernelCmdline { cmdline }))?;
        Ok(())
    }
}

fn read(root: &Path, name: &str) -> Result<String, Failure> {
    let path = root.join(name);
    match fs::read_to_string(&path) {
        Ok(text) => Ok(text.trim().to_owned()),
        Err(error) => Err(format!("cannot read {}: {error}", path.display()).into()),
    }
}

#[cfg(test)]
mod tests {
    use corten_resources::Store;
    use corten_resources::controller::Runtime;

    use super::*;

    async fn shown(cmdline: &str) -> Store {
        let root = tempfile::tempdir().unwrap();
        for (name, text) in [
            ("proc/sys/kernel/random/boot_id", "b-1\n"),
            ("proc/cmdline", cmdline),
        ] {
            let path = root.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let store = Store::new();
        let mut runtime = Runtime::new(store.clone());
        let root = root.path().to_owned();
        runtime.add(Facts { root }).unwrap();
        runtime.run(|notice| panic!("{notice}")).await;
        store
    }

    #[tokio::test]
    async fn kernel_command_line_and_boot_id_are_shown() {
        let store = shown("quiet talos.hostname=n1 console=ttyS0\n").await;
        let cmdline = store.get_as::<KernelCmdline>(KernelCmdline::ID).unwrap();
        assert_eq!(cmdline.cmdline, "quiet talos.hostname=n1 console=ttyS0");
        assert_eq!(store.get_as::<BootId>("boot-id").unwrap().boot_id, "b-1");
    }

    #[tokio::test]
    async fn config_in_the_kernel_parameters_is_not_shown() {
        let store = shown("quiet corten.config.inline=KLUv talos.config.early=KLUv x=1\n").await;
        let cmdline = store.get_as::<KernelCmdline>(KernelCmdline::ID).unwrap();
        let expected = "quiet corten.config.inline=****** talos.config.early=****** x=1";
        assert_eq!(cmdline.cmdline, expected);
    }
}
