//! The contract between a client and a node: messages, version, roles of methods, limits of requests.
//!
//! Owns: `api/proto`, with the names and numbers of the reference; packages `corten.*` are used inside a node only.
//! Never: does I/O, or opts in to the lint table of the workspace, which generated code violates.

#[cfg(test)]
mod contract;
pub mod parameters;
pub mod requests;
pub mod roles;

/// The generated messages, clients and servers, one module per proto package.
#[allow(missing_docs, clippy::all, rustdoc::all)]
mod generated {
    include!(concat!(env!("OUT_DIR"), "/public.rs"));
    include!(concat!(env!("OUT_DIR"), "/internal.rs"));
}

pub use generated::*;

/// Release line of the API that this node speaks. It leads the version tag, because clients choose code paths by it.
pub const COMPATIBLE_WITH: &str = "v1.14.0";

/// The `tag` in the response of the Version method: a semantic version with our version `own` as build metadata. `own`
/// is empty in a program that runs outside an image.
#[must_use]
pub fn version_tag(own: &str) -> String {
    let own = if own.is_empty() { "dev" } else { own };
    // Build metadata may hold only letters, digits, dots and dashes.
    let own: String = own
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

/// The target architecture, in the naming of the API, containerd and OCI images (`GOARCH`).
pub const ARCH: &str = if cfg!(target_arch = "aarch64") {
    "arm64"
} else {
    "amd64"
};

/// The TCP port of the API.
pub const PORT: u16 = 50000;

/// The TCP port of trustd, on control plane nodes.
pub const TRUST_PORT: u16 = 50001;

/// The TCP port of registryd on the node's loopback address; the number is the reference's.
pub const IMAGE_CACHE_PORT: u16 = 3172;

/// The largest message accepted in either direction, in bytes (32 MiB).
pub const MAX_MESSAGE: usize = 32 * 1024 * 1024;

/// Metadata keys of the API, and the limits of metadata that apid forwards with a call, in bytes as in HTTP/2 (RFC
/// 9113, section 10.5.1).
pub mod metadata {
    /// Prefix of a refusal that applies to forwarded calls only: the node may answer a direct call.
    pub const NOT_FORWARDED: &str = "not through another node";
    /// Limit of the caller's own metadata, without nodes and certificates.
    pub const LARGEST_OWN: usize = 8 * 1024;
    /// Limit of the caller's certificates ([`CERTIFICATE`]), without the keys; one certificate has about 600 bytes.
    pub const LARGEST_CHAIN: usize = 8 * 1024;

    /// One value per role of the caller; set by apid. machined accepts only roles that the caller's certificate has.
    pub const ROLE: &str = "talos-role";
    /// The caller's certificates, leaf first, one per value: DER, in base64 without padding as in gRPC. The apid that
    /// receives the call sets it, further ones forward it, machined verifies it.
    pub const CERTIFICATE: &str = "corten-certificate-bin";
    /// Exactly this node answers; its reply is passed on unchanged.
    pub const NODE: &str = "node";
    /// These nodes answer; their replies are merged.
    pub const NODES: &str = "nodes";
    /// `true` on Logs and Dmesg: the log of the previous boot. The messages have no field for it, and clients of the
    /// reference do not send the key.
    pub const PREVIOUS_BOOT: &str = "previous-boot";
    /// The caller's identity in apid's audit log; set by apid on audited calls.
    pub const CALLER: &str = "corten-caller";
    /// Certificates of the node that forwarded the call, in the form of [`CERTIFICATE`]. The receiving apid sets it for
    /// its own machined, which accepts it from no other client.
    pub const FORWARDER: &str = "corten-forwarder-bin";
    /// Set on a call between two apids: the receiver must answer it itself.
    pub const PROXY_FROM: &str = "proxyfrom";
}

#[cfg(test)]
mod tests {
    use prost::Message as _;

    #[test]
    fn version_tag_is_a_semantic_version_of_the_compatible_release() {
        for (own, tag) in [
            ("1.2.0-rc.1", "v1.14.0+corten.1.2.0-rc.1"),
            ("1.2_3+x", "v1.14.0+corten.1.2-3-x"),
            ("", "v1.14.0+corten.dev"),
        ] {
            assert_eq!(super::version_tag(own), tag);
        }
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
