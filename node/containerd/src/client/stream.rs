//! containerd's streams: bidirectional message pipes that accompany a call (`streaming.proto`; contents:
//! `core/transfer/streaming`).

use containerd_client::services::v1::StreamInit;
use containerd_client::to_any;
use prost::{Message, Name};
use prost_types::Any;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Status, Streaming};

use super::{Session, client};

/// Queue length of messages to containerd.
const IN_FLIGHT: usize = 4;

/// Both ends of a stream, known to containerd by its id.
#[derive(Debug)]
pub(super) struct Pipe {
    /// Id for the call that uses the stream.
    pub(super) id: String,
    sender: mpsc::Sender<Any>,
    receiver: Streaming<Any>,
}

impl Pipe {
    /// Opens a stream, which is ready on return.
    pub(super) async fn open(session: &Session) -> Result<Pipe, Status> {
        let id = uuid::Uuid::new_v4().to_string();
        let (sender, messages) = mpsc::channel(IN_FLIGHT);
        let first = StreamInit { id: id.clone() };
        // The channel is empty and has room.
        let _ = sender.try_send(to_any(&first));
        let mut receiver = client!(session, streaming_client::StreamingClient)
            .stream(ReceiverStream::new(messages))
            .await?
            .into_inner();
        // containerd confirms the stream with an empty message.
        receiver.message().await?;
        Ok(Pipe {
            id,
            sender,
            receiver,
        })
    }

    /// The next message; `None` at the end. Messages of other types are skipped.
    pub(super) async fn next<T: Message + Name + Default>(&mut self) -> Result<Option<T>, Status> {
        while let Some(any) = self.receiver.message().await? {
            if any.type_url.rsplit('/').next() == Some(T::full_name().as_str()) {
                let message = T::decode(any.value.as_slice());
                return message
                    .map(Some)
                    .map_err(|_| Status::internal("containerd sent a malformed message"));
            }
        }
        Ok(None)
    }

    /// Closes our side, and waits until containerd has ended the stream: closing the connection would lose messages in
    /// flight.
    pub(super) async fn finish(self) {
        let Pipe {
            sender,
            mut receiver,
            ..
        } = self;
        drop(sender);
        while let Ok(Some(_)) = receiver.message().await {}
    }

    /// Sends a message.
    pub(super) async fn send(&self, message: Any) -> Result<(), Status> {
        let sent = self.sender.send(message).await;
        sent.map_err(|_| Status::unavailable("containerd ended the stream; try again"))
    }
}
