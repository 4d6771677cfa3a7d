//! Signs certificates for new nodes, on port 50001 of control plane nodes.
//!
//! Owns: the check of the token that a new node shows, the names in its certificate, the rate limit of requests, and
//! the log of them.
//! Never does: make keys for other nodes, sign anything but server certificates, keep state, open anything but its
//! files and its port. It needs no privilege: machined starts it as uid 51 without capabilities.
//! Talks to: nodes without a certificate (`securityapi.SecurityService`, gRPC over TLS 1.3 without client
//! certificates).
//!
//! machined writes its files into one directory and may replace them at any time: `ca.crt` (the signing CA, then the
//! other accepted ones), `ca.key`, `token`, `names` (the control plane's names, and this node's networks), `server.crt`
//! and `server.key`. Changed files are read again, and open connections continue.
//!
//! On a laptop, without root: `corten-node trustd --pki DIR --listen 127.0.0.1:50001`.

mod files;
mod limits;
mod names;
mod server;
mod sign;
#[cfg(test)]
mod tests;

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;

use files::Files;
use limits::Limits;
use server::Server;

/// Signs certificates for joining nodes, which show the cluster's token.
#[derive(Debug, Parser)]
#[command(name = "trustd")]
struct Options {
    /// Directory of ca.crt, ca.key, names, token, server.crt and server.key.
    #[arg(long, default_value = "/run/trustd")]
    pki: PathBuf,
    /// Address to listen on; the default is all addresses of both families.
    #[arg(long)]
    listen: Option<SocketAddr>,
    /// Listen on the socket that is standard input, and end after some seconds without a connection.
    #[arg(long, conflicts_with = "listen")]
    on_demand: bool,
}

/// Runs the daemon until SIGTERM; see [`corten_daemon::run`].
pub fn run(args: impl Iterator<Item = OsString>) -> ExitCode {
    // Nothing here blocks: a signature takes less than a millisecond.
    corten_daemon::run("trustd", args, 1, serve)
}

async fn serve(options: Options) -> Result<(), String> {
    let files = Files::load(options.pki).map_err(|error| error.to_string())?;
    let listener = if options.on_demand {
        corten_daemon::passed()?
    } else {
        corten_daemon::listen(options.listen, corten_api::TRUST_PORT).await?
    };
    let server = Server::new(files, Limits::default());
    corten_daemon::ready("trustd");
    tokio::select! {
        () = server.run(listener) => {}
        () = server.is_idle(), if options.on_demand => {}
    }
    Ok(())
}
