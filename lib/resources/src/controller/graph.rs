//! The graph of controllers, with their inputs and outputs.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Write as _};

use super::{Declaration, Dependency, Input, Output, Ownership};

/// The reason why a controller cannot be added.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GraphError {
    /// Another controller has the same name.
    #[error("two controllers have the name {0}")]
    NameTaken(&'static str),
    /// Two controllers write one type, and one of them declares it exclusive.
    #[error(
        "controllers {first} and {second} both write {type_name}, and {exclusive} declares it exclusive"
    )]
    OutputTaken {
        /// The controller added first.
        first: &'static str,
        /// The controller added second.
        second: &'static str,
        /// The one that declares the type exclusive.
        exclusive: &'static str,
        /// Name of the type.
        type_name: &'static str,
    },
    /// The store refuses a type.
    #[error("controller {controller}: {source}")]
    Type {
        /// The controller that declares the type.
        controller: &'static str,
        /// Reason of the refusal.
        source: crate::StoreError,
    },
}

/// The graph of controllers, with their inputs and outputs. Its [`fmt::Display`] form is text for people and golden
/// files.
#[derive(Debug, Clone, Default)]
pub struct Graph {
    controllers: BTreeMap<&'static str, Declaration>,
}

impl Graph {
    pub(super) fn add(&mut self, new: Declaration) -> Result<(), GraphError> {
        if self.controllers.contains_key(new.name) {
            return Err(GraphError::NameTaken(new.name));
        }
        for output in &*new.outputs {
            for other in self.controllers.values() {
                let type_name = output.definition.type_name;
                let theirs = other
                    .outputs
                    .iter()
                    .find(|output| output.definition.type_name == type_name);
                let exclusive = match (theirs.map(|theirs| theirs.ownership), output.ownership) {
                    (Some(Ownership::Exclusive), _) => other.name,
                    (Some(Ownership::Shared), Ownership::Exclusive) => new.name,
                    (Some(Ownership::Shared), Ownership::Shared) | (None, _) => continue,
                };
                return Err(GraphError::OutputTaken {
                    first: other.name,
                    second: new.name,
                    exclusive,
                    type_name,
                });
            }
        }
        self.controllers.insert(new.name, new);
        Ok(())
    }

    /// Name, inputs and outputs of each controller, ordered by name.
    pub fn controllers(&self) -> impl Iterator<Item = (&'static str, &[Input], &[Output])> {
        let all = self.controllers.values();
        all.map(|one| (one.name, &*one.inputs, &*one.outputs))
    }

    /// The graph for Graphviz: boxes are controllers, and arrows follow the data. A dashed arrow is a weak input; a
    /// dotted one waits until a resource can be destroyed.
    #[must_use]
    pub fn dot(&self) -> String {
        let mut text = String::from("digraph controllers {\n  rankdir=LR;\n");
        let mut kinds = BTreeSet::new();
        let mut edges = String::new();
        for controller in self.controllers.values() {
            let name = controller.name;
            let _ = writeln!(text, "  {name:?} [shape=box];");
            for input in &*controller.inputs {
                let kind = input.definition.type_name;
                kinds.insert(kind);
                let style = match input.dependency {
                    Dependency::Strong => "solid",
                    Dependency::Weak => "dashed",
                    Dependency::DestroyReady => "dotted",
                };
                let _ = writeln!(edges, "  {kind:?} -> {name:?} [style={style}];");
            }
            for output in &*controller.outputs {
                let kind = output.definition.type_name;
                kinds.insert(kind);
                let _ = writeln!(edges, "  {name:?} -> {kind:?};");
            }
        }
        for kind in kinds {
            let _ = writeln!(text, "  {kind:?} [shape=ellipse];");
        }
        text + &edges + "}\n"
    }
}

impl fmt::Display for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for controller in self.controllers.values() {
            writeln!(f, "{}", controller.name)?;
            for input in &*controller.inputs {
                writeln!(f, "  reads  {input}")?;
            }
            for output in &*controller.outputs {
                let shared = match output.ownership {
                    Ownership::Exclusive => "",
                    Ownership::Shared => " (shared)",
                };
                let message = if output.has_message {
                    ""
                } else {
                    " (YAML alone)"
                };
                let type_name = output.definition.type_name;
                writeln!(f, "  writes {type_name}{shared}{message}")?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for Input {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.definition.type_name)?;
        if let Some(id) = self.id {
            write!(f, "/{id}")?;
        }
        f.write_str(match self.dependency {
            Dependency::Strong => " (strong)",
            Dependency::Weak => "",
            Dependency::DestroyReady => " (destroy-ready)",
        })
    }
}
