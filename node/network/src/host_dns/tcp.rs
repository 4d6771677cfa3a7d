//! The DNS cache over TCP (RFC 7766). hickory's own listener accepts any number of connections, and the clients here
//! are untrusted pods.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use hickory_resolver::net::BufDnsStreamHandle;
use hickory_resolver::net::runtime::TokioTime;
use hickory_resolver::net::xfer::Protocol;
use hickory_server::server::{Request, RequestHandler as _, ResponseHandle};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::forwarder::Forwarder;

/// Limit of concurrent connections to an address; more wait in the kernel's queue. Each one needs at most 128 KiB for a
/// query and its answer.
pub(super) const CONNECTIONS: usize = 64;
/// Timeout for reading a whole query and for writing an answer. A slow client loses its place.
const PATIENCE: Duration = Duration::from_secs(10);
/// Pause after a failed accept (no file descriptors left), to avoid a busy loop.
const PAUSE: Duration = Duration::from_millis(100);

/// Accepts connections for ever; each one takes one of the places.
pub(super) async fn serve(listener: TcpListener, forwarder: Forwarder, places: Arc<Semaphore>) {
    let mut connections = JoinSet::new();
    // A place comes before accepting, so that excess clients cost no file descriptor.
    while let Ok(place) = places.clone().acquire_owned().await {
        match listener.accept().await {
            Ok((stream, peer)) => {
                let (forwarder, places) = (forwarder.clone(), places.clone());
                connections.spawn(async move {
                    let _place = place;
                    connection(stream, peer, forwarder, &places).await;
                });
            }
            Err(_) => sleep(PAUSE).await,
        }
        while connections.try_join_next().is_some() {}
    }
}

/// Answers one query after the other. Errors of the client only end the connection. When all places are taken, the
/// connection closes after an answer (RFC 7766, section 6.2.3), because other clients may wait.
async fn connection(
    mut stream: TcpStream,
    peer: SocketAddr,
    forwarder: Forwarder,
    places: &Semaphore,
) {
    let _ = stream.set_nodelay(true);
    while let Ok(Ok(question)) = timeout(PATIENCE, read(&mut stream)).await {
        let Some(answer) = answer(question, peer, &forwarder).await else {
            return;
        };
        let written = timeout(PATIENCE, write(&mut stream, &answer)).await;
        if !matches!(written, Ok(Ok(()))) || places.available_permits() == 0 {
            return;
        }
    }
}

/// Reads a message, which follows its length (RFC 1035, section 4.2.2).
async fn read(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let length = stream.read_u16().await?;
    let mut message = vec![0; length.into()];
    stream.read_exact(&mut message).await?;
    Ok(message)
}

async fn write(stream: &mut TcpStream, message: &[u8]) -> io::Result<()> {
    let length = u16::try_from(message.len()).map_err(io::Error::other)?;
    // In one write: some clients expect the length and the message in one segment.
    let framed = [&length.to_be_bytes(), message].concat();
    stream.write_all(&framed).await
}

/// Bytes of the answer; `None` when the query is not a DNS message.
async fn answer(question: Vec<u8>, peer: SocketAddr, forwarder: &Forwarder) -> Option<Vec<u8>> {
    let request = Request::from_bytes(question, peer, Protocol::Tcp).ok()?;
    let (sender, mut answers) = BufDnsStreamHandle::with_buffer_size(peer, 1);
    let response = ResponseHandle::new(peer, sender, Protocol::Tcp);
    forwarder
        .handle_request::<_, TokioTime>(&request, response)
        .await;
    let (bytes, _) = answers.next().await?.into_parts();
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use corten_corpus::{hostile, samples};
    use proptest::prelude::{prop_assert, proptest};

    use super::*;

    /// Answer to a message from a forwarder without name servers.
    fn said_to(bytes: &[u8]) -> Option<Vec<u8>> {
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        let peer = SocketAddr::from(([127, 0, 0, 1], 5353));
        let nobody = Forwarder::default();
        let answered = answer(bytes.to_vec(), peer, &nobody);
        runtime.unwrap().block_on(answered)
    }

    #[test]
    fn corpus_samples_get_an_answer() {
        for sample in samples("dns") {
            let answer = said_to(&sample.bytes);
            let is_question = !["answer", "two-questions"].contains(&&*sample.name);
            assert!(answer.is_some() || !is_question, "{}", sample.name);
        }
    }

    proptest! {
        #[test]
        fn hostile_queries_get_a_matching_answer_or_none(bytes in hostile("dns")) {
            if let Some(answer) = said_to(&bytes) {
                prop_assert!(answer.len() >= 12 && answer[..2] == bytes[..2]);
                prop_assert!(answer[2] & 0x80 != 0, "no response: {answer:?}");
            }
        }
    }
}
