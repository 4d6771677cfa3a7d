//! The first answer of a server in the guest.
//!
//! QEMU's user network accepts every connection to a forwarded port at once, and repeats its SYN to the guest only
//! after seconds: an attempt begun before the guest listens would tell when QEMU repeats it, not when the guest
//! answers. So a new attempt begins soon after the last one, whether that has ended or not.

use std::net::SocketAddr;
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

/// From the begin of an attempt to the next one's.
const BETWEEN: Duration = Duration::from_millis(250);
/// How long an attempt waits: longer than a guest needs that has accepted its connection.
const PATIENCE: Duration = Duration::from_secs(30);

/// Asks `address` anew and anew, each time in a thread of its own, until one attempt of them all succeeds. Before
/// each, `go_on` gets what the last one that failed said, and may end it.
///
/// # Errors
/// That of `go_on`.
pub(crate) fn first<E>(
    address: SocketAddr,
    ask: fn(SocketAddr, Duration) -> Result<(), String>,
    mut go_on: impl FnMut(&str) -> Result<(), E>,
) -> Result<(), E> {
    let (tell, told) = channel();
    let mut last = "none".to_owned();
    loop {
        go_on(&last)?;
        let tell = tell.clone();
        thread::spawn(move || {
            // An answer after the first one is for nobody.
            let _late = tell.send(ask(address, PATIENCE));
        });
        let next = Instant::now() + BETWEEN;
        while let Ok(answer) = told.recv_timeout(next.saturating_duration_since(Instant::now())) {
            match answer {
                Ok(()) => return Ok(()),
                Err(error) => last = error,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tls;
    use std::io::Write as _;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn an_attempt_does_not_wait_for_the_one_before() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        // Answers an attempt only when the next one is there.
        thread::spawn(move || {
            let mut held: Option<TcpStream> = None;
            for next in listener.incoming().flatten() {
                if let Some(mut one) = held.replace(next) {
                    // It may have given up.
                    let _gone = one.write_all(&[0x16, 3, 3]);
                }
            }
        });
        let ask = |address, _| tls::ask(address, Duration::from_secs(60));
        let mut attempts = 0;
        let several = |last: &str| {
            attempts += 1;
            match attempts {
                ..40 => Ok(()),
                _ => Err(last.to_owned()),
            }
        };
        first(address, ask, several).unwrap();
    }

    #[test]
    fn who_waits_hears_what_failed_and_can_end_it() {
        let address = SocketAddr::from(([127, 0, 0, 1], 1));
        let refuse = |_, _| Err("refused".to_owned());
        let end = |last: &str| match last {
            "none" => Ok(()),
            _ => Err(last.to_owned()),
        };
        assert_eq!(first(address, refuse, end).unwrap_err(), "refused");
    }
}
