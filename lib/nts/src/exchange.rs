//! The key exchange (RFC 8915, section 4): TLS 1.3, one request, one answer.

use std::io;

use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio_rustls::TlsConnector;
use zeroize::Zeroizing;

use crate::records::{AES_SIV, BadRecords, NTP4, request, response};
use crate::seal::KEY;
use crate::session::{Keys, Session};
use crate::trust::{PROTOCOL, Trust, validity};

/// Exporter label of the keys (RFC 8915, section 5.1).
const LABEL: &[u8] = b"EXPORTER-network-time-security";
/// Direction of a key, in the exporter's context.
const TO_SERVER: u8 = 0;
const TO_CLIENT: u8 = 1;
/// Read buffer in bytes.
const PIECE: usize = 2048;

/// An error of the key exchange.
#[derive(Debug, thiserror::Error)]
pub enum ExchangeError {
    /// The server's name is invalid.
    #[error("{0:?} is not a valid certificate name")]
    Name(String),
    /// The connection failed, or the server's certificate was rejected.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The peer does not speak the protocol.
    #[error("the server does not speak the protocol ntske/1")]
    Protocol,
    /// The validity in the server's certificate cannot be read.
    #[error("the server's certificate cannot be read")]
    Certificate,
    /// TLS exports no keys.
    #[error("TLS exports no keys: {0}")]
    Keys(rustls::Error),
    /// The response is unusable.
    #[error(transparent)]
    Records(#[from] BadRecords),
}

/// Exchanges keys over a connection to the named server. It has no timeout; the caller must set one.
///
/// The client is our own: `ntp-proto` hides its client behind a private feature, and verifies the server's certificate
/// with the system's clock and verifier.
///
/// # Errors
/// The reason of the failure.
pub async fn exchange<S>(stream: S, server: &str, trust: &Trust) -> Result<Session, ExchangeError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let name = ServerName::try_from(server.to_owned())
        .map_err(|_| ExchangeError::Name(server.to_owned()))?;
    let connector = TlsConnector::from(trust.config.clone());
    let mut stream = connector.connect(name, stream).await?;
    let (valid, keys) = {
        let (_, tls) = stream.get_ref();
        if tls.alpn_protocol() != Some(PROTOCOL) {
            return Err(ExchangeError::Protocol);
        }
        let first = tls.peer_certificates().and_then(<[_]>::first);
        let valid = first.and_then(|certificate| validity(certificate));
        let key = |which: u8| export(tls, which).map_err(ExchangeError::Keys);
        let keys = Keys {
            to_server: key(TO_SERVER)?,
            to_client: key(TO_CLIENT)?,
        };
        (valid.ok_or(ExchangeError::Certificate)?, keys)
    };
    stream.write_all(&request()).await?;
    stream.flush().await?;
    let mut bytes = Vec::new();
    let offer = loop {
        let mut piece = [0; PIECE];
        let length = match stream.read(&mut piece).await {
            Ok(length) => length,
            // Some servers close the connection without close_notify.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => 0,
            Err(error) => return Err(error.into()),
        };
        bytes.extend(piece.get(..length).unwrap_or_default());
        match response(&bytes)? {
            Some(offer) => break offer,
            None if length == 0 => return Err(BadRecords::CutOff.into()),
            None => {}
        }
    };
    Ok(Session::new(keys, offer, valid))
}

fn export<D>(
    tls: &rustls::ConnectionCommon<D>,
    which: u8,
) -> Result<Zeroizing<[u8; KEY]>, rustls::Error> {
    let [protocol, algorithm] = [NTP4.to_be_bytes(), AES_SIV.to_be_bytes()];
    let context = [&protocol[..], &algorithm, &[which]].concat();
    let key = tls.export_keying_material([0; KEY], LABEL, Some(&context))?;
    Ok(Zeroizing::new(key))
}

#[cfg(any(test, feature = "testing"))]
/// The keys on the server's side: for reading and for writing.
pub(crate) fn keys_of_server(
    tls: &rustls::ServerConnection,
) -> Result<[Zeroizing<[u8; KEY]>; 2], rustls::Error> {
    Ok([export(tls, TO_SERVER)?, export(tls, TO_CLIENT)?])
}
