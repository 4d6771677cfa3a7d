//! The machine that runs the tests, as a caller of the API sees it.

mod files;
mod network;
mod reads;

use tokio_stream::StreamExt as _;
use tonic::Status;

use crate::stream::{Flow, Sink, stream};

/// All messages of a stream, or its error.
async fn all<T: Send + 'static>(
    make: impl FnOnce(&Sink<T>) -> Flow + Send + 'static,
) -> Result<Vec<T>, Status> {
    stream((), make)?.collect().await
}
