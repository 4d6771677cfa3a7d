//! Types of bodies, and refusals.

use bytes::Bytes;
use http::Response;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Empty};
use tonic::Status;

/// Any error while a body is passed on; HTTP/2 resets the stream.
pub(crate) type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// A body on its way to the caller.
pub(crate) type Body = UnsyncBoxBody<Bytes, BoxError>;

/// Bytes that hold `held` until they are sent. HTTP/2 takes a body's data at once, so the body may be gone while its
/// data waits for a slow caller.
pub(crate) fn counted(bytes: Bytes, held: impl Send + 'static) -> Bytes {
    Bytes::from_owner(Counted { bytes, _held: held })
}

struct Counted<T> {
    bytes: Bytes,
    _held: T,
}

impl<T> AsRef<[u8]> for Counted<T> {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// An answer that is only a status (gRPC's "trailers-only").
pub(crate) fn refusal(status: &Status) -> Response<Body> {
    let empty = || Empty::new().map_err(|never| match never {}).boxed_unsync();
    let response = status.clone().into_http::<()>();
    let (parts, ()) = response.into_parts();
    Response::from_parts(parts, empty())
}
