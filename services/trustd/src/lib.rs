//! Signs certificates for new nodes, on port 50001 of control plane nodes.
//!
//! Owns: the check of the token that a new node shows, the names in its certificate, rate limits, the log of requests.
//! Never: makes keys for other nodes, signs anything but server certificates, keeps state, or needs a privilege.

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
