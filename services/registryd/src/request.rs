//! Parses a client's request. No I/O.

use http::{Method, StatusCode, Uri};
use oci_spec::distribution::ErrorCode;
use oci_spec::image::Sha256Digest;
use percent_encoding::percent_decode_str;

use crate::names::{self, Name, Reference, Registry};
use crate::refusal::Refusal;

/// A valid request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// `/healthz`.
    Health,
    /// `/v2/`: the check for a registry.
    Version,
    /// `/v2/<name>/manifests/<reference>`.
    Manifest(Image, Reference),
    /// `/v2/<name>/blobs/<digest>`. The cache stores the blobs of all images together.
    Blob(Sha256Digest),
}

/// An image of any registry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Image {
    pub(crate) registry: Registry,
    pub(crate) name: Name,
}

/// Kind of object that a path names.
#[derive(Debug, Clone, Copy)]
enum Kind {
    Manifest,
    Blob,
}

/// Parses the request line.
///
/// containerd names the image's registry in the query `ns`. Without it, the name begins with the registry's host.
pub(crate) fn parse(method: &Method, uri: &Uri) -> Result<Wanted, Refusal> {
    if method != Method::GET && method != Method::HEAD {
        return Err(Refusal {
            status: StatusCode::METHOD_NOT_ALLOWED,
            code: ErrorCode::Unsupported,
            message: format!("the image cache is read-only: {method} is not supported"),
        });
    }
    let path = match uri.path() {
        "/healthz" | "/healthz/" => return Ok(Wanted::Health),
        "/v2" | "/v2/" => return Ok(Wanted::Version),
        path => path,
    };
    let (name, kind, last) = split(path).ok_or_else(|| {
        Refusal::unknown(
            ErrorCode::Unsupported,
            "there are only /v2/<name>/manifests/<reference> and /v2/<name>/blobs/<digest>",
        )
    })?;
    let image = image(name, uri.query().unwrap_or_default())?;
    match kind {
        Kind::Manifest => Reference::parse(last)
            .map(|reference| Wanted::Manifest(image, reference))
            .ok_or_else(|| {
                let message = "the reference is neither a tag nor a sha256 digest";
                Refusal::bad(ErrorCode::ManifestInvalid, message)
            }),
        Kind::Blob => names::digest(last).map(Wanted::Blob).ok_or_else(|| {
            let message = "the digest is not sha256: and 64 lower-case hexadecimal digits";
            Refusal::bad(ErrorCode::DigestInvalid, message)
        }),
    }
}

/// Name, kind and reference of a path; `None` if the path has another form.
fn split(path: &str) -> Option<(&str, Kind, &str)> {
    let (rest, last) = path.strip_prefix("/v2/")?.rsplit_once('/')?;
    let (name, kind) = rest.rsplit_once('/')?;
    match kind {
        "manifests" => Some((name, Kind::Manifest, last)),
        "blobs" => Some((name, Kind::Blob, last)),
        _ => None,
    }
}

fn image(name: &str, query: &str) -> Result<Image, Refusal> {
    let given = query
        .split('&')
        .find_map(|pair| pair.strip_prefix("ns="))
        .map(|text| percent_decode_str(text).decode_utf8_lossy().into_owned());
    let (registry, name) = match &given {
        Some(registry) => (registry.as_str(), name),
        None => name.split_once('/').ok_or_else(|| {
            let message = "name the image's registry: ?ns=<registry>, or <registry>/<name>";
            Refusal::bad(ErrorCode::NameInvalid, message)
        })?,
    };
    let registry = Registry::parse(registry).ok_or_else(|| {
        Refusal::bad(
            ErrorCode::NameInvalid,
            "the registry is not a host with an optional port",
        )
    })?;
    let name = Name::parse(name).ok_or_else(|| {
        let message = "the name is not valid by the OCI distribution spec";
        Refusal::bad(ErrorCode::NameInvalid, message)
    })?;
    Ok(Image { registry, name })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn get(uri: &str) -> Result<Wanted, Refusal> {
        parse(&Method::GET, &uri.parse().unwrap())
    }

    fn code(uri: &str) -> (u16, ErrorCode) {
        let refusal = get(uri).unwrap_err();
        (refusal.status.as_u16(), refusal.code)
    }

    #[test]
    fn the_registry_is_in_the_query_or_before_the_name() {
        let by_query = get("/v2/org/app/manifests/v1?x=1&ns=a.example%3A5000");
        let by_path = get("/v2/a.example:5000/org/app/manifests/v1");
        assert_eq!(by_query.unwrap(), by_path.unwrap());
    }

    #[test]
    fn repository_name_may_contain_path_keywords() {
        let Ok(Wanted::Manifest(image, _)) = get("/v2/blobs/manifests/manifests/v1?ns=a") else {
            panic!("not a manifest");
        };
        assert_eq!(image.name.as_str(), "blobs/manifests");
    }

    #[test]
    fn invalid_requests_get_the_error_code_of_the_specification() {
        assert_eq!(code("/v2/a/manifests/-"), (400, ErrorCode::NameInvalid));
        assert_eq!(
            code("/v2/a/../b/manifests/v1?ns=x"),
            (400, ErrorCode::NameInvalid)
        );
        assert_eq!(
            code("/v2/a/manifests/v1?ns=../x"),
            (400, ErrorCode::NameInvalid)
        );
        assert_eq!(
            code("/v2/a/blobs/sha256:00?ns=x"),
            (400, ErrorCode::DigestInvalid)
        );
        assert_eq!(code("/v2/a/tags/list?ns=x"), (404, ErrorCode::Unsupported));
        let refusal = parse(&Method::PUT, &"/v2/a/blobs/x".parse().unwrap()).unwrap_err();
        assert_eq!(refusal.status, StatusCode::METHOD_NOT_ALLOWED);
    }

    proptest! {
        /// Every accepted request names a file below the cache.
        #[test]
        fn hostile_requests_stay_in_the_cache(
            path in "(/(v2|\\.\\.?|[a-z.%:_-]{0,6}|manifests|blobs|sha256:[0-9a-f]{60,66})){1,8}",
            ns in "[a-z./%:\\[\\]0-9-]{0,12}",
        ) {
            let Ok(uri) = format!("{path}?ns={ns}").parse::<Uri>() else {
                return Ok(());
            };
            if let Ok(Wanted::Manifest(image, reference)) = parse(&Method::GET, &uri) {
                let mut parts = image.registry.directories();
                prop_assert!(parts.iter().all(|part| !part.contains('/')));
                parts.extend(image.name.as_str().split('/').map(str::to_owned));
                parts.push(reference.to_string());
                for part in parts {
                    prop_assert!(!part.is_empty() && !part.starts_with('.'), "{part:?}");
                }
            }
        }
    }
}
