//! The gateway of the API, on port 50000.
//!
//! Owns: TLS, the caller's roles, refusals, the routing of a call to its nodes, merged answers, and the log of calls.
//! Never: decodes a request, keeps state, or needs a privilege; it opens its files, machined's socket and port 50000.

mod answer;
mod answerer;
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
use std::sync::Arc;

use clap::Parser;
use corten_api::MAX_MESSAGE;
use corten_api::metadata::{LARGEST_CHAIN, LARGEST_OWN};
use corten_api::requests::HEAD;

use answerer::Answerers;
use audit::Audit;
use fanout::PATIENCE;
use identity::Identity;
use peers::Peers;
use proxy::Proxy;
use quota::Quota;
use server::BOUNDS;
use upstream::Upstream;

/// Concurrent DNS lookups of node names. Each blocks a thread, because the name server may be down.
const LOOKUPS: usize = 16;

pub use peers::Dial;
pub use server::Server;

/// Limits of concurrent calls: in total, per peer or certificate, and the share of the total reserved for
/// administrators. A call to several nodes counts once per node.
const CALLS: (usize, usize, usize) = (1_280, 1_100, 64);
/// Memory of one call in bytes: unread data from its answerer, one short message being assembled, and its metadata. It
/// also includes one piece of answer in the send buffer plus one HTTP/2 frame, and a connection to another node.
const CALL: usize = connection::ANOTHER_NODES as usize
    + connection::CONNECTION
    + frames::SMALL
    + server::SEND_BUFFER
    + answer::PIECE
    + LARGEST_OWN
    + LARGEST_CHAIN;
/// Limits of memory in bytes for assembling long messages: in total, and per caller. Each such message exists up to
/// three times. A longer answer must be asked of a single node, whose stream is passed on unassembled.
const MEMORY: (usize, usize) = (24 << 20, 16 << 20);
/// Limits of long requests in bytes: in total, and per caller. machined holds each of them up to twice until it has
/// read it.
const REQUESTS: (usize, usize) = (2 * LARGEST_REQUEST, LARGEST_REQUEST);
const LARGEST_REQUEST: usize = MAX_MESSAGE + HEAD;
/// Memory for decoding another node's message, one at a time, in bytes. It is at most half a KiB per field, plus half
/// of that while a list grows.
const LOOK: usize = fanout::FIELDS * 768;
/// The program and the rest of its memory.
const REST: usize = 16 << 20;
/// Memory limit of apid's cgroup on a machine of 2 GiB or more (`system/apid` in machined's `boot/cgroups.rs`), in
/// bytes. Beyond it the kernel kills apid and with it all calls. Unread socket buffers also count, in addition to this
/// sum.
const ALLOWED: usize = 512 << 20;
const _: () = assert!(
    BOUNDS.connections * server::CONNECTION + CALLS.0 * CALL + 3 * MEMORY.0 + LOOK + REST
        <= ALLOWED
);

/// Serves the node's API: checks certificates and roles, and forwards calls to machined and to other nodes.
#[derive(Debug, Parser)]
#[command(name = "apid")]
struct Options {
    /// Directory of ca.crt, server.crt and server.key, and client.crt and client.key if other nodes are called.
    #[arg(long, default_value = "/run/apid")]
    pki: PathBuf,
    /// machined's socket.
    #[arg(long, default_value = "/run/machined/machined.sock")]
    machined: PathBuf,
    /// Address to listen on; the default is all addresses of both families.
    #[arg(long)]
    listen: Option<SocketAddr>,
    /// Maintenance mode of a node without a machine config: request no client certificate.
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

/// Makes a server that uses the certificates in directory `pki`, machined's socket, and `dial` for other nodes.
///
/// # Errors
/// If the certificates are unusable; the text names the file.
pub fn server(
    pki: PathBuf,
    machined: PathBuf,
    maintenance: bool,
    dial: Dial,
) -> Result<Server, String> {
    let identity = Identity::load(pki, maintenance).map_err(|error| error.to_string())?;
    let proxy = Proxy {
        identity,
        answerers: Arc::new(Answerers {
            upstream: Upstream::new(machined),
            peers: Peers::new(dial),
        }),
        calls: Quota::new(CALLS.0, CALLS.1, CALLS.2),
        memory: Quota::new(MEMORY.0, MEMORY.1, 0),
        requests: Quota::new(REQUESTS.0, REQUESTS.1, 0),
        patience: PATIENCE,
        audit: Audit::log(),
        maintenance,
    };
    Ok(Server::new(proxy, BOUNDS))
}
