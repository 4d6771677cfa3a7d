//! Sources of system extensions.

use crate::text::texts;

const ARCHIVE: &str = "oci-archive://";
const DIGEST: &str = "@sha256:";

texts! {
    /// The image of a system extension, in a registry or on a volume.
    ExtensionImage = "an image with its digest: NAME@sha256:..., or oci-archive://LABEL/FILE@sha256:...",
        is_image;
}

/// The source of a system extension's image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExtensionSource<'a> {
    /// A registry: the full name of the image with its digest.
    Registry(&'a str),
    /// An OCI archive: a file on the volume with this label.
    Volume {
        /// Label of the volume's file system.
        label: &'a str,
        /// Path from the root of the volume, without a leading `/`.
        file: &'a str,
    },
}

impl ExtensionImage {
    /// The source of the image.
    #[must_use]
    pub fn source(&self) -> ExtensionSource<'_> {
        volume(self).unwrap_or(ExtensionSource::Registry(self))
    }

    /// The digest of the image, with `sha256:`.
    #[must_use]
    pub fn digest(&self) -> &str {
        self.split_once('@').map_or("", |(_, digest)| digest)
    }
}

fn volume(image: &str) -> Option<ExtensionSource<'_>> {
    let (place, _) = image.strip_prefix(ARCHIVE)?.split_once('@')?;
    let (label, file) = place.split_once('/')?;
    Some(ExtensionSource::Volume { label, file })
}

fn is_image(text: &str) -> bool {
    let Some((place, digest)) = text.split_once(DIGEST) else {
        return false;
    };
    let hex = |c: char| matches!(c, '0'..='9' | 'a'..='f');
    if digest.len() != 64 || !digest.chars().all(hex) || place.len() > 1024 {
        return false;
    }
    match place.strip_prefix(ARCHIVE) {
        Some(place) => place.split_once('/').is_some_and(|(label, file)| {
            let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
            let is_name = |name: &str| {
                !matches!(name, "" | "." | "..")
                    && !name.chars().any(|c| c.is_control() || c == '@')
            };
            label.chars().all(plain) && is_name(label) && file.split('/').all(is_name)
        }),
        None => {
            let known = |c: char| c.is_ascii_alphanumeric() || "-_./:".contains(c);
            place.starts_with(|c: char| c.is_ascii_alphanumeric())
                && !place.contains("//")
                && place.chars().all(known)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_digest(place: &str) -> String {
        format!("{place}{DIGEST}{}", "0a".repeat(32))
    }

    #[test]
    fn images_are_in_registries_or_on_volumes_and_have_a_digest() {
        for good in [
            "registry.example.org/team/hello",
            "registry.example.org:5000/hello:v1",
            "hello",
            "oci-archive://EXTRA/hello.tar",
            "oci-archive://CORTEN/extensions/my hello.tar",
        ] {
            assert!(is_image(&with_digest(good)), "{good}");
        }
        for bad in [
            "",
            "https://registry.example.org/hello",
            "oci-archive://EXTRA",
            "oci-archive:///hello.tar",
            "oci-archive://../hello.tar",
            "oci-archive://EXTRA/../hello.tar",
            "oci-archive://EXTRA//hello.tar",
            "oci-archive://EXTRA/a@b",
            "-hello",
            "he llo",
        ] {
            assert!(!is_image(&with_digest(bad)), "{bad}");
        }
        for bad in ["hello", "hello:v1", "hello@sha256:00", "hello@sha512:00"] {
            assert!(!is_image(bad), "{bad}");
        }
        let long = with_digest("hello").to_uppercase();
        assert!(!is_image(&long));
    }

    #[test]
    fn image_reference_is_split_into_source_and_digest() {
        let image = ExtensionImage(with_digest("oci-archive://EXTRA/a/b.tar"));
        let (label, file) = ("EXTRA", "a/b.tar");
        assert_eq!(image.source(), ExtensionSource::Volume { label, file });
        assert_eq!(image.digest(), format!("sha256:{}", "0a".repeat(32)));
        let text = with_digest("registry.example.org/hello:v1");
        let image = ExtensionImage(text.clone());
        assert_eq!(image.source(), ExtensionSource::Registry(&text));
    }
}
