//! The signals that end the program.

use std::io;

use tokio::select;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// SIGINT, SIGTERM and SIGHUP. Once taken, they no longer end the process itself.
#[derive(Debug)]
pub struct Interrupts([Signal; 3]);

impl Interrupts {
    /// Takes the signals.
    ///
    /// # Errors
    /// The kernel refuses a signal handler.
    pub fn take() -> io::Result<Interrupts> {
        Ok(Interrupts([
            signal(SignalKind::interrupt())?,
            signal(SignalKind::terminate())?,
            signal(SignalKind::hangup())?,
        ]))
    }

    /// Waits for the next one, and returns its number.
    pub async fn next(&mut self) -> i32 {
        let Interrupts([interrupt, terminate, hangup]) = self;
        let kind = select! {
            _ = interrupt.recv() => SignalKind::interrupt(),
            _ = terminate.recv() => SignalKind::terminate(),
            _ = hangup.recv() => SignalKind::hangup(),
        };
        kind.as_raw_value()
    }
}
