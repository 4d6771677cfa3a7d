//! The texts of errors, and the endpoints that a call may go through.

use super::*;

#[test]
fn connection_failure_is_reported_in_a_sentence() {
    for (kind, sentence) in [
        (io::ErrorKind::TimedOut, "no answer within 5 s; "),
        (io::ErrorKind::ConnectionRefused, "connection refused; "),
        (io::ErrorKind::HostUnreachable, "host unreachable"),
    ] {
        let told = refused(&kind.into());
        assert!(told.starts_with(sentence), "{told}");
    }
}

#[test]
fn calls_for_other_nodes_go_through_control_plane_endpoints_only() {
    use corten_pki::{Algorithm, Ca, NODE_LIFETIME, certificates_from_pem};
    let now = SystemTime::now();
    let ca = Ca::generate(Algorithm::Ed25519, "talos", "", now).unwrap();
    let names = ["10.0.0.1", "node1"].map(str::to_owned);
    let leaf = |pem: &str| certificates_from_pem(pem.as_bytes()).unwrap().remove(0);
    let plain = leaf(&ca.server("", &names, now, NODE_LIFETIME).unwrap().crt);
    let marked = ca.control_plane_server("", &names, now, NODE_LIFETIME);
    let marked = leaf(&marked.unwrap().crt);
    let endpoint: Endpoint = "node.example:50001".parse().unwrap();
    let check = |nodes: &[&str], forward_through, leaf: &CertificateDer<'_>| {
        let target = Target {
            context: String::new(),
            usual_nodes: Vec::new(),
            endpoints: Vec::new(),
            nodes: nodes.iter().map(|&node| node.to_owned()).collect(),
            identity: Identity {
                ca: String::new(),
                crt: String::new(),
                key: String::new(),
            },
            forward_through,
        };
        target.check(&endpoint, leaf)
    };
    let careful = ForwardThrough::default();
    for nodes in [&["10.0.0.2"][..], &["node1", "node2"]] {
        let why = check(nodes, careful, &plain).unwrap_err();
        assert!(why.contains("--forward-through any"), "{why}");
        check(nodes, careful, &marked).unwrap();
        check(nodes, ForwardThrough::Any, &plain).unwrap();
    }
    // The endpoint itself, by each of its names.
    for nodes in [&[][..], &["NODE.example", "10.0.0.1", "Node1"]] {
        check(nodes, careful, &plain).unwrap();
    }
}
