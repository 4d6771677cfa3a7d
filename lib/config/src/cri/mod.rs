//! containerd's settings apart from registries: parts of its configuration, overrides of the containers' base
//! specification, and the image cache. Each has two forms; this file merges them.

mod base_spec;
mod part;

use std::collections::BTreeMap;

use corten_values::Secret;
use corten_yaml::read::Reader;
use corten_yaml::tree::Node;
use serde_json::Value as Json;

use crate::Document;
use crate::kinds::{CRIBaseRuntimeSpecConfig, CRICustomizationConfig, ImageCacheConfig};
use crate::v1alpha1::MachineFile;

pub use base_spec::{base_spec, with_overrides};
pub use part::normal;

/// Path in `machine.files` of a part of containerd's configuration.
pub const PART_FILE: &str = "/etc/cri/conf.d/20-customization.part";
/// Name of that part; no document may have it.
pub const PART_NAME: &str = "customization";
/// File with the base specification of containers, for references in parts.
pub const BASE_SPEC_FILE: &str = "/etc/cri/conf.d/base-spec.json";

impl Document {
    /// Parts of containerd's configuration (TOML), by name; a later part overrides an earlier one.
    #[must_use]
    pub fn containerd_parts(&self) -> BTreeMap<&str, &Secret> {
        let old = self.machine.files.iter();
        let old = old.filter(|file| is_part(file));
        let old = old.map(|file| (PART_NAME, &file.content));
        let by_kind = self.all::<CRICustomizationConfig>();
        let by_kind = by_kind.map(|config| (config.name.as_str(), &config.content));
        let all = old.chain(by_kind);
        // An empty part has no effect.
        all.filter(|(_, content)| !content.is_empty()).collect()
    }

    /// Overrides of the containers' base specification; `None`: none.
    #[must_use]
    pub fn base_spec_overrides(&self) -> Option<Json> {
        let mut by_kind = self.all::<CRIBaseRuntimeSpecConfig>();
        let by_kind = by_kind.find_map(|config| config.overrides.as_ref());
        let old = self.machine.base_runtime_spec_overrides.as_ref();
        by_kind.or(old).map(corten_values::Object::json)
    }

    /// Whether the node serves the images in its cache.
    #[must_use]
    pub fn serves_image_cache(&self) -> bool {
        let mut by_kind = self.all::<ImageCacheConfig>();
        self.machine.features.image_cache.local_enabled
            || by_kind.any(|config| config.local.enabled == Some(true))
    }
}

/// Whether a file is a part of containerd's configuration, and not on a volume.
#[must_use]
pub fn is_part(file: &MachineFile) -> bool {
    &*file.path == PART_FILE
}

/// Reports the problems of a part in the field `content`.
pub(crate) fn check_part(node: &Node, reader: &mut Reader<'_>) {
    let text = node.get("content").and_then(Node::text);
    for what in text.map(part::problems).unwrap_or_default() {
        reader.wrong_in(node, "content", &what);
    }
}

/// Reports the problems of base specification overrides in a field.
pub(crate) fn check_overrides(node: &Node, field: &str, reader: &mut Reader<'_>) {
    let Some(value) = node.get(field).filter(|value| !value.is_empty()) else {
        return;
    };
    reader.within(field, |reader| {
        for (step, what) in base_spec::problems(&corten_yaml::json::of(value)) {
            match &*step {
                "" => reader.wrong(value.mark, &what),
                step => reader.within(step, |reader| reader.wrong(value.mark, &what)),
            }
        }
    });
}
