//! Waits for the first answer of a server in the guest.

use std::net::SocketAddr;
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

/// Interval between the begins of two attempts.
///
/// A new attempt begins whether the last one has ended or not. QEMU's user network accepts every connection to a
/// forwarded port at once, and repeats its SYN to the guest only after seconds. An attempt that begins before the guest
/// listens would measure QEMU's retransmission.
const BETWEEN: Duration = Duration::from_millis(100);
/// Timeout of an attempt: longer than the guest needs to answer an accepted connection.
const PATIENCE: Duration = Duration::from_secs(30);

/// Asks `address` repeatedly, each time in a thread of its own, until one attempt succeeds. Before
/// each, `go_on` gets the error of the last failed attempt, and may end the wait.
///
/// # Errors
/// The error of `go_on`.
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
            // After the first success the receiver is gone.
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
    fn attempts_do_not_wait_for_earlier_attempts() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        // Answers an attempt only after the next one has connected.
        thread::spawn(move || {
            let mut held: Option<TcpStream> = None;
            for next in listener.incoming().flatten() {
                if let Some(mut one) = held.replace(next) {
                    // The client may have given up.
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
    fn caller_learns_the_last_failure_and_can_end_the_attempts() {
        let address = SocketAddr::from(([127, 0, 0, 1], 1));
        let refuse = |_, _| Err("refused".to_owned());
        let end = |last: &str| match last {
            "none" => Ok(()),
            _ => Err(last.to_owned()),
        };
        assert_eq!(first(address, refuse, end).unwrap_err(), "refused");
    }
}
