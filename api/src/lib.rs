//! The contract between the operator's client and a node.
//!
//! Owns: the `.proto` files (`api/proto`), the Rust generated from them, the
//! version, the one table that says which role may call which method, how long
//! requests may be, and which kernel parameters no reader is shown.
//! Never does: anything else. There is no I/O here.
//! Talks to: nobody; every side of the API links it.
//! On a laptop: `cargo test -p corten-api`.
//!
//! Package, message and field names and numbers are those on the wire of the
//! system whose clients we serve; `corten.*` packages are our own and are only
//! spoken inside a node. This crate does not opt in to the workspace's lint
//! table, because generated code trips it.

#[cfg(test)]
mod contract;
pub mod parameters;
pub mod requests;
pub mod roles;

/// The generated messages, clients and servers, a module per proto package.
#[allow(missing_docs, clippy::all, rustdoc::all)]
mod generated {
    include!(concat!(env!("OUT_DIR"), "/public.rs"));
    include!(concat!(env!("OUT_DIR"), "/internal.rs"));
}

pub use generated::*;

/// Our version, without a leading `v`: from `CORTEN_VERSION` at build time,
/// else the crate's version and `-dev`.
pub const VERSION: &str = env!("CORTEN_VERSION");

/// The release line whose API this node speaks. Clients choose code paths by
/// it, so it leads the tag.
pub const COMPATIBLE_WITH: &str = "v1.14.0";

/// What the Version method answers as `tag`: a semantic version whose build
/// metadata is our own version.
#[must_use]
pub fn version_tag() -> String {
    // Build metadata may hold only letters, digits, dots and dashes.
    let own: String = VERSION
        .chars()
        .map(|c| {
            if c.is_ascii_alphanumeric() || c == '.' || c == '-' {
                c
            } else {
                '-'
            }
        })
        .collect();
    format!("{COMPATIBLE_WITH}+corten.{own}")
}

/// The architecture this was compiled for, as the API, containerd and OCI images call it (`GOARCH`).
pub const ARCH: &str = if cfg!(target_arch = "aarch64") {
    "arm64"
} else {
    "amd64"
};

/// The TCP port of the API.
pub const PORT: u16 = 50000;

/// The TCP port of trustd, on control plane nodes.
pub const TRUST_PORT: u16 = 50001;

/// The TCP port of registryd, on the node's loopback address (the reference's number).
pub const IMAGE_CACHE_PORT: u16 = 3172;

/// The largest message accepted in either direction, in bytes (32 MiB).
pub const MAX_MESSAGE: usize = 32 * 1024 * 1024;

/// Metadata keys with a meaning in the API, and how much apid hands on with a call, in bytes as HTTP/2 counts
/// metadata (RFC 9113, section 10.5.1).
pub mod metadata {
    /// Begins the message of a refusal that holds for a forwarded call alone: asked itself, the node may answer.
    pub const NOT_FORWARDED: &str = "not through another node";
    /// What it hands on of the caller's own, beside the nodes and certificates.
    pub const LARGEST_OWN: usize = 8 * 1024;
    /// What it hands on of the caller's certificates ([`CERTIFICATE`]), keys not counted; one has some 600.
    pub const LARGEST_CHAIN: usize = 8 * 1024;

    /// One value per role of the caller; set by apid. machined believes none that the caller's certificate has not.
    pub const ROLE: &str = "talos-role";
    /// The certificates the caller has shown, leaf first, a value each: DER, in base64 without padding as gRPC has
    /// it. Set by the apid he called, handed on by those behind it, verified by machined.
    pub const CERTIFICATE: &str = "corten-certificate-bin";
    /// Ask exactly this node; the reply is passed on as it is.
    pub const NODE: &str = "node";
    /// Ask these nodes; the replies are merged.
    pub const NODES: &str = "nodes";
    /// `true` on Logs and Dmesg: the log of the boot before this one. The messages
    /// of the wire have no field for it; who does not know the key sends none.
    pub const PREVIOUS_BOOT: &str = "previous-boot";
    /// Who calls, in the words of apid's audit log; set by apid on the calls that have a line there.
    pub const CALLER: &str = "corten-caller";
    /// The certificates of the node that handed the call on, in the form of [`CERTIFICATE`]; set by the apid that got
    /// it for its own machined, and believed of nobody else.
    pub const FORWARDER: &str = "corten-forwarder-bin";
    /// Set on a call one apid makes to another: answer it here.
    pub const PROXY_FROM: &str = "proxyfrom";
}

#[cfg(test)]
mod tests {
    use prost::Message as _;

    #[test]
    fn version_tag_is_a_semantic_version_of_the_compatible_release() {
        let tag = super::version_tag();
        let (core, build) = tag.split_once('+').unwrap();
        assert_eq!(core, "v1.14.0");
        assert!(build.starts_with("corten."));
        assert!(
            build
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || c == '.' || c == '-'),
            "{tag}"
        );
    }

    #[test]
    fn memory_response_encodes_with_the_wire_field_numbers() {
        let memory = super::machine::Memory {
            metadata: None,
            meminfo: Some(super::machine::MemInfo {
                memtotal: 1,
                ..Default::default()
            }),
        };
        let reply = super::machine::MemoryResponse {
            messages: vec![memory],
        };
        // messages (1, message of 4 bytes) { meminfo (2, 2 bytes) { memtotal (1, varint 1) } }
        assert_eq!(reply.encode_to_vec(), [0x0a, 0x04, 0x12, 0x02, 0x08, 0x01]);
    }
}
