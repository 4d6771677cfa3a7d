//! containerd's settings apart from registries: parts of its configuration, overrides of the containers' base
//! specification, and the image cache. Each has two forms; this file merges them.

mod base_spec;
mod part;
pub(crate) mod rules;

use std::collections::BTreeMap;

use corten_values::Secret;
use serde_json::Value as Json;

use crate::document::Document;
use crate::kinds::{CRIBaseRuntimeSpecConfig, CRICustomizationConfig, ImageCacheConfig};
use crate::v1alpha1::MachineFile;

pub use base_spec::{base_spec, with_overrides};
pub use part::{BASE_SPEC_FILE, normal};
pub use rules::{PART_FILE, PART_NAME};

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
