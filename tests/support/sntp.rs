//! An SNTP server on this machine with an adjustable time (RFC 4330).

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Seconds from 1900, NTP's epoch, to 1970.
const FROM_1900: u64 = 2_208_988_800;
const PACKET: usize = 48;

/// A server that runs until the test ends.
#[derive(Debug)]
pub struct TimeServer {
    port: u16,
    ahead: Arc<AtomicI64>,
    asked: Arc<AtomicUsize>,
}

impl TimeServer {
    /// A server whose time is this many milliseconds ahead of this machine's.
    ///
    /// # Panics
    /// No port is free.
    #[must_use]
    pub fn ahead(milliseconds: i64) -> TimeServer {
        TimeServer::start(milliseconds, None)
    }

    /// A server that asks its clients to poll less often (RFC 5905, section 7.4).
    ///
    /// # Panics
    /// No port is free.
    #[must_use]
    pub fn busy() -> TimeServer {
        TimeServer::start(0, Some(*b"RATE"))
    }

    fn start(milliseconds: i64, kiss: Option<[u8; 4]>) -> TimeServer {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let port = socket.local_addr().expect("its address").port();
        let ahead = Arc::new(AtomicI64::new(milliseconds));
        let asked = Arc::new(AtomicUsize::new(0));
        let server = TimeServer {
            port,
            ahead: ahead.clone(),
            asked: asked.clone(),
        };
        thread::spawn(move || {
            let mut question = [0; 512];
            while let Ok((length, from)) = socket.recv_from(&mut question) {
                asked.fetch_add(1, Ordering::SeqCst);
                if length >= PACKET {
                    let ahead = ahead.load(Ordering::SeqCst);
                    let answer = answer(&question[40..48], ahead, kiss);
                    // The client may be gone.
                    let _ = socket.send_to(&answer, from);
                }
            }
        });
        server
    }

    /// The server's address for a node in QEMU's user network.
    #[must_use]
    pub fn seen_by_node(&self) -> SocketAddr {
        (Ipv4Addr::new(10, 0, 2, 2), self.port).into()
    }

    /// Changes the server's lead to this many milliseconds.
    pub fn set_ahead(&self, milliseconds: i64) {
        self.ahead.store(milliseconds, Ordering::SeqCst);
    }

    /// Number of received queries.
    #[must_use]
    pub fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }
}

fn answer(cookie: &[u8], ahead: i64, kiss: Option<[u8; 4]>) -> [u8; PACKET] {
    let mut packet = [0; PACKET];
    // Version 4, a server's answer.
    packet[0] = 0x24;
    packet[1] = u8::from(kiss.is_none());
    packet[12..16].copy_from_slice(&kiss.unwrap_or(*b"LOCL"));
    packet[24..32].copy_from_slice(cookie);
    let span = Duration::from_millis(ahead.unsigned_abs());
    let now = SystemTime::now();
    let told = if ahead < 0 { now - span } else { now + span };
    let since = told.duration_since(UNIX_EPOCH).expect("after 1970");
    let seconds = u32::try_from(since.as_secs() + FROM_1900).expect("before 2036");
    let fraction = (u64::from(since.subsec_nanos()) << 32) / 1_000_000_000;
    let fraction = u32::try_from(fraction).expect("a fraction");
    for at in [32, 40] {
        packet[at..at + 4].copy_from_slice(&seconds.to_be_bytes());
        packet[at + 4..at + 8].copy_from_slice(&fraction.to_be_bytes());
    }
    packet
}
