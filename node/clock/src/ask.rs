//! Queries a time server over UDP, or a clock device.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs as _};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use corten_base::bulkhead::Bulkhead;
use corten_values::is_clock;
use tokio::net::UdpSocket;
use tokio::time::{Instant, timeout};

use super::error::{AskError, PATIENCE};
use super::sntp::{self, BadAnswer, Sample, difference};

/// Limit of the addresses tried per server.
const ADDRESSES: usize = 4;
/// Pause after a server denies service. Pools return the same address again.
const DENIED: Duration = Duration::from_secs(3600);
/// Pause after a server asks for fewer queries: 64 s, doubled each time up to 2048 s (logarithms of seconds).
const SHORTEST_REST: u32 = 6;
const LONGEST_REST: u32 = 11;
/// Limit of remembered addresses, above any list of servers.
const REMEMBERED: usize = 256;

/// Addresses to leave alone: the end of the pause, and the consecutive requests for fewer queries.
#[derive(Debug, Default)]
pub struct Resting(Mutex<BTreeMap<SocketAddr, (Instant, u32)>>);

impl Resting {
    pub(super) fn rests(&self, address: SocketAddr) -> bool {
        let until = self.lock().get(&address).map(|(until, _)| *until);
        until.is_some_and(|until| until > Instant::now())
    }

    pub(super) fn leave(&self, address: SocketAddr, bad: &BadAnswer) {
        let mut resting = self.lock();
        let before = resting.get(&address).map_or(0, |(_, times)| *times);
        let (span, times) = match bad {
            BadAnswer::Rate => {
                let log = LONGEST_REST.min(SHORTEST_REST.saturating_add(before));
                (Duration::from_secs(1 << log), before.saturating_add(1))
            }
            BadAnswer::Denied(_) => (DENIED, before),
            _ => return,
        };
        let now = Instant::now();
        if resting.len() >= REMEMBERED {
            resting.retain(|_, (until, _)| *until > now);
        }
        if resting.len() < REMEMBERED {
            resting.insert(address, (now + span, times));
        }
    }

    pub(super) fn forget(&self, address: SocketAddr) {
        self.lock().remove(&address);
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<SocketAddr, (Instant, u32)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An answer of a server or a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answer {
    /// Measured time.
    pub sample: Sample,
    /// Address of the server; `None` for a device.
    pub from: Option<IpAddr>,
}

/// Queries a server by name or address (optionally with a port), or a device by path. `names` runs the name resolution,
/// which may block. `resting` has the addresses to skip.
///
/// # Errors
/// The error of the last address that was tried.
pub async fn ask(server: &str, names: &Bulkhead, resting: &Resting) -> Result<Answer, AskError> {
    if server.starts_with('/') {
        if !is_clock(server) {
            return Err(AskError::NoClock);
        }
        let sample = of_device(Path::new(server))?;
        return Ok(Answer { sample, from: None });
    }
    let mut found = addresses(server, sntp::PORT, names).await?;
    found.retain(|address| !resting.rests(*address));
    let mut last = AskError::Rests;
    for address in found.into_iter().take(ADDRESSES) {
        match at(address).await {
            Ok(sample) => {
                resting.forget(address);
                let from = Some(address.ip());
                return Ok(Answer { sample, from });
            }
            Err(error) => {
                if let AskError::Bad(bad) = &error {
                    resting.leave(address, bad);
                }
                last = error;
            }
        }
    }
    Err(last)
}

/// Addresses of a server, given its name or an address with an optional port.
///
/// # Errors
/// The name has no address.
pub(super) async fn addresses(
    server: &str,
    port: u16,
    names: &Bulkhead,
) -> Result<Vec<SocketAddr>, AskError> {
    let address = server
        .parse()
        .map(|address| SocketAddr::new(address, port))
        .or_else(|_| server.parse());
    let found = match address {
        Ok(address) => vec![address],
        Err(_) => resolve(server.to_owned(), port, names).await?,
    };
    if found.is_empty() {
        return Err(AskError::Name(io::ErrorKind::NotFound.into()));
    }
    Ok(found)
}

/// Resolves a name with the C library, i.e. the hosts file and the name servers. This can block without limit.
async fn resolve(server: String, port: u16, names: &Bulkhead) -> Result<Vec<SocketAddr>, AskError> {
    let resolve = move || {
        let found = (server.as_str(), port).to_socket_addrs()?;
        Ok(found.collect())
    };
    let found = names.run(resolve).await.map_err(AskError::Unresolved)?;
    found.map_err(AskError::Name)
}

/// A UDP socket for one server.
pub(super) async fn connect(server: SocketAddr) -> io::Result<UdpSocket> {
    let local: SocketAddr = if server.is_ipv4() {
        (Ipv4Addr::UNSPECIFIED, 0).into()
    } else {
        (Ipv6Addr::UNSPECIFIED, 0).into()
    };
    let socket = UdpSocket::bind(local).await?;
    // The kernel then drops packets from other addresses.
    socket.connect(server).await?;
    Ok(socket)
}

/// A random cookie that identifies the answer.
pub(super) fn random() -> io::Result<[u8; 8]> {
    let mut cookie = [0; 8];
    rustix::rand::getrandom(&mut cookie, rustix::rand::GetRandomFlags::empty())?;
    Ok(cookie)
}

/// Queries one address.
async fn at(server: SocketAddr) -> Result<Sample, AskError> {
    let socket = connect(server).await?;
    let cookie = random()?;
    let left = SystemTime::now();
    socket.send(&sntp::question(cookie)).await?;
    let answered = async {
        loop {
            let mut packet = [0; 512];
            let length = socket.recv(&mut packet).await?;
            let came = SystemTime::now();
            let packet = packet.get(..length).unwrap_or_default();
            match sntp::answer(packet, cookie, left, came) {
                // The real answer may still arrive.
                Err(BadAnswer::NotOurs | BadAnswer::Short(_)) => {}
                other => return Ok(other?),
            }
        }
    };
    timeout(PATIENCE, answered)
        .await
        .unwrap_or(Err(AskError::Silent))
}

/// Reads a device's clock between two readings of ours.
fn of_device(path: &Path) -> io::Result<Sample> {
    let left = SystemTime::now();
    let theirs = corten_sys::clock::of_device(path)?;
    let came = SystemTime::now();
    let nanoseconds = |number: i128| i64::try_from(number).unwrap_or(i64::MAX);
    let delay = difference(came, left);
    Ok(Sample {
        offset: nanoseconds(difference(theirs, left) - delay / 2),
        delay: nanoseconds(delay),
        distance: 0,
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use corten_base::bulkhead::Refused;

    use super::*;

    /// A server that first sends a bad packet and then the answer, or this kiss code (RFC 5905, section 7.4).
    pub async fn serve(kiss: Option<&'static [u8; 4]>) -> SocketAddr {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = socket.local_addr().unwrap();
        tokio::spawn(async move {
            let mut question = [0; 64];
            let (length, from) = socket.recv_from(&mut question).await.unwrap();
            assert_eq!(length, sntp::SIZE);
            socket.send_to(b"?", from).await.unwrap();
            let mut answer = [0; sntp::SIZE];
            answer[0] = 0x24;
            answer[1] = u8::from(kiss.is_none());
            answer[12..16].copy_from_slice(kiss.unwrap_or(b"GPS\0"));
            socket.send_to(&answer, from).await.unwrap();
            answer[24..32].copy_from_slice(&question[40..48]);
            // 2030, in both timestamps.
            for at in [32, 40] {
                answer[at..at + 4].copy_from_slice(&4_102_444_800_u32.to_be_bytes());
            }
            socket.send_to(&answer, from).await.unwrap();
            // A second query gets no answer.
            std::future::pending::<()>().await;
        });
        address
    }

    #[tokio::test]
    async fn answers_of_other_addresses_are_ignored() {
        let sample = at(serve(None).await).await.unwrap();
        let year_2030 = SystemTime::UNIX_EPOCH + Duration::from_secs(1_893_456_000);
        let expected = difference(year_2030, SystemTime::now());
        let error = (i128::from(sample.offset) - expected).abs();
        assert!(error < 10_000_000_000, "{sample:?}");
        let denied = at(serve(Some(b"DENY")).await).await.unwrap_err();
        assert!(denied.to_string().contains("DENY"), "{denied}");
    }

    #[tokio::test]
    async fn invalid_clock_devices_are_errors() {
        let names = Bulkhead::new(1, PATIENCE);
        for path in [
            "/dev/null",
            "/dev/watchdog",
            "/dev/ptp",
            "/dev/ptp0/../null",
        ] {
            let error = ask(path, &names, &Resting::default()).await.unwrap_err();
            assert!(matches!(error, AskError::NoClock), "{path}: {error}");
        }
        let none = ask("/dev/ptp_none", &names, &Resting::default()).await;
        assert!(matches!(none, Err(AskError::Io(_))));
    }

    #[tokio::test]
    async fn server_that_sent_a_kiss_of_death_is_not_queried_again() {
        let names = Bulkhead::new(1, PATIENCE);
        for kiss in [b"RATE", b"DENY"] {
            let (server, resting) = (serve(Some(kiss)).await, Resting::default());
            let name = server.to_string();
            let refused = ask(&name, &names, &resting).await.unwrap_err();
            assert!(matches!(refused, AskError::Bad(_)), "{refused}");
            let left = ask(&name, &names, &resting).await.unwrap_err();
            assert!(matches!(left, AskError::Rests), "{left}");
        }
    }

    #[test]
    fn rest_periods_grow_expire_and_are_bounded() {
        let resting = Resting::default();
        let address = |port: u16| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let left = |resting: &Resting, port| {
            let until = resting.lock().get(&address(port)).unwrap().0;
            until.saturating_duration_since(Instant::now())
        };
        let seconds = Duration::from_secs;
        resting.leave(address(1), &BadAnswer::Rate);
        assert!((seconds(60)..=seconds(64)).contains(&left(&resting, 1)));
        for _ in 0..10 {
            resting.leave(address(1), &BadAnswer::Rate);
        }
        assert!((seconds(2000)..=seconds(2048)).contains(&left(&resting, 1)));
        resting.leave(address(1), &BadAnswer::NotOurs);
        assert!(left(&resting, 1) <= seconds(2048) && resting.rests(address(1)));
        resting.lock().insert(address(2), (Instant::now(), 1));
        assert!(!resting.rests(address(2)));
        for port in 3..1000 {
            resting.leave(address(port), &BadAnswer::Rate);
        }
        assert_eq!(resting.lock().len(), REMEMBERED);
        assert!(!resting.lock().contains_key(&address(2)));
    }

    #[tokio::test]
    async fn names_are_resolved_in_a_bulkhead_and_addresses_without_it() {
        let nobody = Bulkhead::new(0, PATIENCE);
        let error = ask("time.example.com", &nobody, &Resting::default()).await;
        assert!(
            matches!(error, Err(AskError::Unresolved(Refused::Full(0)))),
            "{error:?}"
        );
        let server = serve(Some(b"DENY")).await.to_string();
        let denied = ask(&server, &nobody, &Resting::default()).await;
        let denied = denied.unwrap_err();
        assert!(denied.to_string().contains("DENY"), "{denied}");
        let names = Bulkhead::new(1, PATIENCE);
        let found = resolve("localhost".to_owned(), sntp::PORT, &names)
            .await
            .unwrap();
        assert!(found.iter().all(|address| address.ip().is_loopback()));
        assert!(!found.is_empty());
    }
}
