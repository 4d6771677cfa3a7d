//! A test server: keys over TLS, and authenticated responses.
#![expect(clippy::unwrap_used, reason = "a server that fails is a failing test")]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use rustls::ServerConfig;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio_rustls::TlsAcceptor;
use zeroize::Zeroizing;

use crate::HEADER;
use crate::exchange::keys_of_server;
use crate::fields::server::{nak, read, write};
use crate::records;
use crate::seal::KEY;

/// The keys of the clients; the first byte of a cookie is the index, the number of the exchange.
type Known = Mutex<Vec<[Zeroizing<[u8; KEY]>; 2]>>;

/// A key exchange server and an NTP server; the test supplies the time.
#[derive(Clone)]
pub struct Server {
    config: Arc<ServerConfig>,
    known: Arc<Known>,
    cookies: Arc<AtomicUsize>,
    ntp: Option<(String, u16)>,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Server({:?})", self.ntp)
    }
}

impl Server {
    /// A server with this certificate and these protocols; `ntp`: the time server that it names.
    #[must_use]
    pub fn new(
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
        protocols: &[&[u8]],
        ntp: Option<(String, u16)>,
    ) -> Server {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .unwrap();
        config.alpn_protocols = protocols.iter().map(|one| one.to_vec()).collect();
        Server {
            config: Arc::new(config),
            known: Arc::default(),
            cookies: Arc::default(),
            ntp,
        }
    }

    /// Exchanges keys with a client, and gives it two cookies.
    pub async fn exchange(&self, stream: impl AsyncRead + AsyncWrite + Unpin) {
        let acceptor = TlsAcceptor::from(self.config.clone());
        // The client closes the connection if it rejects the server.
        let Ok(mut stream) = acceptor.accept(stream).await else {
            return;
        };
        let mut asked = [0; 16];
        if stream.read_exact(&mut asked).await.is_err() {
            return;
        }
        assert_eq!(asked.as_slice(), records::request());
        let keys = keys_of_server(stream.get_ref().1).unwrap();
        let number = {
            let mut known = self.known.lock().unwrap();
            known.push(keys);
            u8::try_from(known.len() - 1).unwrap()
        };
        let mut answer = records::request();
        answer.truncate(answer.len() - 4);
        let mut push = |kind: u16, body: &[u8]| {
            answer.extend(kind.to_be_bytes());
            answer.extend(u16::try_from(body.len()).unwrap().to_be_bytes());
            answer.extend(body);
        };
        for _ in 0..2 {
            push(5, &self.cookie(number));
        }
        if let Some((name, port)) = &self.ntp {
            push(6, name.as_bytes());
            push(7, &port.to_be_bytes());
        }
        push(0x8000, &[]);
        // In two pieces, as a network may deliver it.
        let (one, other) = answer.split_at(5);
        for piece in [one, other] {
            stream.write_all(piece).await.unwrap();
            stream.flush().await.unwrap();
        }
        let _ = stream.shutdown().await;
    }

    fn cookie(&self, number: u8) -> Vec<u8> {
        let unique = self.cookies.fetch_add(1, Ordering::Relaxed);
        let mut cookie = vec![number; 64];
        *cookie.last_mut().unwrap() = u8::try_from(unique % 256).unwrap();
        cookie
    }

    /// Number of cookies given so far.
    #[must_use]
    pub fn given(&self) -> usize {
        self.cookies.load(Ordering::Relaxed)
    }

    /// Forgets all keys, like a restarted server.
    pub fn forget(&self) {
        for keys in self.known.lock().unwrap().iter_mut() {
            *keys = [Zeroizing::new([0; KEY]), Zeroizing::new([0; KEY])];
        }
    }

    /// Answers a request with `header` applied to its header, authenticated. An unknown cookie is refused; `None` for
    /// an invalid request.
    pub fn answer(
        &self,
        packet: &[u8],
        header: impl FnOnce(&[u8; HEADER]) -> [u8; HEADER],
    ) -> Option<Vec<u8>> {
        let known = self.known.lock().unwrap();
        let keys = |cookie: &[u8]| known.get(usize::from(*cookie.first()?));
        let Some(asked) = read(packet, |cookie| Some(*keys(cookie)?[0])) else {
            // The identifier field of a request directly follows its header.
            return nak(packet.get(HEADER + 4..HEADER + 36)?);
        };
        let number = *asked.cookie.first()?;
        let cookies: Vec<Vec<u8>> = (0..asked.wanted).map(|_| self.cookie(number)).collect();
        let header = header(packet.first_chunk()?);
        write(&header, &asked.unique, &cookies, &keys(&asked.cookie)?[1])
    }
}
