//! Asking: a server over UDP, or a device.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs as _};
use std::path::Path;
use std::time::{Duration, SystemTime};

use tokio::net::UdpSocket;
use tokio::time::timeout;

use super::sntp::{self, BadAnswer, Sample, difference};
use crate::bulkhead::{Bulkhead, Refused};

/// For a name to be resolved, and for an answer to come.
pub const PATIENCE: Duration = Duration::from_secs(5);
/// Of a server's addresses, so many are tried.
const ADDRESSES: usize = 4;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// Its name cannot be resolved.
    #[error("its name cannot be resolved: {0}")]
    Name(io::Error),
    /// Nobody resolves its name now.
    #[error("its name cannot be resolved: {0}")]
    Unresolved(Refused),
    /// The network, or the device, has an error.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// None came in time.
    #[error("no answer within {} s", PATIENCE.as_secs())]
    Silent,
    /// It is of no use.
    #[error(transparent)]
    Bad(#[from] BadAnswer),
}

/// Asks a server by its name or address (with a port that is not the usual one, if any), or a device by its
/// path. `names`: the threads that resolve names, which may take its time.
///
/// # Errors
/// Those of the last of its addresses.
pub async fn ask(server: &str, names: &Bulkhead) -> Result<Sample, AskError> {
    if server.starts_with('/') {
        return Ok(of_device(Path::new(server))?);
    }
    let address = server
        .parse()
        .map(|address| SocketAddr::new(address, sntp::PORT))
        .or_else(|_| server.parse());
    let resolved = match address {
        Ok(address) => vec![address],
        Err(_) => resolve(server.to_owned(), names).await?,
    };
    let mut last = AskError::Name(io::ErrorKind::NotFound.into());
    for address in resolved.into_iter().take(ADDRESSES) {
        match at(address).await {
            Ok(sample) => return Ok(sample),
            // What it says it says of all of them.
            Err(AskError::Bad(bad @ (BadAnswer::Rate | BadAnswer::Denied(_)))) => {
                return Err(bad.into());
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// By the hosts file and the name servers, as the C library has it; that waits as long as it likes.
async fn resolve(server: String, names: &Bulkhead) -> Result<Vec<SocketAddr>, AskError> {
    let resolve = move || {
        let found = (server.as_str(), sntp::PORT).to_socket_addrs()?;
        Ok(found.collect())
    };
    let found = names.run(resolve).await.map_err(AskError::Unresolved)?;
    found.map_err(AskError::Name)
}

/// Asks one address.
async fn at(server: SocketAddr) -> Result<Sample, AskError> {
    let local: SocketAddr = if server.is_ipv4() {
        (Ipv4Addr::UNSPECIFIED, 0).into()
    } else {
        (Ipv6Addr::UNSPECIFIED, 0).into()
    };
    let socket = UdpSocket::bind(local).await?;
    // Nobody else's packets come in then.
    socket.connect(server).await?;
    let mut cookie = [0; 8];
    rustix::rand::getrandom(&mut cookie, rustix::rand::GetRandomFlags::empty())
        .map_err(io::Error::from)?;
    let left = SystemTime::now();
    socket.send(&sntp::question(cookie)).await?;
    let answered = async {
        loop {
            let mut packet = [0; 512];
            let length = socket.recv(&mut packet).await?;
            let came = SystemTime::now();
            let packet = packet.get(..length).unwrap_or_default();
            match sntp::answer(packet, cookie, left, came) {
                // The right one may still come.
                Err(BadAnswer::NotOurs | BadAnswer::Short(_)) => {}
                other => return Ok(other?),
            }
        }
    };
    timeout(PATIENCE, answered)
        .await
        .unwrap_or(Err(AskError::Silent))
}

/// A device's clock between two looks at ours.
fn of_device(path: &Path) -> io::Result<Sample> {
    let left = SystemTime::now();
    let theirs = corten_sys::clock::of_device(path)?;
    let came = SystemTime::now();
    let nanoseconds = |number: i128| i64::try_from(number).unwrap_or(i64::MAX);
    let delay = difference(came, left);
    Ok(Sample {
        offset: nanoseconds(difference(theirs, left) - delay / 2),
        delay: nanoseconds(delay),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that first sends what is not an answer.
    async fn serve(kiss: bool) -> SocketAddr {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = socket.local_addr().unwrap();
        tokio::spawn(async move {
            let mut question = [0; 64];
            let (length, from) = socket.recv_from(&mut question).await.unwrap();
            assert_eq!(length, sntp::SIZE);
            socket.send_to(b"?", from).await.unwrap();
            let mut answer = [0; sntp::SIZE];
            answer[0] = 0x24;
            answer[1] = u8::from(!kiss);
            answer[12..16].copy_from_slice(b"DENY");
            socket.send_to(&answer, from).await.unwrap();
            answer[24..32].copy_from_slice(&question[40..48]);
            // 2030, at both times.
            for at in [32, 40] {
                answer[at..at + 4].copy_from_slice(&4_102_444_800_u32.to_be_bytes());
            }
            socket.send_to(&answer, from).await.unwrap();
        });
        address
    }

    #[tokio::test]
    async fn a_server_is_asked_and_strangers_are_not_heard() {
        let sample = at(serve(false).await).await.unwrap();
        let year_2030 = SystemTime::UNIX_EPOCH + Duration::from_secs(1_893_456_000);
        let expected = difference(year_2030, SystemTime::now());
        let error = (i128::from(sample.offset) - expected).abs();
        assert!(error < 10_000_000_000, "{sample:?}");
        let denied = at(serve(true).await).await.unwrap_err();
        assert!(denied.to_string().contains("DENY"), "{denied}");
    }

    #[tokio::test]
    async fn who_cannot_be_asked_is_told() {
        let names = Bulkhead::new(1, PATIENCE);
        let error = ask("/dev/null", &names).await.unwrap_err();
        assert!(matches!(error, AskError::Io(_)), "{error}");
    }

    #[tokio::test]
    async fn names_are_resolved_apart_and_addresses_need_nobody() {
        let nobody = Bulkhead::new(0, PATIENCE);
        let error = ask("time.example.com", &nobody).await.unwrap_err();
        assert!(
            matches!(error, AskError::Unresolved(Refused::Full(0))),
            "{error}"
        );
        let server = serve(true).await;
        let denied = ask(&server.to_string(), &nobody).await.unwrap_err();
        assert!(denied.to_string().contains("DENY"), "{denied}");
        let names = Bulkhead::new(1, PATIENCE);
        let found = resolve("localhost".to_owned(), &names).await.unwrap();
        assert!(found.iter().all(|address| address.ip().is_loopback()));
        assert!(!found.is_empty());
    }
}
