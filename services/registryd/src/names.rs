//! Names of the OCI distribution spec (1.1, "Pulling manifests"), validated before they become parts of a path.
//!
//! A valid name is never `.` or `..`, has no leading dot and no byte that is special in a path. This keeps requests
//! inside the cache.

use std::fmt;
use std::net::Ipv6Addr;

use oci_spec::image::Sha256Digest;

/// Length limit of a name and of a registry; a longer one does not fit in a reference.
const LONGEST: usize = 255;
/// Length limit of a tag.
const LONGEST_TAG: usize = 128;

/// The host of a registry with an optional port: `registry.example`, `[fd00::1]:5000`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Registry(String);

impl Registry {
    /// `None` if the host or port is invalid.
    pub(crate) fn parse(text: &str) -> Option<Registry> {
        let (host, port) = split_port(text);
        let good_port = port.is_none_or(|port| port.parse::<u16>().is_ok());
        (text.len() <= LONGEST && good_port && is_host(host)).then(|| Registry(text.to_owned()))
    }

    /// The directories that may hold its images, the most likely first.
    ///
    /// Docker Hub has two names. On a file system without `:` in names the port is between `_`, as in containerd's host
    /// directories.
    pub(crate) fn directories(&self) -> Vec<String> {
        let mut names = vec![self.0.clone()];
        if self.0 == "docker.io" {
            names.push("index.docker.io".to_owned());
        }
        if let (host, Some(port)) = split_port(&self.0) {
            names.push(format!("{host}_{port}_"));
        }
        names
    }
}

fn split_port(text: &str) -> (&str, Option<&str>) {
    match text.rsplit_once(':') {
        // The colons of an IPv6 address are within brackets.
        Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
        _ => (text, None),
    }
}

fn is_host(host: &str) -> bool {
    let address = host
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'));
    if let Some(address) = address {
        return address.parse::<Ipv6Addr>().is_ok();
    }
    host.split('.').all(|label| {
        let good = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        !label.is_empty() && !label.starts_with('-') && label.bytes().all(good)
    })
}

/// An image's name in its registry: `library/pause`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Name(String);

impl Name {
    /// `None` if the spec's grammar does not allow the name.
    pub(crate) fn parse(text: &str) -> Option<Name> {
        let good = text.len() <= LONGEST && text.split('/').all(is_component);
        good.then(|| Name(text.to_owned()))
    }

    /// The name as a path below the registry's directory.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

/// Lower-case letters and digits, separated by `.`, `_`, `__` or any number of `-`.
fn is_component(text: &str) -> bool {
    let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let good = |separator: &str| {
        matches!(separator, "" | "." | "_" | "__") || separator.bytes().all(|byte| byte == b'-')
    };
    text.starts_with(inner) && text.ends_with(inner) && text.split(inner).all(good)
}

/// Reference to one manifest of an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Reference {
    /// A tag of the cache.
    Tag(String),
    /// A digest.
    Digest(Sha256Digest),
}

impl Reference {
    /// `None` if the text is neither a tag nor a SHA-256 digest.
    pub(crate) fn parse(text: &str) -> Option<Reference> {
        if text.contains(':') {
            return digest(text).map(Reference::Digest);
        }
        let word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        let good = text.len() <= LONGEST_TAG
            && text.bytes().next().is_some_and(word)
            && text
                .bytes()
                .all(|byte| word(byte) || matches!(byte, b'.' | b'-'));
        good.then(|| Reference::Tag(text.to_owned()))
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reference::Tag(tag) => f.write_str(tag),
            Reference::Digest(digest) => write!(f, "sha256:{digest}"),
        }
    }
}

/// Parses a digest of the spec, `sha256:` and 64 hexadecimal digits. `None` for other text and other algorithms.
pub(crate) fn digest(text: &str) -> Option<Sha256Digest> {
    text.strip_prefix("sha256:")?.parse().ok()
}

/// The possible file names of a digest, the most likely first. The second is for file systems without `:`.
pub(crate) fn files(digest: &Sha256Digest) -> [String; 2] {
    [format!("sha256:{digest}"), format!("sha256-{digest}")]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repository_names_follow_the_specification() {
        for good in ["pause", "library/pause", "a__b/c-d--e/f.g", "0"] {
            assert!(Name::parse(good).is_some(), "{good}");
        }
        let long = "a".repeat(256);
        for bad in [
            "", "/", "a/", "/a", "a//b", "..", "a/../b", ".a", "a.", "a..b", "a___b", "A", "a b",
            "a\0b", "a%2e", &long,
        ] {
            assert!(Name::parse(bad).is_none(), "{bad}");
        }
    }

    #[test]
    fn registry_is_a_host_with_an_optional_port() {
        let names = |text: &str| Registry::parse(text).unwrap().directories();
        assert_eq!(names("docker.io"), ["docker.io", "index.docker.io"]);
        assert_eq!(names("[fd00::1]"), ["[fd00::1]"]);
        assert_eq!(names("a.b:5000"), ["a.b:5000", "a.b_5000_"]);
        for bad in [
            "", ".", "..", "a/b", "a:", "a:b", "a:70000", "[x]", "-a", "a..b",
        ] {
            assert!(Registry::parse(bad).is_none(), "{bad}");
        }
    }

    #[test]
    fn a_reference_is_a_tag_or_a_whole_digest() {
        assert_eq!(
            Reference::parse("v1.2_3-x").unwrap().to_string(),
            "v1.2_3-x"
        );
        let digest = format!("sha256:{}", "0a".repeat(32));
        assert_eq!(Reference::parse(&digest).unwrap().to_string(), digest);
        let long = "a".repeat(129);
        let upper = digest.to_uppercase();
        for bad in [
            "",
            ".",
            "..",
            ".a",
            "-a",
            "a/b",
            "sha256:",
            "sha256:00",
            "sha512:00",
            &long,
            &upper,
        ] {
            assert!(Reference::parse(bad).is_none(), "{bad}");
        }
    }
}
