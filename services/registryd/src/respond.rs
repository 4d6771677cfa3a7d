//! Answers requests.

use std::convert::Infallible;
use std::io;

use bytes::Bytes;
use http::header::{
    ACCEPT_RANGES, ALLOW, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, HeaderValue, RANGE,
};
use http::{Method, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full};

use crate::blob::{self, Asked, Part};
use crate::cache::{Blob, Cache, Manifest};
use crate::refusal::Refusal;
use crate::request::{self, Wanted};

/// Body of an answer.
pub(crate) type Body = UnsyncBoxBody<Bytes, io::Error>;

const DIGEST: &str = "docker-content-digest";
const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// Answers one request. The answer to HEAD has the headers of the answer to GET.
pub(crate) async fn respond<B>(cache: &Cache, request: &Request<B>) -> Response<Body> {
    let mut answer = match answer(cache, request).await {
        Ok(answer) => answer,
        Err(refusal) => refuse(&refusal),
    };
    if request.method() == Method::HEAD {
        *answer.body_mut() = full(Bytes::new());
    }
    answer
}

async fn answer<B>(cache: &Cache, request: &Request<B>) -> Result<Response<Body>, Refusal> {
    match request::parse(request.method(), request.uri())? {
        Wanted::Health => Ok(with_length(Bytes::new())),
        Wanted::Version => {
            let mut answer = with_length(Bytes::from_static(b"{}"));
            answer.headers_mut().insert(CONTENT_TYPE, JSON);
            Ok(answer)
        }
        Wanted::Manifest(image, reference) => {
            Ok(manifest(cache.manifest(&image, &reference).await?))
        }
        Wanted::Blob(digest) => {
            let range = request.headers().get(RANGE);
            let range = range.and_then(|value| value.to_str().ok());
            let head = request.method() == Method::HEAD;
            let blob = cache.blob(&digest, range.is_none()).await?;
            Ok(part_of(blob, range, head))
        }
    }
}

fn manifest(manifest: Manifest) -> Response<Body> {
    let mut answer = with_length(manifest.bytes);
    let headers = answer.headers_mut();
    set(headers, CONTENT_TYPE.as_str(), manifest.media_type);
    set(headers, DIGEST, manifest.digest);
    answer
}

fn part_of(blob: Blob, range: Option<&str>, head: bool) -> Response<Body> {
    let length = blob.length;
    let mut answer = Response::new(full(Bytes::new()));
    let whole = Part { start: 0, length };
    let part = match blob::range(range, length) {
        Asked::Whole => whole,
        Asked::Part(part) => {
            *answer.status_mut() = StatusCode::PARTIAL_CONTENT;
            let last = part.start.saturating_add(part.length).saturating_sub(1);
            let value = format!("bytes {}-{last}/{length}", part.start);
            set(answer.headers_mut(), CONTENT_RANGE.as_str(), value);
            part
        }
        Asked::Beyond => {
            *answer.status_mut() = StatusCode::RANGE_NOT_SATISFIABLE;
            let value = format!("bytes */{length}");
            set(answer.headers_mut(), CONTENT_RANGE.as_str(), value);
            Part {
                start: length,
                length: 0,
            }
        }
    };
    let headers = answer.headers_mut();
    headers.insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    headers.insert(
        CONTENT_TYPE,
        HeaderValue::from_static("application/octet-stream"),
    );
    headers.insert(CONTENT_LENGTH, HeaderValue::from(part.length));
    set(headers, DIGEST, format!("sha256:{}", blob.digest));
    if !head && part.length > 0 {
        *answer.body_mut() = blob::body(blob.file, part, blob.pending).boxed_unsync();
    }
    answer
}

fn refuse(refusal: &Refusal) -> Response<Body> {
    let mut answer = with_length(refusal.json().into());
    *answer.status_mut() = refusal.status;
    answer.headers_mut().insert(CONTENT_TYPE, JSON);
    if refusal.status == StatusCode::METHOD_NOT_ALLOWED {
        let allowed = HeaderValue::from_static("GET, HEAD");
        answer.headers_mut().insert(ALLOW, allowed);
    }
    answer
}

fn with_length(bytes: Bytes) -> Response<Body> {
    let length = HeaderValue::from(bytes.len());
    let mut answer = Response::new(full(bytes));
    answer.headers_mut().insert(CONTENT_LENGTH, length);
    answer
}

fn full(bytes: Bytes) -> Body {
    Full::new(bytes)
        .map_err(|never: Infallible| match never {})
        .boxed_unsync()
}

/// Sets a header. Every value made here is visible ASCII.
fn set(headers: &mut http::HeaderMap, name: &'static str, value: String) {
    if let Ok(value) = HeaderValue::try_from(value) {
        headers.insert(name, value);
    }
}
