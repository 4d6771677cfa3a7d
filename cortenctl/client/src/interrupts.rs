//! The signals that end the program.

use std::future::poll_fn;
use std::io;
use std::task::Poll;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// SIGINT, SIGTERM and SIGHUP. Once taken, they no longer end the process itself.
///
/// A signal that the process ignores stays ignored: `nohup` and a shell's background jobs set it so.
#[derive(Debug)]
pub struct Interrupts(Vec<(SignalKind, Signal)>);

impl Interrupts {
    /// Takes the signals.
    ///
    /// # Errors
    /// The kernel refuses a signal handler.
    pub fn take() -> io::Result<Interrupts> {
        // A system without procfs cannot say what is ignored.
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let ignored = ignored(&status);
        let kinds = [
            SignalKind::interrupt(),
            SignalKind::terminate(),
            SignalKind::hangup(),
        ];
        let taken = kinds
            .into_iter()
            .filter(|kind| ignored & bit(*kind) == 0)
            .map(|kind| Ok((kind, signal(kind)?)));
        taken.collect::<io::Result<_>>().map(Interrupts)
    }

    /// Waits for the next one, and returns its number.
    pub async fn next(&mut self) -> i32 {
        poll_fn(|context| {
            for (kind, signal) in &mut self.0 {
                if signal.poll_recv(context).is_ready() {
                    return Poll::Ready(kind.as_raw_value());
                }
            }
            Poll::Pending
        })
        .await
    }
}

/// The mask of ignored signals in the text of `/proc/PID/status` (`proc_pid_status(5)`, `SigIgn`).
fn ignored(status: &str) -> u64 {
    let mut lines = status.lines();
    let mask = lines.find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .unwrap_or_default()
}

fn bit(kind: SignalKind) -> u64 {
    1 << (kind.as_raw_value() - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignored_signals_are_read_from_the_status_of_the_process() {
        let mask = ignored("SigBlk:\t0000000000000004\nSigIgn:\t0000000000001001\n");
        assert_ne!(mask & bit(SignalKind::hangup()), 0);
        assert_eq!(mask & bit(SignalKind::interrupt()), 0);
        assert_eq!(ignored(""), 0);
    }
}
