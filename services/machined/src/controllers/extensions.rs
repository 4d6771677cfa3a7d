//! The system extensions of the root file system, listed once: they do not change while a node runs.

use std::path::PathBuf;

use corten_extension::layers;
use corten_resources::Draft;
use corten_resources::controller::{Context, Controller, Failure, Input, Output};

use crate::console;
use crate::resources::runtime::ExtensionStatus;

#[derive(Debug, Clone)]
pub(super) struct Extensions {
    /// `/`, except in tests.
    root: PathBuf,
}

impl Default for Extensions {
    fn default() -> Extensions {
        Extensions { root: "/".into() }
    }
}

impl Controller for Extensions {
    fn name(&self) -> &'static str {
        "runtime.ExtensionStatusController"
    }

    fn inputs(&self) -> Vec<Input> {
        vec![]
    }

    fn outputs(&self) -> Vec<Output> {
        vec![Output::exclusive::<ExtensionStatus>()]
    }

    async fn run(self, context: &mut Context) -> Result<(), Failure> {
        let (layers, problems) = layers::list(&self.root)
            .map_err(|error| format!("cannot list {}: {error}", layers::DIRECTORY))?;
        for problem in problems {
            console::warn(&format!("an extension is not listed: {problem}"));
        }
        for (place, layer) in layers.into_iter().enumerate() {
            let status = ExtensionStatus {
                image: layer.image,
                metadata: layer.manifest.metadata,
            };
            context.put(Draft::new(&place.to_string(), status))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use corten_resources::Store;
    use corten_resources::controller::Runtime;

    use super::*;

    #[test]
    fn extensions_are_for_the_release_clients_see() {
        let release = corten_extension::manifest::release();
        assert_eq!(format!("v{release}"), corten_api::COMPATIBLE_WITH);
    }

    #[tokio::test]
    async fn extensions_are_numbered_from_the_lowest() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join(layers::DIRECTORY)).unwrap();
        for (image, name) in [("00-a.squashfs", "a"), ("01-b.squashfs", "b")] {
            let text = format!("version: v1alpha1\nmetadata: {{name: {name}, version: v2}}\n");
            fs::write(root.path().join(layers::manifest_path(image)), text).unwrap();
        }
        let store = Store::new();
        let mut runtime = Runtime::new(store.clone());
        let root = root.path().to_owned();
        runtime.add(Extensions { root }).unwrap();
        runtime.run(|notice| panic!("{notice}")).await;
        let second = store.get_as::<ExtensionStatus>("1").unwrap();
        assert_eq!(second.image, "01-b.squashfs");
        assert_eq!(second.metadata.name, "b");
        assert!(store.get_as::<ExtensionStatus>("2").is_none());
    }
}
