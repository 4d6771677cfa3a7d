//! Versions of Kubernetes, and images with a version as their tag.

use std::cmp::Ordering;
use std::fmt;

/// Suffixes after the version in the tags of the reference's kubelet images.
const SUFFIXES: [&str; 2] = ["-fat", "-slim"];

/// A version such as `1.37.2` or `1.37.0-rc.1`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Version {
    pub(super) major: u64,
    pub(super) minor: u64,
    patch: u64,
    /// Pre-release part, such as `rc.1`.
    before: Option<String>,
}

impl Version {
    /// Parses a version, with or without the leading `v`. Build metadata (`+k3s1`) is ignored.
    pub(super) fn parse(text: &str) -> Option<Version> {
        let text = text.strip_prefix('v').unwrap_or(text);
        let text = text.split_once('+').map_or(text, |(version, _)| version);
        let (numbers, before) = match text.split_once('-') {
            Some((numbers, before)) => (numbers, Some(before)),
            None => (text, None),
        };
        let is_word = |text: &str| {
            let fits = |c: char| c.is_ascii_alphanumeric() || c == '.' || c == '-';
            !text.is_empty() && text.chars().all(fits)
        };
        if before.is_some_and(|before| !is_word(before)) {
            return None;
        }
        let mut numbers = numbers.split('.').map(|number| {
            let is_plain = number.bytes().all(|byte| byte.is_ascii_digit());
            number.parse().ok().filter(|_| is_plain)
        });
        let version = Version {
            major: numbers.next()??,
            minor: numbers.next()??,
            patch: numbers.next()??,
            before: before.map(str::to_owned),
        };
        numbers.next().is_none().then_some(version)
    }

    /// Major and minor version.
    pub(super) fn release(&self) -> (u64, u64) {
        (self.major, self.minor)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)?;
        match &self.before {
            Some(before) => write!(f, "-{before}"),
            None => Ok(()),
        }
    }
}

impl Ord for Version {
    fn cmp(&self, other: &Version) -> Ordering {
        let numbers = |one: &Version| (one.major, one.minor, one.patch);
        let before = || match (&self.before, &other.before) {
            (None, None) => Ordering::Equal,
            (None, Some(_)) => Ordering::Greater,
            (Some(_), None) => Ordering::Less,
            (Some(one), Some(other)) => one.cmp(other),
        };
        numbers(self).cmp(&numbers(other)).then_with(before)
    }
}

impl PartialOrd for Version {
    fn partial_cmp(&self, other: &Version) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Splits an image into its name and its tag. Fails for an image with a digest, since the digest overrides the tag.
fn parts(image: &str) -> Result<(&str, &str), String> {
    if image.contains('@') {
        return Err(format!("{image} has a digest, which names one version"));
    }
    let name = image.rfind('/').map_or(0, |slash| slash + 1);
    let colon = image.rfind(':').filter(|colon| *colon >= name);
    colon
        .and_then(|colon| Some((image.get(..colon)?, image.get(colon + 1..)?)))
        .ok_or_else(|| format!("{image} has no tag"))
}

fn suffix(tag: &str) -> &'static str {
    let found = SUFFIXES.into_iter().find(|suffix| tag.ends_with(suffix));
    found.unwrap_or_default()
}

/// The version in an image's tag.
pub(super) fn of_image(image: &str) -> Option<Version> {
    let (_, tag) = parts(image).ok()?;
    Version::parse(tag.strip_suffix(suffix(tag)).unwrap_or(tag))
}

/// The image of another version: the same name, or `name` (without tag), with another tag.
///
/// # Errors
/// A sentence that names the unusable part of the image.
pub(super) fn image(old: &str, name: Option<&str>, to: &Version) -> Result<String, String> {
    let (name, suffix) = match (name, parts(old)) {
        (Some(name), old) => (name, old.map_or("", |(_, tag)| suffix(tag))),
        (None, old) => {
            let (name, tag) = old?;
            (name, suffix(tag))
        }
    };
    Ok(format!("{name}:v{to}{suffix}"))
}

/// Whether the text is an image name without tag and digest.
pub(super) fn is_name(text: &str) -> bool {
    !text.is_empty() && parts(text).is_err_and(|_| !text.contains('@'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(text: &str) -> Version {
        Version::parse(text).unwrap()
    }

    #[test]
    fn versions_are_ordered_by_their_numbers() {
        let order = [
            "1.9.9",
            "1.36.4",
            "v1.37.0-alpha.1",
            "1.37.0-rc.1",
            "1.37.0",
            "1.37.10",
            "2.0.0",
        ];
        for pair in order.windows(2) {
            assert!(version(pair[0]) < version(pair[1]), "{pair:?}");
        }
        assert_eq!(version("v1.36.2+k3s1").to_string(), "1.36.2");
        for text in [
            "",
            "1",
            "1.2",
            "1.2.3.4",
            "a.b.c",
            "1.2.+3",
            "latest",
            "1.2.3-",
            "1.2.3-a/b",
            "1.2.3-a\u{1b}",
        ] {
            assert_eq!(Version::parse(text), None, "{text:?}");
        }
    }

    #[test]
    fn image_of_another_version_keeps_its_name_and_suffix() {
        let to = version("1.37.2");
        for (old, name, expected) in [
            (
                "registry.k8s.io/kube-proxy:v1.36.4",
                None,
                "registry.k8s.io/kube-proxy:v1.37.2",
            ),
            (
                "h:5000/kubelet:v1.36.4-slim",
                None,
                "h:5000/kubelet:v1.37.2-slim",
            ),
            (
                "h:5000/kubelet:v1.36.4",
                Some("m/kubelet"),
                "m/kubelet:v1.37.2",
            ),
            (
                "h/kubelet@sha256:00",
                Some("m/kubelet"),
                "m/kubelet:v1.37.2",
            ),
        ] {
            assert_eq!(image(old, name, &to).unwrap(), expected);
        }
        assert!(
            image("h:5000/kubelet", None, &to)
                .unwrap_err()
                .contains("no tag")
        );
        assert!(
            image("h/kubelet:v1@sha256:00", None, &to)
                .unwrap_err()
                .contains("digest")
        );
        assert_eq!(
            of_image("h:5000/kubelet:v1.36.4-fat"),
            Some(version("1.36.4"))
        );
        assert_eq!(of_image("h:5000/kubelet"), None);
        assert_eq!(of_image("h/kubelet:latest"), None);
        assert!(is_name("h:5000/kubelet"));
        for text in ["", "h/kubelet:v1.37.2", "h/kubelet@sha256:00"] {
            assert!(!is_name(text), "{text}");
        }
    }
}
