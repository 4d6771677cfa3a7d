//! The choices of a build, from a profile file (TOML) and the command line, in one value.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use corten_steps::arch::Arch;
use corten_steps::error::{Failure, Remedy as _, Result};
use serde::{Deserialize, Serialize};

use crate::output::Output;
use crate::platform::Platform;

/// A profile: the outputs of a build and their content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Profile {
    /// The target architecture.
    pub arch: Arch,
    /// The formats to write. If empty: the platform's, or else all formats of the architecture and
    /// the board.
    pub output: Vec<Output>,
    /// The platform of the image; bare metal if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub platform: Option<Platform>,
    /// Kernel parameters added after the image's own.
    pub kernel_arguments: Vec<String>,
    /// META values by tag (`0x0a`), written into disk images.
    pub meta: BTreeMap<String, String>,
    /// A machine config to embed.
    pub config: Option<PathBuf>,
    /// System extensions, lowest layer first.
    pub extensions: Vec<Extension>,
    /// An image overlay for a board: a directory ([`crate::overlay`]).
    pub overlay: Option<PathBuf>,
    /// The directory of the boot firmware files that the overlay names.
    pub firmware: Option<PathBuf>,
    /// Certificates of further keys whose images the node installs (`db.crt` of a key set): those of the next
    /// versions, when the key changes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub accepted_keys: Vec<PathBuf>,
    /// Fast compilation instead of small, fast programs; for development.
    pub quick: bool,
    /// Whether disk images carry the container images of Kubernetes, on a partition that the node
    /// serves them from.
    pub with_images: bool,
}

/// A system extension: an OCI archive, and optionally the digest of the image in it; written `FILE`
/// or `FILE@sha256:HEX`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Extension {
    /// The archive.
    pub archive: PathBuf,
    /// The digest that the archive's index or manifest must have.
    pub digest: Option<String>,
}

impl FromStr for Extension {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let (archive, digest) = match text.rsplit_once("@sha256:") {
            Some((archive, digest)) => (archive, Some(digest)),
            None => (text, None),
        };
        let hex = |c: char| c.is_ascii_digit() || ('a'..='f').contains(&c);
        if archive.is_empty() || digest.is_some_and(|d| d.len() != 64 || !d.chars().all(hex)) {
            return Err(format!(
                "{text:?} is not FILE or FILE@sha256: and 64 lower-case hexadecimal digits"
            ));
        }
        Ok(Self {
            archive: archive.into(),
            digest: digest.map(|digest| format!("sha256:{digest}")),
        })
    }
}

impl TryFrom<String> for Extension {
    type Error = String;

    fn try_from(text: String) -> std::result::Result<Self, String> {
        text.parse()
    }
}

impl From<Extension> for String {
    fn from(extension: Extension) -> String {
        let archive = extension.archive.display();
        match &extension.digest {
            Some(digest) => format!("{archive}@{digest}"),
            None => archive.to_string(),
        }
    }
}

impl Default for Profile {
    fn default() -> Self {
        Self {
            arch: Arch::X86_64,
            output: Vec::new(),
            platform: None,
            kernel_arguments: Vec::new(),
            meta: BTreeMap::new(),
            config: None,
            extensions: Vec::new(),
            overlay: None,
            firmware: None,
            accepted_keys: Vec::new(),
            quick: false,
            with_images: false,
        }
    }
}

impl Profile {
    /// Whether the build makes the container images of Kubernetes.
    pub fn makes_images(&self) -> bool {
        let asked = |output| self.output.contains(&output);
        self.with_images || asked(Output::Images) || asked(Output::ImageCache)
    }

    /// Reads a profile; relative paths are relative to the profile's own directory.
    pub fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path).or_fail(
            format!("cannot read the profile {}", path.display()),
            "check the path",
        )?;
        let mut profile: Self = toml::from_str(&text).or_fail(
            format!("the profile {} is not valid", path.display()),
            "correct this key or value; docs/building.md lists the keys of a profile",
        )?;
        let base = path.parent().unwrap_or(Path::new(""));
        let extensions = profile.extensions.iter_mut().map(|one| &mut one.archive);
        let named = [
            &mut profile.config,
            &mut profile.overlay,
            &mut profile.firmware,
        ];
        let keys = profile.accepted_keys.iter_mut();
        for file in named.into_iter().flatten().chain(extensions).chain(keys) {
            *file = base.join(&*file);
        }
        Ok(profile)
    }

    /// META values by tag, validated.
    pub fn meta_values(&self) -> Result<corten_meta::Values> {
        let parse = |(tag, value): (&String, &String)| {
            let number = tag.strip_prefix("0x").map_or_else(
                || tag.parse().ok(),
                |digits| u8::from_str_radix(digits, 16).ok(),
            );
            let number = number.and_then(corten_meta::Tag::new).ok_or_else(|| {
                Failure::new(
                    format!("{tag:?} is not a META tag"),
                    "give a number from 1 to 255, such as 0x0a=VALUE",
                )
            })?;
            Ok((number, value.clone().into_bytes()))
        };
        self.meta.iter().map(parse).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Profile> {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("edge.toml");
        std::fs::write(&file, text).unwrap();
        Profile::read(&file)
    }

    #[test]
    fn profile_sets_the_options_of_the_command_line() {
        let profile = read(
            "arch = \"amd64\"\noutput = [\"raw\", \"iso\"]\nkernel-arguments = [\"quiet\"]\nquick = true\n\
             config = \"node.yaml\"\naccepted-keys = [\"next/db.crt\"]\n[meta]\n0x0a = \"x\"\n",
        )
        .unwrap();
        assert_eq!(profile.arch, Arch::X86_64);
        assert!(profile.quick && profile.config.as_ref().unwrap().is_absolute());
        assert!(profile.accepted_keys.iter().all(|key| key.is_absolute()));
        assert_eq!(profile.output, [Output::Raw, Output::Iso]);
        let tag = corten_meta::Tag::new(10).unwrap();
        assert_eq!(profile.meta_values().unwrap().get(&tag).unwrap(), b"x");
    }

    #[test]
    fn unknown_keys_and_formats_are_named() {
        let error = format!("{:#}", read("colour = 1\n").unwrap_err());
        assert!(error.contains("colour"), "{error}");
        let error = format!("{:#}", read("output = [\"floppy\"]\n").unwrap_err());
        assert!(error.contains("floppy"), "{error}");
        assert!("floppy".parse::<Output>().unwrap_err().contains("raw"));
    }

    #[test]
    fn an_extension_may_be_pinned_by_its_digest() {
        let pinned = format!("a.tar@sha256:{}", "0f".repeat(32));
        let profile = read(&format!("extensions = [\"b.tar\", \"{pinned}\"]\n")).unwrap();
        let [plain, exact] = profile.extensions.as_slice() else {
            panic!("{:?}", profile.extensions);
        };
        assert!(plain.archive.is_absolute() && plain.digest.is_none());
        assert!(exact.archive.ends_with("a.tar"));
        assert_eq!(String::from(pinned.parse::<Extension>().unwrap()), pinned);
        for bad in [
            "",
            "@sha256:00",
            "a@sha256:00",
            &pinned.to_uppercase().replace("SHA", "sha"),
        ] {
            bad.parse::<Extension>().unwrap_err();
        }
    }

    #[test]
    fn tag_zero_ends_the_list_and_cannot_be_set() {
        let profile = read("[meta]\n0x00 = \"x\"\n").unwrap();
        profile.meta_values().unwrap_err();
    }
}
