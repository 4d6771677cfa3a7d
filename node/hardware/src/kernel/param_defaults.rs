//! Shows the kernel parameters of the image and the machine. The boot has already set them, long before this controller
//! runs.

use std::collections::BTreeMap;
use std::path::PathBuf;

use corten_resources::Draft;
use corten_resources::controller::{Context, Controller, Failure, Output};
use corten_types::kernel::{KernelParamDefaultSpec, KernelParamSpec};

use super::sysctls;

#[derive(Debug, Clone)]
pub(crate) struct ParamDefaults {
    /// `/`, or a test's.
    pub(crate) root: PathBuf,
}

impl Default for ParamDefaults {
    fn default() -> ParamDefaults {
        ParamDefaults { root: "/".into() }
    }
}

impl Controller for ParamDefaults {
    fn name(&self) -> &'static str {
        "runtime.KernelParamDefaultsController"
    }

    fn outputs(&self) -> Vec<Output> {
        vec![Output::exclusive::<KernelParamDefaultSpec>()]
    }

    async fn run(self, context: &mut Context) -> Result<(), Failure> {
        // The last setting of a parameter is in effect.
        let settings = sysctls::read(&self.root).into_iter();
        let last: BTreeMap<_, _> = settings
            .map(|setting| (format!("proc.sys.{}", setting.key), setting))
            .collect();
        for (id, setting) in last {
            let spec = KernelParamSpec {
                value: setting.value,
                ignore_errors: setting.quiet,
            };
            context.put(Draft::new(&id, KernelParamDefaultSpec(spec)))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use corten_resources::controller::Runtime;
    use corten_resources::{AnySpec as _, Store};

    use super::*;

    #[tokio::test]
    async fn sysctl_defaults_of_the_image_are_shown() {
        let root = tempfile::tempdir().unwrap();
        let directory = root.path().join("etc/sysctl.d");
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join("10-a.conf"), "net.a = 1\nnet.b = 1\n").unwrap();
        fs::write(directory.join("20-b.conf"), "-net.a = 2 3\n").unwrap();
        let store = Store::new();
        let mut runtime = Runtime::new(store.clone());
        let defaults = ParamDefaults {
            root: root.path().to_owned(),
        };
        runtime.add(defaults).unwrap();
        runtime.run(|notice| panic!("{notice}")).await;
        let shown = |id: &str| store.get_as::<KernelParamDefaultSpec>(id).unwrap();
        let spec = KernelParamSpec {
            value: "2 3".to_owned(),
            ignore_errors: true,
        };
        assert_eq!(shown("proc.sys.net.a").0, spec);
        assert!(!shown("proc.sys.net.b").0.ignore_errors);
        assert_eq!(shown("proc.sys.kernel.softlockup_panic").0.value, "1");
        let yaml = shown("proc.sys.net.a").to_yaml().unwrap();
        assert!(yaml.contains("2 3\nignoreErrors: true"), "{yaml}");
    }
}
