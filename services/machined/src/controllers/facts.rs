//! What does not change while a node runs, read once.

use std::fs;
use std::path::{Path, PathBuf};

use corten_resources::Draft;
use corten_resources::controller::{Context, Controller, Failure, Input, Output};

use crate::resources::runtime::{BootId, KernelCmdline, SystemInformation, Version};

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

    fn inputs(&self) -> Vec<Input> {
        vec![]
    }

    fn outputs(&self) -> Vec<Output> {
        vec![
            Output::exclusive::<BootId>(),
            Output::exclusive::<KernelCmdline>(),
            Output::exclusive::<SystemInformation>(),
            Output::exclusive::<Version>(),
        ]
    }

    async fn run(self, context: &mut Context) -> Result<(), Failure> {
        let version = Version {
            version: corten_api::version_tag(),
            name: "Corten".to_owned(),
        };
        context.put(Draft::new("version", version))?;
        let boot_id = read(&self.root, "proc/sys/kernel/random/boot_id")?;
        context.put(Draft::new("boot-id", BootId { boot_id }))?;
        let cmdline = read(&self.root, "proc/cmdline")?;
        context.put(Draft::new("cmdline", KernelCmdline { cmdline }))?;
        // Virtual machines and boards without SMBIOS have none of it.
        let dmi = |name: &str| read(&self.root.join("sys/class/dmi/id"), name).unwrap_or_default();
        let information = SystemInformation {
            manufacturer: dmi("sys_vendor"),
            product_name: dmi("product_name"),
            version: dmi("product_version"),
            bios_version: dmi("bios_version"),
            serialnumber: dmi("product_serial"),
            uuid: dmi("product_uuid"),
            sku_number: dmi("product_sku"),
        };
        context.put(Draft::new("systeminformation", information))?;
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

    #[tokio::test]
    async fn what_the_machine_does_not_say_is_empty() {
        let root = tempfile::tempdir().unwrap();
        for (name, text) in [
            ("proc/sys/kernel/random/boot_id", "b-1\n"),
            ("proc/cmdline", "quiet console=ttyS0\n"),
            ("sys/class/dmi/id/sys_vendor", "QEMU\n"),
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
        let cmdline = store.get_as::<KernelCmdline>("cmdline").unwrap();
        assert_eq!(cmdline.cmdline, "quiet console=ttyS0");
        let information = store.get_as::<SystemInformation>("systeminformation");
        let information = information.unwrap();
        assert_eq!(information.manufacturer, "QEMU");
        assert_eq!(information.serialnumber, "");
    }
}
