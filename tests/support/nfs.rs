//! An NFS server on this machine: version 3 (RFC 1813), files in memory.

use std::sync::mpsc;
use std::thread;

use nfs3_server::memfs::{MemFs, MemFsConfig};
use nfs3_server::tcp::{NFSTcp as _, NFSTcpListener};

/// A server that runs until the test ends. One port serves NFS and its mount protocol.
#[derive(Debug)]
pub struct NfsServer {
    port: u16,
}

impl NfsServer {
    /// Serves one directory with this file to every client of this machine.
    ///
    /// # Panics
    /// No port is free.
    #[must_use]
    pub fn with_file(name: &str, content: &str) -> NfsServer {
        let mut files = MemFsConfig::default();
        files.add_file(&format!("/{name}"), content.as_bytes());
        let files = MemFs::new(files).expect("files in memory");
        let (tell, told) = mpsc::channel();
        thread::spawn(move || {
            let mut runtime = tokio::runtime::Builder::new_current_thread();
            let runtime = runtime.enable_all().build().expect("a runtime");
            runtime.block_on(async {
                let listener = NFSTcpListener::bind("127.0.0.1:0", files).await;
                let listener = listener.expect("a port");
                tell.send(listener.get_listen_port()).expect("the test");
                listener.handle_forever().await
            })
        });
        NfsServer {
            port: told.recv().expect("a server"),
        }
    }

    /// The server's TCP port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }
}
