//! Names of images, as containerd has them.

use oci_spec::distribution::{ParseError, Reference};

/// containerd's name of an image: with registry, and tag or digest. A tag of a registry has no `+` (OCI distribution
/// spec 1.1, "Pulling manifests"), but a version may have one. As with Helm, `_` stands for it.
///
/// # Errors
/// It is not the name of an image.
pub fn full_name(reference: &str) -> Result<String, ParseError> {
    let tag = match (reference.contains('@'), reference.rsplit_once(':')) {
        (false, Some((repository, tag))) if !tag.contains('/') => {
            Some(format!("{repository}:{}", tag.replace('+', "_")))
        }
        _ => None,
    };
    let name: Reference = tag.as_deref().unwrap_or(reference).parse()?;
    Ok(name.whole())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_of_an_image_gets_its_registry_and_tag() {
        for (reference, name) in [
            ("busybox", "docker.io/library/busybox:latest"),
            (
                "registry.example:5000/a/b",
                "registry.example:5000/a/b:latest",
            ),
            ("registry.example/a:1.0", "registry.example/a:1.0"),
        ] {
            assert_eq!(full_name(reference).unwrap(), name);
        }
        full_name("registry.example/A B").unwrap_err();
    }

    #[test]
    fn underscore_stands_for_the_plus_of_a_version() {
        let name = full_name("registry.example:5000/installer:v1.14.0+corten.0.2.0").unwrap();
        assert_eq!(name, "registry.example:5000/installer:v1.14.0_corten.0.2.0");
        full_name("registry.example/in+staller:1").unwrap_err();
    }
}
