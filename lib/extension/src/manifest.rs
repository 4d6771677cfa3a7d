//! `manifest.yaml`, the manifest of an extension.

use semver::Version;
use serde::{Deserialize, Serialize};

use crate::Problem;
use crate::range::Range;

/// Release line of the API that the node speaks; compatibility is checked against it (`corten_api::COMPATIBLE_WITH`; a
/// test of machined compares them).
#[must_use]
pub fn release() -> Version {
    Version::new(1, 14, 0)
}

/// The only version of the format.
const FORMAT: &str = "v1alpha1";
/// Limit of the file in bytes; real ones have a few hundred.
const LARGEST: usize = 64 * 1024;
/// Longest name, which becomes part of file names.
const LONGEST_NAME: usize = 64;
/// Longest other text.
const LONGEST_TEXT: usize = 8 * 1024;

/// The whole file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// Version of the format: `v1alpha1`.
    pub version: String,
    /// Metadata of the extension.
    pub metadata: Metadata,
}

/// The part that lists of extensions show.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Metadata {
    /// Name: letters, digits, `.`, `_`, `+` and `-`.
    pub name: String,
    /// The extension's own version, in any form.
    pub version: String,
    /// Author.
    #[serde(default)]
    pub author: String,
    /// Purpose.
    #[serde(default)]
    pub description: String,
    /// Compatible nodes.
    #[serde(default)]
    pub compatibility: Compatibility,
    /// Further information from the author.
    #[serde(default)]
    pub extra_info: String,
}

/// Compatible nodes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Compatibility {
    /// Release line of the API that the node must speak.
    #[serde(default)]
    pub talos: Constraint,
}

/// A range of versions.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Constraint {
    /// Range such as `>= v1.10.0`; empty: any version.
    #[serde(default)]
    pub version: String,
}

impl Manifest {
    /// Parses and checks the file.
    ///
    /// # Errors
    /// The problem, with its field.
    pub fn parse(bytes: &[u8]) -> Result<Manifest, Problem> {
        let malformed = |what: String| {
            let remedy = "correct it; docs/building.md shows an example with every known field";
            Problem::new("manifest.yaml", what, remedy)
        };
        if bytes.len() > LARGEST {
            return Err(malformed(format!("it is larger than {LARGEST} bytes")));
        }
        let text = std::str::from_utf8(bytes).map_err(|error| malformed(error.to_string()))?;
        let manifest: Manifest =
            serde_saphyr::from_str(text).map_err(|error| malformed(crate::told(&error)))?;
        manifest.check()?;
        Ok(manifest)
    }

    /// Renders the file.
    ///
    /// # Errors
    /// A field that [`Manifest::parse`] would refuse.
    pub fn render(&self) -> Result<String, Problem> {
        self.check()?;
        serde_saphyr::to_string(self).map_err(|error| {
            let remedy = "remove the control characters from its texts";
            Problem::new("manifest.yaml", error.to_string(), remedy)
        })
    }

    fn check(&self) -> Result<(), Problem> {
        if self.version != FORMAT {
            return Err(Problem::new(
                "manifest.yaml: version",
                format!("{:?} is not a known format", self.version),
                format!("use {FORMAT}"),
            ));
        }
        let Metadata {
            name,
            version,
            author,
            description,
            compatibility,
            extra_info,
        } = &self.metadata;
        if !is_name(name) {
            return Err(Problem::new(
                "manifest.yaml: metadata.name",
                format!("{name:?} is not a valid name"),
                format!(
                    "use up to {LONGEST_NAME} letters, digits, and . _ + - (not as the first character)"
                ),
            ));
        }
        if version.is_empty() {
            return Err(Problem::new(
                "manifest.yaml: metadata.version",
                "it is empty",
                "set the version of the extension",
            ));
        }
        let texts = [
            ("version", version),
            ("author", author),
            ("description", description),
            ("extraInfo", extra_info),
        ];
        for (field, text) in texts {
            let hidden = |c: char| c.is_control() && !matches!(c, '\n' | '\t');
            if text.len() > LONGEST_TEXT || text.contains(hidden) {
                return Err(Problem::new(
                    format!("manifest.yaml: metadata.{field}"),
                    "it is too long or contains control characters",
                    format!("use up to {LONGEST_TEXT} bytes of text"),
                ));
            }
        }
        Range::parse(&compatibility.talos.version)
            .map(drop)
            .map_err(|what| {
                let remedy = "write it like \">= v1.10.0\" or \">= 1.10.0 < 1.15.0 || 1.16.x\"";
                Problem::new(COMPATIBILITY, what, remedy)
            })
    }

    /// Whether the extension is for nodes that speak the API of the release `node`. Pre-release and build metadata of
    /// `node` are ignored.
    ///
    /// # Errors
    /// It is for other releases.
    pub fn check_compatible(&self, node: &Version) -> Result<(), Problem> {
        let wanted = &self.metadata.compatibility.talos.version;
        let core = Version::new(node.major, node.minor, node.patch);
        match Range::parse(wanted) {
            Ok(range) if range.contains(&core) => Ok(()),
            Ok(_) => Err(Problem::new(
                COMPATIBILITY,
                format!(
                    "{} {} is for {wanted}, and this release is {core}",
                    self.metadata.name, self.metadata.version
                ),
                "use a version of the extension for this release",
            )),
            Err(what) => Err(Problem::new(COMPATIBILITY, what, "correct it")),
        }
    }
}

const COMPATIBILITY: &str = "manifest.yaml: metadata.compatibility.talos.version";

fn is_name(name: &str) -> bool {
    let inner = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '+' | '-');
    name.len() <= LONGEST_NAME
        && name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name.chars().all(inner)
}

#[cfg(test)]
mod tests {
    use corten_corpus::{hostile, samples};
    use proptest::prelude::*;

    use super::*;

    const GOOD: &str = "version: v1alpha1
metadata:
  name: hello-world
  version: v1.0.0
  author: The authors
  description: |
    Says hello.
    Often.
  compatibility:
    talos:
      version: '>= v1.10.0'
";

    #[test]
    fn valid_manifest_round_trips() {
        let manifest = Manifest::parse(GOOD.as_bytes()).unwrap();
        assert_eq!(manifest.metadata.description, "Says hello.\nOften.\n");
        let again = Manifest::parse(manifest.render().unwrap().as_bytes()).unwrap();
        assert_eq!(again, manifest);
    }

    #[test]
    fn manifest_problem_is_named_with_its_field_and_a_remedy() {
        for (from, to, place) in [
            ("v1alpha1", "v2", "manifest.yaml: version"),
            ("hello-world", "../etc", "manifest.yaml: metadata.name"),
            ("hello-world", "''", "manifest.yaml: metadata.name"),
            ("v1.0.0", "''", "manifest.yaml: metadata.version"),
            ("The authors", "\"a\\0b\"", "manifest.yaml: metadata.author"),
            (">= v1.10.0", "about 1", COMPATIBILITY),
            ("author", "autor", "manifest.yaml"),
            ("metadata", "meta", "manifest.yaml"),
        ] {
            let problem = Manifest::parse(GOOD.replace(from, to).as_bytes()).unwrap_err();
            assert_eq!(problem.place, place, "{problem}");
            assert!(!problem.remedy.is_empty());
        }
        let unknown = Manifest::parse(GOOD.replace("author", "autor").as_bytes()).unwrap_err();
        assert!(unknown.what.contains("autor"), "{unknown}");
        let long = GOOD.replace("Often.", &"x".repeat(LARGEST));
        assert!(
            Manifest::parse(long.as_bytes())
                .unwrap_err()
                .what
                .contains("larger")
        );
    }

    #[test]
    fn extension_is_compatible_with_versions_of_its_range_only() {
        let manifest = Manifest::parse(GOOD.as_bytes()).unwrap();
        let node = |text: &str| Version::parse(text).unwrap();
        manifest
            .check_compatible(&node("1.14.0+corten.0.1.0"))
            .unwrap();
        manifest.check_compatible(&node("1.10.0-alpha.1")).unwrap();
        let problem = manifest.check_compatible(&node("1.9.5")).unwrap_err();
        assert_eq!(
            problem.what,
            "hello-world v1.0.0 is for >= v1.10.0, and this release is 1.9.5"
        );
    }

    #[test]
    fn corpus_samples_are_valid_manifests() {
        for sample in samples("extension-manifest") {
            let manifest = Manifest::parse(&sample.bytes);
            assert!(manifest.is_ok(), "{}: {manifest:?}", sample.name);
        }
    }

    proptest! {
        #[test]
        fn hostile_bytes_never_panic(bytes in hostile("extension-manifest")) {
            if let Ok(manifest) = Manifest::parse(&bytes) {
                prop_assert!(is_name(&manifest.metadata.name));
            }
        }

        #[test]
        fn hostile_text_gives_no_invalid_name(
            at in 0_usize..200,
            text in "[ \\n:&*!|>{}\\[\\]'\"%@a-z0-9-]{0,40}",
        ) {
            let mut changed = GOOD.to_owned();
            changed.insert_str(at.min(GOOD.len()), &text);
            if let Ok(manifest) = Manifest::parse(changed.as_bytes()) {
                prop_assert!(is_name(&manifest.metadata.name));
            }
        }
    }
}
