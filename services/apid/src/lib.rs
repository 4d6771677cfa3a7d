//! The API's door: port 50000.
//!
//! Owns: TLS with client certificates, the caller's roles, the refusal of what
//! they do not allow, which nodes a call is for, joining what they answer, and
//! the audit log of what a reader could not call.
//! Never does: decode a request, keep state, open anything but its
//! certificates, machined's socket, its port and other nodes' port 50000. It
//! needs no privilege: machined starts it as uid 50 without capabilities.
//! Talks to: clients (gRPC over HTTP/2 over TLS 1.3); machined's socket; apid
//! on other nodes, when this one is of the control plane.
//!
//! machined writes `ca.crt`, `server.crt` and `server.key`, on the control plane
//! also `client.crt` and `client.key`, into one directory and may replace them
//! at any time: they are read again when they change.
//! With `--maintenance` (no machine config yet) callers show no certificate,
//! are readers, and may apply a config.
//!
//! On a laptop, without root: `apid --pki DIR --machined SOCK --listen
//! 127.0.0.1:50000`, where SOCK is served by the tests' fake node.

mod answer;
mod audit;
mod call;
mod caller;
mod connection;
mod fanout;
mod forward;
mod frames;
mod identity;
mod intake;
mod link;
mod local;
mod log_limit;
mod merge;
mod peers;
mod proxy;
mod quota;
mod refusals;
mod replies;
mod reply;
mod server;
mod targets;
#[cfg(test)]
mod tests;
mod turns;
mod upload;
mod upstream;
mod wire;

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use corten_api::MAX_MESSAGE;
use corten_api::metadata::{LARGEST_CHAIN, LARGEST_OWN};
use corten_api::requests::HEAD;

use audit::Audit;
use fanout::PATIENCE;
use identity::Identity;
use peers::Peers;
use proxy::Proxy;
use quota::Quota;
use server::BOUNDS;
use upstream::Upstream;

/// Names of other nodes that are looked up at once, each by a thread: a name server may be away.
const LOOKUPS: usize = 16;

pub use peers::Dial;
pub use server::Server;

/// Calls at once: of all callers, of one peer or certificate, and of all so many for administrators. A call to several
/// nodes is as many.
const CALLS: (usize, usize, usize) = (1_280, 1_100, 64);
/// What a call costs, in bytes: what its answerer sent and nobody reads, a short
/// message that is put together, an answer that waits to be sent with one frame
/// of HTTP/2 more, its metadata, and a connection of its own to another node.
const CALL: usize = connection::ANOTHER_NODES as usize
    + connection::CONNECTION
    + frames::SMALL
    + server::SEND_BUFFER
    + answer::PIECE
    + LARGEST_OWN
    + LARGEST_CHAIN;
/// Bytes of long messages that are put together, for all callers and for one:
/// while they are, they are here up to three times. What is longer is answered
/// by one node alone, whose answer is passed on as it comes.
const MEMORY: (usize, usize) = (24 << 20, 16 << 20);
/// Bytes of long requests, for all callers and for one: machined holds them, each up to twice, until it has read them.
const REQUESTS: (usize, usize) = (2 * LARGEST_REQUEST, LARGEST_REQUEST);
const LARGEST_REQUEST: usize = MAX_MESSAGE + HEAD;
/// What decoding another node's message takes, one at a time: for each field at
/// most half a KiB, and half as much again while a list grows.
const LOOK: usize = fanout::FIELDS * 768;
/// The program and everything else.
const REST: usize = 16 << 20;
/// What machined lets apid have on a machine of 2 GiB or more (`system/apid` in
/// its `boot/cgroups.rs`): beyond it the kernel ends apid, and with it
/// everybody's calls. Beside this the kernel counts what sockets hold and
/// callers do not read.
const ALLOWED: usize = 512 << 20;
const _: () = assert!(
    BOUNDS.connections * server::CONNECTION + CALLS.0 * CALL + 3 * MEMORY.0 + LOOK + REST
        <= ALLOWED
);

/// The API's door: mTLS, roles, and frames handed on to machined.
#[derive(Debug, Parser)]
#[command(name = "apid", version = corten_api::VERSION)]
struct Options {
    /// Directory of ca.crt, server.crt and server.key, and client.crt and client.key if other nodes are called.
    #[arg(long, default_value = "/run/apid")]
    pki: PathBuf,
    /// machined's socket.
    #[arg(long, default_value = "/run/machined/machined.sock")]
    machined: PathBuf,
    /// Where to listen: all addresses of both families unless given.
    #[arg(long)]
    listen: Option<SocketAddr>,
    /// There is no machine config: ask for no client certificate.
    #[arg(long)]
    maintenance: bool,
}

/// Runs the daemon until SIGTERM; see [`corten_daemon::run`].
pub fn run(args: impl Iterator<Item = OsString>) -> ExitCode {
    corten_daemon::run("apid", args, LOOKUPS, serve)
}

async fn serve(options: Options) -> Result<(), String> {
    let dial = peers::network();
    let server = server(options.pki, options.machined, options.maintenance, dial)?;
    let listener = corten_daemon::listen(options.listen, corten_api::PORT).await?;
    corten_daemon::ready("apid");
    server.run(listener).await;
    Ok(())
}

/// What serves by the certificates in the directory `pki`, asks machined at its
/// socket, and reaches other nodes by `dial`.
///
/// # Errors
/// The certificates cannot be used; the text names the file.
pub fn server(
    pki: PathBuf,
    machined: PathBuf,
    maintenance: bool,
    dial: Dial,
) -> Result<Server, String> {
    let identity = Identity::load(pki, maintenance).map_err(|error| error.to_string())?;
    let proxy = Proxy {
        identity,
        upstream: Upstream::new(machined),
        peers: Peers::new(dial),
        calls: Quota::new(CALLS.0, CALLS.1, CALLS.2),
        memory: Quota::new(MEMORY.0, MEMORY.1, 0),
        requests: Quota::new(REQUESTS.0, REQUESTS.1, 0),
        patience: PATIENCE,
        audit: Audit::log(),
        maintenance,
    };
    Ok(Server::new(proxy, BOUNDS))
}
