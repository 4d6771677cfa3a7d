//! What services are told of the world.

use std::collections::BTreeMap;

use corten_api::talos::resource::definitions::runtime as wire;
use corten_resources::{Definition, Sensitivity, Spec};
use serde::Serialize;

use super::{column, open};

/// Values by name.
pub type Variables = BTreeMap<String, String>;

/// What every service has in its environment, and all it has.
pub const ENVIRONMENT: [(&str, &str); 1] = [("PATH", "/usr/bin:/opt/cni/bin")];

const NAMESPACE: &str = "runtime";

/// The variables of containerd and of extensions' services; id [`Environment::ID`]. A proxy's password may be
/// among them, so that it takes an administrator to read them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Environment {
    /// `NAME=value`, sorted.
    pub variables: Vec<String>,
}

impl Environment {
    /// There is one.
    pub const ID: &str = "machined";

    /// With those that every service has.
    #[must_use]
    pub fn of(variables: &Variables) -> Environment {
        let given = variables.iter();
        let given = given.map(|(name, value)| (name.as_str(), value.as_str()));
        let all = given.chain(ENVIRONMENT);
        let mut variables: Vec<String> =
            all.map(|(name, value)| format!("{name}={value}")).collect();
        variables.sort();
        Environment { variables }
    }
}

impl Spec for Environment {
    const DEFINITION: Definition = Definition {
        sensitivity: Sensitivity::Sensitive,
        ..open(
            "Environments.runtime.talos.dev",
            NAMESPACE,
            &["env"],
            &[column("Variables", ".variables")],
        )
    };

    type Message = wire::EnvironmentSpec;

    fn message(&self) -> wire::EnvironmentSpec {
        wire::EnvironmentSpec {
            variables: self.variables.clone(),
        }
    }
}
