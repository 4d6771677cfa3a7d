//! The cluster's door for new nodes: port 50001 of control plane nodes.
//!
//! Owns: who gets a node certificate (whoever shows the token), what such a certificate may say, how often
//! anybody may ask, and the log of both.
//! Never does: make keys for others, sign anything but a server's certificate, keep state, open anything but
//! its files and its port. It needs no privilege: machined starts it as uid 51 without capabilities.
//! Talks to: nodes that have no certificate of their own (`securityapi.SecurityService`, gRPC over TLS 1.3;
//! they show no certificate, for they have none).
//!
//! machined writes `ca.crt` (who signs first, then whom else the cluster believes), `ca.key`, `token`,
//! `server.crt` and `server.key` into one directory and may replace them at any time: they are read again
//! when they change, and open connections go on.
//!
//! On a laptop, without root: `corten-node trustd --pki DIR --listen 127.0.0.1:50001`.

mod files;
mod limits;
mod notify;
mod server;
mod sign;
#[cfg(test)]
mod tests;

use std::ffi::OsString;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

use files::Files;
use limits::Limits;
use server::Server;

/// The cluster's door for new nodes: a token and a request in, a certificate out.
#[derive(Debug, Parser)]
#[command(name = "trustd", version = corten_api::VERSION)]
struct Options {
    /// Directory of ca.crt, ca.key, token, server.crt and server.key.
    #[arg(long, default_value = "/run/trustd")]
    pki: PathBuf,
    /// Where to listen: all addresses of both families unless given.
    #[arg(long)]
    listen: Option<SocketAddr>,
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
    // One thread: a signature takes less than a millisecond, and every idle thread costs memory.
    let runtime = match tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("trustd: cannot start: {error}");
            return ExitCode::FAILURE;
        }
    };
    match runtime.block_on(serve(options)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("trustd: {message}");
            ExitCode::FAILURE
        }
    }
}

async fn serve(options: Options) -> Result<(), String> {
    let mut terminate = signal(SignalKind::terminate())
        .map_err(|error| format!("cannot watch for SIGTERM: {error}"))?;
    let files = Files::load(options.pki).map_err(|error| error.to_string())?;
    let listener = listen(options.listen).await.map_err(|error| {
        let port = options
            .listen
            .map_or(corten_api::TRUST_PORT, |address| address.port());
        format!("cannot listen on port {port}: {error}")
    })?;
    let server = Server::new(files, Limits::default());
    notify::ready();
    tokio::select! {
        () = server.run(listener) => Ok(()),
        _ = terminate.recv() => Ok(()),
    }
}

/// Both families where the kernel has IPv6, else IPv4.
async fn listen(address: Option<SocketAddr>) -> std::io::Result<TcpListener> {
    if let Some(address) = address {
        return TcpListener::bind(address).await;
    }
    match TcpListener::bind((Ipv6Addr::UNSPECIFIED, corten_api::TRUST_PORT)).await {
        Ok(listener) => Ok(listener),
        Err(_) => TcpListener::bind((Ipv4Addr::UNSPECIFIED, corten_api::TRUST_PORT)).await,
    }
}
