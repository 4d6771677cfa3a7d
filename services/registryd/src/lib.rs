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
use corten_api::IMAGE_CACHE_PORT;

pub use cache::Cache;
pub use server::serve;

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
    #[arg(long, default_value_t = SocketAddr::from((Ipv4Addr::LOCALHOST, IMAGE_CACHE_PORT)))]
    listen: SocketAddr,
}

/// Runs the daemon until SIGTERM; see [`corten_daemon::run`].
pub fn run(args: impl Iterator<Item = OsString>) -> ExitCode {
    corten_daemon::run("registryd", args, BLOCKING_THREADS, listen_and_serve)
}

async fn listen_and_serve(options: Options) -> Result<(), String> {
    let listener = corten_daemon::listen(Some(options.listen), IMAGE_CACHE_PORT).await?;
    corten_daemon::ready("registryd");
    serve(listener, Cache::new(options.root)).await;
    Ok(())
}
