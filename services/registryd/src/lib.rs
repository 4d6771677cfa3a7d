//! The image cache of a node as a registry: containerd pulls from it before it asks the network.
//!
//! Owns: the pull half of the OCI distribution spec (1.1, "Pull") over directories in the layout of `cache.rs`,
//! and `/healthz`.
//! Never does: write, follow a link, open what is outside of its directories, hand out a byte that does not
//! match its digest, keep more in memory than its bounds.
//! Talks to: containerd, by HTTP/1.1 without TLS on 127.0.0.1; machined, to which it says that it is ready.
//! On a laptop, without root: `registryd --root DIR --listen 127.0.0.1:3172`, then
//! `curl 127.0.0.1:3172/v2/library/pause/manifests/latest?ns=docker.io`.

mod blob;
mod cache;
mod names;
mod notify;
mod refusal;
mod request;
mod respond;
mod server;
mod verify;

use std::ffi::OsString;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

pub use cache::Cache;
pub use server::serve;

/// Where containerd asks (the reference's port).
pub const PORT: u16 = 3172;

/// Files are read on these; each costs memory while it idles.
const BLOCKING_THREADS: usize = 4;

/// The image cache as a read-only registry.
#[derive(Debug, Parser)]
#[command(name = "registryd", version = corten_api::VERSION)]
struct Options {
    /// A directory with `manifests` and `blob`; of several, the first that has something serves it.
    #[arg(long, required = true)]
    root: Vec<PathBuf>,
    /// Where to listen.
    #[arg(long, default_value_t = SocketAddr::from((Ipv4Addr::LOCALHOST, PORT)))]
    listen: SocketAddr,
}

/// Runs the daemon until SIGTERM. The arguments begin with the program's name.
/// Exit codes: 0 stopped by a signal, 1 cannot serve, 2 wrong arguments.
pub fn run(args: impl Iterator<Item = OsString>) -> ExitCode {
    let options = match Options::try_parse_from(args) {
        Ok(options) => options,
        Err(error) => {
            let _ = error.print();
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
        }
    };
    let runtime = match tokio::runtime::Builder::new_current_thread()
        .max_blocking_threads(BLOCKING_THREADS)
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("registryd: cannot start: {error}");
            return ExitCode::FAILURE;
        }
    };
    let outcome = runtime.block_on(listen_and_serve(options));
    // A file that is just being checked need not be read to its end.
    runtime.shutdown_background();
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("registryd: {message}");
            ExitCode::FAILURE
        }
    }
}

async fn listen_and_serve(options: Options) -> Result<(), String> {
    let mut terminate = signal(SignalKind::terminate())
        .map_err(|error| format!("cannot watch for SIGTERM: {error}"))?;
    let listener = TcpListener::bind(options.listen)
        .await
        .map_err(|error| format!("cannot listen on {}: {error}", options.listen))?;
    notify::ready();
    tokio::select! {
        () = serve(listener, Cache::new(options.root)) => Ok(()),
        _ = terminate.recv() => Ok(()),
    }
}
