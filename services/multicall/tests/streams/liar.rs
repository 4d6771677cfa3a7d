//! A hostile node or machined: it answers a call with as many one-byte frames as HTTP/2's window allows. The first
//! answer on a connection is a single byte, so that the cost of the connection itself is not measured.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use rustls::{ServerConfig, ServerConnection, StreamOwned};

/// Kinds and flags of frames (RFC 9113, section 6).
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const END_STREAM: u8 = 1;
const ACK: u8 = 1;
const END_HEADERS: u8 = 4;
const INITIAL_WINDOW_SIZE: u16 = 4;
/// Length of the client preface (section 3.4).
const PREFACE: usize = 24;
/// Status 200 and gRPC's content type (RFC 7541, sections 6.1 and 6.2.2).
const GOOD: &[u8] = b"\x88\x0f\x10\x10application/grpc";

/// Serves at a socket; counts the bytes of answers sent.
pub fn at_socket(socket: &Path) -> Arc<AtomicUsize> {
    let listener = UnixListener::bind(socket).unwrap();
    serve(move || listener.accept().unwrap().0)
}

/// Serves as another node.
pub fn at_address(address: SocketAddr, tls: ServerConfig) -> Arc<AtomicUsize> {
    let listener = TcpListener::bind(address).unwrap();
    let tls = Arc::new(tls);
    serve(move || {
        let connection = ServerConnection::new(tls.clone()).unwrap();
        StreamOwned::new(connection, listener.accept().unwrap().0)
    })
}

fn serve<S: Read + Write + Send + 'static>(
    accept: impl Fn() -> S + Send + 'static,
) -> Arc<AtomicUsize> {
    let sent = Arc::<AtomicUsize>::default();
    let ours = sent.clone();
    thread::spawn(move || {
        loop {
            let (stream, sent) = (accept(), ours.clone());
            // Ends when its client does.
            thread::spawn(move || lie(stream, &sent));
        }
    });
    sent
}

fn lie(mut stream: impl Read + Write, sent: &AtomicUsize) -> io::Result<()> {
    stream.read_exact(&mut [0; PREFACE])?;
    stream.write_all(&frame(SETTINGS, 0, [0; 4], &[]))?;
    let (mut window, mut bytes) = (0, 1);
    loop {
        stream.flush()?;
        let mut head = [0; 9];
        stream.read_exact(&mut head)?;
        let [high, middle, low, kind, flags, id @ ..] = head;
        let length = u32::from_be_bytes([0, high, middle, low]);
        let mut payload = vec![0; usize::try_from(length).unwrap()];
        stream.read_exact(&mut payload)?;
        match kind {
            SETTINGS if flags & ACK == 0 => {
                window = initial_window(&payload).unwrap_or(window);
                stream.write_all(&frame(SETTINGS, ACK, id, &[]))?;
            }
            PING if flags & ACK == 0 => stream.write_all(&frame(PING, ACK, id, &payload))?,
            DATA | HEADERS if flags & END_STREAM != 0 => {
                let data = frame(DATA, 0, id, b"x").repeat(bytes);
                stream.write_all(&frame(HEADERS, END_HEADERS, id, GOOD))?;
                stream.write_all(&data)?;
                sent.fetch_add(bytes, Ordering::SeqCst);
                bytes = window;
            }
            _ => {}
        }
    }
}

fn frame(kind: u8, flags: u8, [a, b, c, d]: [u8; 4], payload: &[u8]) -> Vec<u8> {
    let length = u8::try_from(payload.len()).unwrap();
    let head = [0, 0, length, kind, flags, a, b, c, d];
    [&head, payload].concat()
}

fn initial_window(settings: &[u8]) -> Option<usize> {
    let (settings, _) = settings.as_chunks::<6>();
    settings.iter().find_map(|[id @ .., a, b, c, d]| {
        let is_it = u16::from_be_bytes(*id) == INITIAL_WINDOW_SIZE;
        let size = u32::from_be_bytes([*a, *b, *c, *d]);
        is_it.then(|| usize::try_from(size).unwrap())
    })
}
