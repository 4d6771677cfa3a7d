//! gRPC over a socket in the file system, to the daemons of this machine.

use std::path::Path;
use std::time::Duration;

use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tonic::transport::{Channel, Endpoint, Error, Uri};
use tower::service_fn;

/// A daemon on this machine answers at once or not at all.
const PATIENCE: Duration = Duration::from_secs(5);
/// What of a stream may wait here for who reads it, in bytes. The library's own 2 MiB are what each log that somebody
/// follows and does not read would hold, and more for its small messages, which HTTP/2 ends the connection for.
const STREAM_WINDOW: u32 = 64 * 1024;

/// A connection to who listens at `socket`.
///
/// # Errors
/// Nobody does, or nobody accepts.
pub async fn connect(socket: &Path) -> Result<Channel, Error> {
    let socket = socket.to_owned();
    // The address is never used: the connector knows where to go.
    Endpoint::from_static("http://local")
        .connect_timeout(PATIENCE)
        .initial_stream_window_size(STREAM_WINDOW)
        .connect_with_connector(service_fn(move |_: Uri| {
            let socket = socket.clone();
            async move { UnixStream::connect(socket).await.map(TokioIo::new) }
        }))
        .await
}
