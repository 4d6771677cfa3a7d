//! The layers over the root file system: system extensions, their modules' dependencies, the machine config.
//!
//! An extension is checked by the rules of `lib/extension` and packed again, so owners and dates are the image's. It
//! keeps its manifest, from which a node lists its extensions.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use corten_config::Document;
use corten_extension::archive::{self, Entry, EntryKind, Wanted};
use corten_extension::manifest::{Manifest, Metadata, release};
use corten_extension::{Problem, layers};
use corten_kernel::build;
use corten_rootfs::squashfs::{self, Effort};
use corten_rootfs::tree::{Kind, Node, Tree};
use corten_steps::arch::Arch;
use corten_steps::cache::KeyBuilder;
use corten_steps::error::{Failure, Remedy as _, Result};
use corten_steps::file_name;
use corten_steps::tool::Tool;
use corten_steps::toolchain::Locked;

use crate::profile::{Extension, Profile};

/// Must be raised when a change of the code below changes a layer for the same inputs.
const REVISION: &str = "1";
/// Path in the image of a machine config embedded at build time.
const EMBEDDED_CONFIG: &str = "usr/lib/corten/config.yaml";
/// The config's layer, above all others. `init` knows the name.
const CONFIG_LAYER: &str = "99-config.squashfs";
/// The layer of the modules' dependencies, above the extensions.
const MODULES_LAYER: &str = "90-modules.dep.squashfs";
/// The number of extensions is limited because their layers have the numbers below that layer's.
const MOST_EXTENSIONS: usize = 90;
/// The host's `depmod`, as for the kernel's own modules. The user's PATH may lack its directory.
const DEPMOD: &str = "/sbin/depmod";
/// Modules, in the tree of an extension and of the image.
const MODULES: &str = "usr/lib/modules";

/// Adds the inputs of the layers to a step's key. The kernel is left out: the key of the root file
/// system covers it.
pub fn key(profile: &Profile, mut key: KeyBuilder) -> Result<KeyBuilder> {
    if !profile.extensions.is_empty() || profile.config.is_some() {
        key = key
            .add("layers", REVISION)
            .add("squashfs", Effort::Full.parameters())
            .add("release", release().to_string());
    }
    for (index, extension) in profile.extensions.iter().enumerate() {
        key = key
            .add("layer", index.to_string())
            .add("digest", extension.digest.clone().unwrap_or_default())
            .file(&extension.archive)?;
    }
    if let Some(config) = &profile.config {
        key = key.add("layer", "config").file(config)?;
    }
    Ok(key)
}

/// Refuses a machine config that the node would reject. Such a node would boot without a config and
/// create its volumes before it knows whether to encrypt them.
pub fn check_config(profile: &Profile) -> Result<()> {
    let Some(path) = &profile.config else {
        return Ok(());
    };
    let shown = path.display();
    let bytes = fs::read(path).or_fail(
        format!("cannot read the machine config {shown}"),
        "check the path",
    )?;
    Document::parse(&bytes).map(drop).or_fail(
        format!("the machine config {shown} is not valid"),
        "correct these fields; docs/configuration.md lists all fields",
    )
}

/// Makes layers.
#[derive(Debug)]
pub struct Packer<'a> {
    /// The image's architecture.
    pub arch: Arch,
    /// The step output with mksquashfs.
    pub tools: &'a Locked,
    /// Output of the kernel step.
    pub kernel: &'a Path,
    /// Directory for the layers and their trees.
    pub scratch: &'a Path,
}

impl Packer<'_> {
    /// Every layer of a profile, the lowest first.
    pub fn pack(&self, profile: &Profile) -> Result<Vec<PathBuf>> {
        if profile.extensions.len() > MOST_EXTENSIONS {
            return Err(Failure::new(
                format!("there are more than {MOST_EXTENSIONS} extensions"),
                "combine several extensions into one",
            ));
        }
        let mut packed = Vec::new();
        let mut modules = BTreeMap::new();
        for (index, extension) in profile.extensions.iter().enumerate() {
            let found = self.read(index, extension)?;
            let below = |path: &&String| path.starts_with(MODULES);
            let of_modules = found.files.iter().filter(|(path, _)| below(path));
            modules.extend(of_modules.map(|(path, entry)| (path.clone(), entry.clone())));
            let name = format!("{index:02}-{}.squashfs", found.manifest.metadata.name);
            packed.push(self.layer(&name, Some(&found.manifest), tree(&found.files)?)?);
        }
        if modules
            .values()
            .any(|entry| matches!(entry.kind, EntryKind::File(_)))
        {
            packed.push(self.dependencies(&modules)?);
        }
        if let Some(config) = &profile.config {
            let mut tree = Tree::default();
            place(
                &mut tree,
                EMBEDDED_CONFIG,
                node(Kind::File(config.clone()), 0o600),
            )?;
            packed.push(self.layer(CONFIG_LAYER, None, tree)?);
        }
        Ok(packed)
    }

    fn read(&self, index: usize, extension: &Extension) -> Result<archive::Extension> {
        let scratch = self.scratch.join(format!("extension-{index}"));
        fs::create_dir(&scratch)?;
        let wanted = Wanted {
            architecture: self.arch.names().oci,
            digest: extension.digest.as_deref(),
        };
        let shown = extension.archive.display();
        let refused = |problem: Problem| {
            let Problem {
                place,
                what,
                remedy,
            } = problem;
            Failure::new(format!("the extension {shown}: {place}: {what}"), remedy)
        };
        let found = archive::read(&extension.archive, wanted, &scratch).map_err(refused)?;
        found
            .manifest
            .check_compatible(&release())
            .map_err(refused)?;
        Ok(found)
    }

    /// Packs one layer into the file `name`, with the manifest if there is one.
    fn layer(&self, name: &str, manifest: Option<&Manifest>, mut tree: Tree) -> Result<PathBuf> {
        let work = self.scratch.join(format!("{name}.d"));
        fs::create_dir(&work)?;
        if let Some(manifest) = manifest {
            let file = work.join("manifest.yaml");
            fs::write(&file, manifest.render()?)?;
            place(
                &mut tree,
                &layers::manifest_path(name),
                node(Kind::File(file), 0o644),
            )?;
        }
        let image = self.scratch.join(name);
        squashfs::write(&tree, Effort::Full, self.tools, &work, &image)?;
        Ok(image)
    }

    /// The layer with the module index that depmod makes of the image's and the extensions' modules
    /// together.
    ///
    /// It is made at build time, because the layers are final here. `depmod` would delay every boot, and the image does
    /// not contain it.
    fn dependencies(&self, added: &BTreeMap<String, Entry>) -> Result<PathBuf> {
        let version = fs::read_to_string(self.kernel.join(build::RELEASE))?;
        let version = version.trim();
        let base = self.scratch.join("depmod");
        let merged = base.join("lib/modules").join(version);
        let own = self
            .kernel
            .join(build::MODULES)
            .join("lib/modules")
            .join(version);
        for entry in walkdir::WalkDir::new(&own) {
            let entry = entry.with_context(|| format!("listing {}", own.display()))?;
            let to = merged.join(entry.path().strip_prefix(&own)?);
            if entry.file_type().is_dir() {
                fs::create_dir_all(&to)?;
            } else {
                fs::copy(entry.path(), &to)?;
            }
        }
        lay_over(&merged, version, added)?;
        Tool::new(DEPMOD).arg("-b").arg(&base).arg(version).run()?;
        let mut tree = Tree::default();
        for entry in fs::read_dir(&merged)? {
            let path = entry?.path();
            let name = file_name(&path);
            if path.is_file() && name.starts_with("modules.") {
                let at = format!("{MODULES}/{version}/{name}");
                place(&mut tree, &at, node(Kind::File(path), 0o644))?;
            }
        }
        let manifest = Manifest {
            version: "v1alpha1".to_owned(),
            metadata: Metadata {
                name: "modules.dep".to_owned(),
                version: version.to_owned(),
                description: "Dependencies of the kernel modules of all extensions".to_owned(),
                ..Metadata::default()
            },
        };
        self.layer(MODULES_LAYER, Some(&manifest), tree)
    }
}

/// Copies the modules of extensions over the image's, all of the kernel `version`. The extensions'
/// own module indices are left out: depmod writes them anew.
fn lay_over(merged: &Path, version: &str, added: &BTreeMap<String, Entry>) -> Result<()> {
    let own = format!("{MODULES}/{version}/");
    for (path, entry) in added {
        let EntryKind::File(content) = &entry.kind else {
            continue;
        };
        let inner = path.strip_prefix(&own).ok_or_else(|| {
            Failure::new(
                format!(
                    "an extension has the module /{path}, but the kernel of this image is {version}"
                ),
                "use an extension whose modules were built for this kernel",
            )
        })?;
        if inner.starts_with("modules.") {
            continue;
        }
        let to = merged.join(inner);
        fs::create_dir_all(to.parent().unwrap_or(merged))?;
        fs::copy(content, &to).with_context(|| format!("copying /{path}"))?;
    }
    Ok(())
}

fn tree(files: &BTreeMap<String, Entry>) -> Result<Tree> {
    let mut tree = Tree::default();
    for (path, entry) in files {
        let kind = match &entry.kind {
            EntryKind::Directory => Kind::Directory,
            EntryKind::Link(target) => Kind::Link(target.clone()),
            EntryKind::File(content) => Kind::File(content.clone()),
        };
        tree.insert(path.clone(), node(kind, entry.mode))?;
    }
    Ok(tree)
}

/// A node owned by root, whatever its owner in the archive.
fn node(kind: Kind, mode: u32) -> Node {
    Node {
        kind,
        mode,
        uid: 0,
        gid: 0,
    }
}

/// Adds a node and its missing parent directories.
fn place(tree: &mut Tree, path: &str, added: Node) -> Result<()> {
    for (end, _) in path.match_indices('/') {
        let parent = path.get(..end).unwrap_or_default();
        if tree.get(parent).is_none() {
            tree.insert(parent.to_owned(), node(Kind::Directory, 0o755))?;
        }
    }
    tree.insert(path.to_owned(), added)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_of_extensions_match_the_kernel_and_come_without_module_lists() {
        let dir = tempfile::tempdir().unwrap();
        let content = dir.path().join("0");
        fs::write(&content, "module").unwrap();
        let file = |path: &str| {
            let entry = Entry {
                mode: 0o644,
                kind: EntryKind::File(content.clone()),
            };
            (path.to_owned(), entry)
        };
        let merged = dir.path().join("merged");
        fs::create_dir(&merged).unwrap();
        fs::write(merged.join("modules.order"), "the image's").unwrap();
        let added = BTreeMap::from([
            file("usr/lib/modules/6.12.1/extra/a.ko"),
            file("usr/lib/modules/6.12.1/modules.order"),
        ]);
        lay_over(&merged, "6.12.1", &added).unwrap();
        assert_eq!(fs::read(merged.join("extra/a.ko")).unwrap(), b"module");
        let order = fs::read_to_string(merged.join("modules.order")).unwrap();
        assert_eq!(order, "the image's");
        let error = lay_over(&merged, "6.12.2", &added).unwrap_err().to_string();
        assert!(
            error.contains("the kernel of this image is 6.12.2"),
            "{error}"
        );
    }

    #[test]
    fn config_that_a_node_would_refuse_is_not_embedded() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("node.yaml");
        let mut profile = Profile::default();
        check_config(&profile).unwrap();
        profile.config = Some(path.clone());
        let found = check_config(&profile).unwrap_err();
        assert!(format!("{found:#}").contains("cannot read the machine config"));
        let config = "version: v1alpha1\nmachine:\n  type: worker\n  ca: {crt: LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCkFBQUEKLS0tLS1FTkQgQ0VSVElGSUNBVEUtLS0tLQo=}\n\
                      cluster:\n  controlPlane: {endpoint: 'https://10.0.0.1:6443'}\n";
        fs::write(&path, config).unwrap();
        check_config(&profile).unwrap();
        let encryption = "  systemDiskEncryption: {state: {provider: luks2, keys: [{tpm: {}}]}}\n";
        let wrong = config.replace("cluster:", &format!("{encryption}cluster:"));
        fs::write(&path, wrong).unwrap();
        let found = format!("{:#}", check_config(&profile).unwrap_err());
        assert!(found.contains("node.yaml is not valid: "), "{found}");
        assert!(
            found.contains("systemDiskEncryption.state.keys[0]"),
            "{found}"
        );
    }

    #[test]
    fn parent_directories_are_created_once() {
        let mut tree = Tree::default();
        place(&mut tree, "a/b/c", node(Kind::Link("x".into()), 0o777)).unwrap();
        place(&mut tree, "a/b/d", node(Kind::Link("x".into()), 0o777)).unwrap();
        let paths: Vec<_> = tree.nodes().map(|(path, _)| path).collect();
        assert_eq!(paths, ["a", "a/b", "a/b/c", "a/b/d"]);
    }
}
