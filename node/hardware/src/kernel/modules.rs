//! Loads the kernel modules of the config, and the one that Kubernetes needs and nothing requests.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use corten_base::console;
use corten_config::Document;
use corten_resources::Draft;
use corten_resources::controller::{Context, Controller, Dependency, Failure, Input, Output};
use corten_supervisor::Argument;
use corten_supervisor::supervisor::Supervisor;
use corten_types::kernel::KernelModuleSpec;
use tokio::sync::watch;

/// Filters packets between the pods of a node. Without it, the answer of a Service's pod to a pod of the same node keeps
/// the pod's address instead of the Service's.
const BRIDGE_FILTER: &str = "br_netfilter";

/// Shows the modules to load.
#[derive(Debug, Clone)]
pub(crate) struct ModuleConfig {
    pub(crate) config: watch::Receiver<Option<Document>>,
}

impl Controller for ModuleConfig {
    fn name(&self) -> &'static str {
        "runtime.KernelModuleConfigController"
    }

    fn outputs(&self) -> Vec<Output> {
        vec![Output::exclusive::<KernelModuleSpec>()]
    }

    async fn run(mut self, context: &mut Context) -> Result<(), Failure> {
        context.event().await;
        loop {
            let config = self.config.borrow_and_update().clone();
            let modules = config.iter().flat_map(wanted);
            context.start_outputs();
            for (name, parameters) in modules {
                let spec = KernelModuleSpec {
                    name: name.to_owned(),
                    parameters: parameters.into_iter().map(str::to_owned).collect(),
                };
                context.put(Draft::new(name, spec))?;
            }
            context.remove_others::<KernelModuleSpec>()?;
            if self.config.changed().await.is_err() {
                return Ok(());
            }
        }
    }
}

/// The modules of a config, with their parameters.
fn wanted(config: &Document) -> BTreeMap<&str, Vec<&str>> {
    let mut modules = config.kernel_modules();
    if !config.kubernetes_cas().is_empty() {
        modules.entry(BRIDGE_FILTER).or_default();
    }
    modules
}

/// Loads modules. machined has the privilege but not libkmod, so a tool does it.
pub(crate) trait Load: Clone + Send + Sync + 'static {
    /// Loads a module with its dependencies; does nothing if it is loaded.
    fn load(&self, module: &KernelModuleSpec) -> impl Future<Output = Result<(), String>> + Send;
}

impl Load for Option<Supervisor> {
    async fn load(&self, module: &KernelModuleSpec) -> Result<(), String> {
        let Some(supervisor) = self else {
            return Err("there is no supervisor to load modules".to_owned());
        };
        let mut words = vec!["modprobe", "--", module.name.as_str()];
        words.extend(module.parameters.iter().map(String::as_str));
        let words = words.into_iter().map(Argument::word);
        supervisor.run("udevd", words.collect()).await
    }
}

/// Loads the modules of the config. A dropped module stays until the next boot, because it may be in use.
#[derive(Debug, Clone)]
pub(crate) struct Modules<L> {
    pub(crate) loader: L,
    /// `/sys/module`, or a test's.
    pub(crate) sys_module: PathBuf,
}

impl<L: Load> Controller for Modules<L> {
    fn name(&self) -> &'static str {
        "runtime.KernelModuleSpecController"
    }

    fn inputs(&self) -> Vec<Input> {
        vec![Input::of::<KernelModuleSpec>(Dependency::Weak)]
    }

    fn outputs(&self) -> Vec<Output> {
        vec![]
    }

    async fn run(self, context: &mut Context) -> Result<(), Failure> {
        // A module that failed to load is retried only when its spec changes.
        let mut tried: BTreeMap<String, KernelModuleSpec> = BTreeMap::new();
        loop {
            context.event().await;
            let specs = context.list::<KernelModuleSpec>()?;
            tried.retain(|name, _| specs.iter().any(|spec| spec.id() == name));
            for spec in &specs {
                if tried.get(spec.id()) == Some(&**spec) {
                    continue;
                }
                if let Err(reason) = self.want(spec).await {
                    console::warn(&format!("kernel module {}: {reason}", spec.name));
                }
                tried.insert(spec.id().to_owned(), (**spec).clone());
            }
        }
    }
}

impl<L: Load> Modules<L> {
    async fn want(&self, module: &KernelModuleSpec) -> Result<(), String> {
        // The kernel uses underscores only.
        let directory = self.sys_module.join(module.name.replace('-', "_"));
        if directory.exists() {
            return self.change(module, &directory.join("parameters"));
        }
        self.loader.load(module).await?;
        console::say(&format!("kernel module {} is loaded", module.name));
        Ok(())
    }

    /// Sets the writable parameters of a module that is already loaded, for instance as the driver of a device.
    fn change(&self, module: &KernelModuleSpec, parameters: &Path) -> Result<(), String> {
        let refused: Vec<&str> = module
            .parameters
            .iter()
            .map(|parameter| parameter.split_once('=').unwrap_or((parameter, "1")))
            .filter(|(name, value)| {
                let is = fs::read_to_string(parameters.join(name)).unwrap_or_default();
                !is_same(is.trim_end(), value) && fs::write(parameters.join(name), value).is_err()
            })
            .map(|(name, _)| name)
            .collect();
        if refused.is_empty() {
            return Ok(());
        }
        let names = refused.join(", ");
        Err(format!(
            "it was loaded before the config was read, and {names} cannot be changed any more; set it on the kernel's \
             command line as {}.PARAMETER=VALUE",
            module.name
        ))
    }
}

/// Whether a parameter has the value. The kernel shows booleans as `Y` and `N`, regardless of how they were written.
fn is_same(is: &str, wanted: &str) -> bool {
    let boolean = |text| match text {
        "1" | "y" | "Y" => Some(true),
        "0" | "n" | "N" => Some(false),
        _ => None,
    };
    is == wanted || boolean(is).is_some() && boolean(is) == boolean(wanted)
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use corten_base::sample;
    use corten_resources::controller::Runtime;
    use corten_resources::{Pointer, Store};
    use tokio::sync::mpsc;

    use super::*;

    /// Records calls; there is no module `none`.
    #[derive(Clone)]
    struct Fake(mpsc::UnboundedSender<(String, Vec<String>)>);

    impl Load for Fake {
        async fn load(&self, module: &KernelModuleSpec) -> Result<(), String> {
            let asked = (module.name.clone(), module.parameters.clone());
            self.0.send(asked).unwrap();
            let known = module.name != "none";
            known
                .then_some(())
                .ok_or_else(|| "there is none".to_owned())
        }
    }

    fn spec(name: &str, parameters: &[&str]) -> KernelModuleSpec {
        KernelModuleSpec {
            name: name.to_owned(),
            parameters: parameters.iter().map(|&text| text.to_owned()).collect(),
        }
    }

    #[test]
    fn node_of_a_cluster_filters_packets_between_its_pods() {
        let own = "kernel: {modules: [{name: nbd, parameters: [nbds_max=4]}]}";
        let alone = sample::config(own, "");
        let nbd = ("nbd", vec!["nbds_max=4"]);
        assert_eq!(wanted(&alone), BTreeMap::from([nbd.clone()]));
        let crt =
            "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCkFBQUEKLS0tLS1FTkQgQ0VSVElGSUNBVEUtLS0tLQo=";
        let member = sample::config(own, &format!("  ca: {{crt: {crt}}}\n"));
        let filter = (BRIDGE_FILTER, vec![]);
        assert_eq!(wanted(&member), BTreeMap::from([nbd, filter]));
    }

    #[tokio::test]
    async fn each_module_is_loaded_once_even_after_a_missing_module() {
        let (asked, mut was_asked) = mpsc::unbounded_channel();
        let store = Store::new();
        let mut runtime = Runtime::new(store.clone());
        let modules = Modules {
            loader: Fake(asked),
            sys_module: "/nonexistent".into(),
        };
        runtime.add(modules).unwrap();
        let _running = tokio::spawn(runtime.run(|notice| panic!("{notice}")));
        let want = |spec: KernelModuleSpec| {
            store.put(Draft::new(&spec.name.clone(), spec), "").unwrap();
        };
        want(spec("none", &[]));
        assert_eq!(was_asked.recv().await.unwrap().0, "none");
        want(spec("nbd", &["nbds_max=4", "max_part=2"]));
        let expected = (
            "nbd".to_owned(),
            spec("", &["nbds_max=4", "max_part=2"]).parameters,
        );
        assert_eq!(was_asked.recv().await, Some(expected));
        // Neither is loaded again when another one is added, but a changed one is.
        want(spec("zram", &[]));
        assert_eq!(was_asked.recv().await.unwrap().0, "zram");
        want(spec("none", &["now=1"]));
        assert_eq!(was_asked.recv().await.unwrap().0, "none");
        store
            .destroy(&Pointer::of::<KernelModuleSpec>("nbd"), "")
            .unwrap();
        want(spec("loop", &[]));
        assert_eq!(was_asked.recv().await.unwrap().0, "loop");
    }

    #[tokio::test]
    async fn loaded_module_gets_its_writable_parameters() {
        let sys = tempfile::tempdir().unwrap();
        let parameters = sys.path().join("a_b/parameters");
        fs::create_dir_all(&parameters).unwrap();
        fs::write(parameters.join("open"), "0\n").unwrap();
        fs::create_dir(parameters.join("closed")).unwrap();
        let asked = Arc::new(Mutex::new(Vec::<String>::new()));
        #[derive(Clone)]
        struct Never(Arc<Mutex<Vec<String>>>);
        impl Load for Never {
            async fn load(&self, module: &KernelModuleSpec) -> Result<(), String> {
                self.0.lock().unwrap().push(module.name.clone());
                Ok(())
            }
        }
        let modules = Modules {
            loader: Never(asked.clone()),
            sys_module: sys.path().to_owned(),
        };
        let written = |name: &str| fs::read_to_string(Path::new(&parameters).join(name)).unwrap();
        modules.want(&spec("a-b", &["open=7"])).await.unwrap();
        assert_eq!(written("open"), "7");
        let error = modules
            .want(&spec("a-b", &["closed=1", "open=8"]))
            .await
            .unwrap_err();
        assert!(error.contains("and closed cannot be changed"), "{error}");
        assert_eq!(written("open"), "8");
        // A parameter that has the value, in any spelling, is not written.
        fs::write(parameters.join("flag"), "Y\n").unwrap();
        modules.want(&spec("a-b", &["flag=1"])).await.unwrap();
        assert_eq!(written("flag"), "Y\n");
        modules.want(&spec("a-b", &["flag=n"])).await.unwrap();
        assert_eq!(written("flag"), "n");
        assert!(asked.lock().unwrap().is_empty());
    }
}
