//! Shows the environment variables of services.

use corten_config::Document;
use corten_resources::Draft;
use corten_resources::controller::{Context, Controller, Dependency, Failure, Input, Output};
use corten_supervisor::environment::variables;
use corten_types::environment::Environment;
use corten_types::runtime::KernelCmdline;
use tokio::sync::watch;

use super::next_wishes;

#[derive(Debug, Clone)]
pub(super) struct Environments {
    pub(super) config: watch::Receiver<Option<Document>>,
}

impl Controller for Environments {
    fn name(&self) -> &'static str {
        "runtime.EnvironmentController"
    }

    fn inputs(&self) -> Vec<Input> {
        vec![Input::of::<KernelCmdline>(Dependency::Weak).with_id(KernelCmdline::ID)]
    }

    fn outputs(&self) -> Vec<Output> {
        vec![Output::exclusive::<Environment>()]
    }

    async fn run(mut self, context: &mut Context) -> Result<(), Failure> {
        loop {
            let (config, line) = next_wishes(&mut self.config, context).await?;
            let environment = Environment::of(&variables(config.as_ref(), &line));
            context.put(Draft::new(Environment::ID, environment))?;
        }
    }
}

#[cfg(test)]
mod tests {
    use corten_base::sample;
    use corten_resources::controller::Runtime;
    use corten_resources::{AnySpec as _, Sensitivity, Spec, Store};

    use super::*;

    #[tokio::test]
    async fn service_environment_follows_the_config() {
        let store = Store::new();
        let cmdline = KernelCmdline {
            cmdline: "talos.environment=B=2".to_owned(),
        };
        let config = watch::Sender::new(None);
        let mut runtime = Runtime::new(store.clone());
        let environments = Environments {
            config: config.subscribe(),
        };
        runtime.add(environments).unwrap();
        store
            .put(Draft::new(KernelCmdline::ID, cmdline), "")
            .unwrap();
        tokio::spawn(runtime.run(|notice| panic!("{notice}")));
        let shows = async |wanted: &[&str]| {
            sample::until::<Environment>(&store, Environment::ID, |shown| {
                shown.is_some_and(|shown| shown.variables == wanted)
            })
            .await
        };
        let path = "PATH=/usr/bin:/opt/cni/bin";
        shows(&["B=2", path]).await;
        config.send_replace(Some(sample::config("env: {A: x y}", "")));
        let shown = shows(&["A=x y", "B=2", path]).await.unwrap();
        let yaml = shown.to_yaml().unwrap();
        assert_eq!(yaml, format!("variables:\n- A=x y\n- B=2\n- {path}\n"));
        assert_eq!(shown.message().variables, shown.variables);
        // It may contain a proxy's password.
        assert_eq!(Environment::DEFINITION.sensitivity, Sensitivity::Sensitive);
    }
}
