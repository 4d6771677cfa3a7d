//! Tests whether a TLS server answers, without a TLS implementation.
//!
//! A connection proves nothing, because QEMU's user network accepts every one. A TLS server answers a `ClientHello`
//! with a handshake record or an alert (RFC 8446, sections 4.1.2 and 5.1); this module accepts both.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Record types of an answer.
const ALERT: u8 = 0x15;
const HANDSHAKE: u8 = 0x16;

/// Appends `body` after its length in `width` bytes.
fn prefixed(out: &mut Vec<u8>, width: usize, body: &[u8]) {
    let length = body.len().to_be_bytes();
    out.extend_from_slice(length.get(length.len() - width..).unwrap_or_default());
    out.extend_from_slice(body);
}

/// A TLS 1.3 `ClientHello` with a key share that has no known private key.
fn client_hello() -> Vec<u8> {
    let mut extensions = Vec::new();
    let mut extension = |kind: u16, body: &[u8]| {
        extensions.extend_from_slice(&kind.to_be_bytes());
        prefixed(&mut extensions, 2, body);
    };
    // supported_versions: 1.3; supported_groups: x25519.
    extension(43, &[2, 0x03, 0x04]);
    extension(10, &[0, 2, 0x00, 0x1d]);
    // signature_algorithms: ecdsa_secp256r1_sha256, rsa_pss_rsae_sha256, ed25519.
    extension(13, &[0, 6, 0x04, 0x03, 0x08, 0x04, 0x08, 0x07]);
    // application_layer_protocol_negotiation: h2, which gRPC requires.
    extension(16, &[0, 3, 2, b'h', b'2']);
    let mut share = vec![0, 36, 0x00, 0x1d, 0, 32, 9];
    share.extend_from_slice(&[0; 31]);
    extension(51, &share);

    let mut hello = vec![0x03, 0x03];
    hello.extend_from_slice(&[0x42; 32]);
    prefixed(&mut hello, 1, &[]);
    prefixed(&mut hello, 2, &[0x13, 0x01, 0x13, 0x02, 0x13, 0x03]);
    prefixed(&mut hello, 1, &[0]);
    prefixed(&mut hello, 2, &extensions);

    let mut message = vec![1];
    prefixed(&mut message, 3, &hello);
    let mut record = vec![HANDSHAKE, 0x03, 0x01];
    prefixed(&mut record, 2, &message);
    record
}

/// Makes one attempt; `Err` describes the failure.
pub(crate) fn ask(address: SocketAddr, patience: Duration) -> Result<(), String> {
    let attempt = || -> std::io::Result<u8> {
        let mut stream = TcpStream::connect_timeout(&address, patience)?;
        stream.set_read_timeout(Some(patience))?;
        stream.set_write_timeout(Some(patience))?;
        stream.write_all(&client_hello())?;
        let mut first = [0_u8];
        stream.read_exact(&mut first)?;
        Ok(first[0])
    };
    match attempt() {
        Ok(ALERT | HANDSHAKE) => Ok(()),
        Ok(other) => Err(format!(
            "something that is not TLS (first byte {other:#04x})"
        )),
        Err(error) => Err(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    fn answered(with: &'static [u8]) -> Result<(), String> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut head = [0; 5];
            stream.read_exact(&mut head).unwrap();
            let length = usize::from(u16::from_be_bytes([head[3], head[4]]));
            let mut body = vec![0; length];
            stream.read_exact(&mut body).unwrap();
            assert_eq!((head[0], body[0]), (HANDSHAKE, 1));
            assert_eq!(
                usize::from(body[3]) + 256 * usize::from(body[2]),
                length - 4
            );
            stream.write_all(with).unwrap();
        });
        let verdict = ask(address, Duration::from_secs(60));
        server.join().unwrap();
        verdict
    }

    #[test]
    fn handshake_and_alert_are_tls_answers() {
        answered(&[HANDSHAKE, 3, 3]).unwrap();
        answered(&[ALERT, 3, 3]).unwrap();
    }

    #[test]
    fn silence_and_other_protocols_are_no_tls_answer() {
        assert!(answered(b"").is_err());
        assert!(answered(b"HTTP/1.1 400").unwrap_err().contains("not TLS"));
    }
}
