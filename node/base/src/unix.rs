//! gRPC over Unix sockets to the daemons of this machine.

use std::path::Path;
use std::time::Duration;

use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tonic::transport::{Channel, Endpoint, Error, Uri};
use tower::service_fn;

/// Connect timeout: a daemon on this machine answers at once or not at all.
const PATIENCE: Duration = Duration::from_secs(5);
/// HTTP/2 flow-control window of a stream in bytes. With the library's default of 2 MiB, each followed but unread log
/// would buffer that much. Small messages cost even more, and HTTP/2 then ends the connection.
const STREAM_WINDOW: u32 = 64 * 1024;

/// Connects to the server on `socket`.
///
/// # Errors
/// No server listens, or it does not accept in time.
pub async fn connect(socket: &Path) -> Result<Channel, Error> {
    let socket = socket.to_owned();
    // The address is unused: the connector opens the socket.
    Endpoint::from_static("http://local")
        .connect_timeout(PATIENCE)
        .initial_stream_window_size(STREAM_WINDOW)
        .connect_with_connector(service_fn(move |_: Uri| {
            let socket = socket.clone();
            async move { UnixStream::connect(socket).await.map(TokioIo::new) }
        }))
        .await
}
