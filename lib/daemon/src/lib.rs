//! The common parts of the node's daemons: apid, trustd, registryd, syslogd and udevd.
//!
//! Owns: start and end, also on demand, the port, readiness (sd_notify(3)), reloaded files, the limits on connections.
//! Never: serves, or knows the protocol served.

mod notify;
mod on_demand;
mod peer;
mod places;
mod reloaded;

use std::ffi::OsString;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::process::ExitCode;

use clap::Parser;
use tokio::net::TcpListener;
use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};

pub use notify::ready;
pub use on_demand::{Client, Clients, passed};
pub use peer::Peer;
pub use places::{Bounds, Evicted, Known, Place, Places};
pub use reloaded::Reloaded;

/// Runs the daemon `name` until SIGTERM, on one thread, to save memory. `args` begin with the program's name.
/// `blocking_threads` bounds the concurrent file accesses and name lookups. An error of `serve` is logged.
///
/// Exit codes: 0 stopped by a signal, 1 cannot serve, 2 wrong arguments.
pub fn run<O: Parser>(
    name: &str,
    args: impl Iterator<Item = OsString>,
    blocking_threads: usize,
    serve: impl AsyncFnOnce(O) -> Result<(), String>,
) -> ExitCode {
    let options = match O::try_parse_from(args) {
        Ok(options) => options,
        Err(error) => {
            let _ = error.print();
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
        }
    };
    let runtime = match Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(blocking_threads)
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("{name}: cannot start: {error}");
            return ExitCode::FAILURE;
        }
    };
    let outcome = runtime.block_on(async {
        let mut terminate = signal(SignalKind::terminate())
            .map_err(|error| format!("cannot watch for SIGTERM: {error}"))?;
        tokio::select! {
            outcome = serve(options) => outcome,
            _ = terminate.recv() => Ok(()),
        }
    });
    // Pending file accesses and name lookups are abandoned.
    runtime.shutdown_background();
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("{name}: {message}");
            ExitCode::FAILURE
        }
    }
}

/// Listens on `address`, or on `port` of all addresses: of both families if the kernel has IPv6, else IPv4.
///
/// # Errors
/// The text names the address or the port.
pub async fn listen(address: Option<SocketAddr>, port: u16) -> Result<TcpListener, String> {
    if let Some(address) = address {
        let bound = TcpListener::bind(address).await;
        return bound.map_err(|error| format!("cannot listen on {address}: {error}"));
    }
    match TcpListener::bind((Ipv6Addr::UNSPECIFIED, port)).await {
        Ok(listener) => Ok(listener),
        Err(_) => TcpListener::bind((Ipv4Addr::UNSPECIFIED, port))
            .await
            .map_err(|error| format!("cannot listen on port {port}: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Parser)]
    struct Options {
        #[arg(long)]
        listen: SocketAddr,
    }

    fn args(words: &[&str]) -> impl Iterator<Item = OsString> {
        let words: Vec<_> = words.iter().map(OsString::from).collect();
        words.into_iter()
    }

    #[test]
    fn exit_code_of_a_daemon_tells_success_failure_and_usage_errors() {
        let code = |words: &[&str], outcome: Result<(), String>| {
            let serve = async |options: Options| {
                assert!(options.listen.ip().is_loopback());
                outcome
            };
            let code = run("test", args(words), 1, serve);
            format!("{code:?}")
        };
        let good = ["test", "--listen", "127.0.0.1:1"];
        let shown = |code: ExitCode| format!("{code:?}");
        assert_eq!(code(&good, Ok(())), shown(ExitCode::SUCCESS));
        assert_eq!(code(&good, Err("no".into())), shown(ExitCode::FAILURE));
        assert_eq!(code(&["test", "--x"], Ok(())), shown(ExitCode::from(2)));
    }

    #[tokio::test]
    async fn bind_error_names_the_requested_port() {
        let taken = listen(Some(([127, 0, 0, 1], 0).into()), 50000)
            .await
            .unwrap();
        let address = taken.local_addr().unwrap();
        let error = listen(Some(address), 50000).await.unwrap_err();
        assert!(error.contains(&address.to_string()), "{error}");
    }
}
