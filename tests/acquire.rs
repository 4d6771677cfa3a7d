//! Promise: a node without a config gets one from whom its kernel's parameters
//! name, before it would take one from anybody.
#![expect(clippy::unwrap_used, reason = "a failing step is a failing test")]

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use tests::client::generate_config;
use tests::images;
use tests::node::{BOOT, Node, SOON};

/// The guest's name for this host.
const HOST: &str = "10.0.2.2";

/// A server that has no config yet when it is first asked; what it was asked
/// for comes out at the other end.
fn server(config: Vec<u8>) -> (u16, mpsc::Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (asked, requests) = mpsc::channel();
    std::thread::spawn(move || {
        for (number, stream) in listener.incoming().enumerate() {
            let mut stream = stream.unwrap();
            let mut line = String::new();
            BufReader::new(&stream).read_line(&mut line).unwrap();
            let (status, body) = match number {
                0 => ("503 Service Unavailable", &[] as &[u8]),
                _ => ("200 OK", config.as_slice()),
            };
            let head = format!(
                "HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
                body.len()
            );
            stream.write_all(&[head.as_bytes(), body].concat()).unwrap();
            // The test may have heard enough.
            let _heard = asked.send(line);
        }
    });
    (port, requests)
}

/// A config as a kernel parameter.
fn packed(config: &str) -> String {
    let mut zstd = Command::new("zstd")
        .args(["-q", "-c"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    zstd.stdin
        .take()
        .unwrap()
        .write_all(config.as_bytes())
        .unwrap();
    STANDARD.encode(zstd.wait_with_output().unwrap().stdout)
}

fn start(name: &str, configs: &Path, parameters: &str, cd: Option<&Path>) -> Node {
    let mut boot = images::direct();
    boot.append.push_str(parameters);
    let node = Node::start(name, |machine| {
        let machine = machine.direct(boot);
        match cd {
            Some(iso) => machine.cdrom(iso),
            None => machine,
        }
    });
    node.with_configs(configs.to_owned())
}

#[test]
#[ignore = "make test-vm"]
fn from_a_server_with_a_patch_in_the_parameters() {
    let directory = tempfile::tempdir().unwrap();
    generate_config(directory.path());
    let config = std::fs::read(directory.path().join("controlplane.yaml")).unwrap();
    let (port, requests) = server(config);
    let inline = packed("machine: {network: {hostname: inline}}\n");
    let parameters =
        format!(" corten.config=http://{HOST}:{port}/${{mac}} corten.config.inline={inline}");
    let node = start("acquire-url", directory.path(), &parameters, None);
    node.ask(&node.admin(), &["version"], BOOT);
    let name = node.ask(&node.admin(), &["get", "hostname"], SOON);
    assert!(name.contains("inline"), "{name}");
    for _ in 0..2 {
        let request = requests.recv().unwrap();
        assert!(request.starts_with("GET /52:54:00:"), "{request}");
    }
}

#[test]
#[ignore = "make test-vm"]
fn from_a_volume_beside_it() {
    let directory = tempfile::tempdir().unwrap();
    generate_config(directory.path());
    let content = directory.path().join("content");
    std::fs::create_dir(&content).unwrap();
    let config = directory.path().join("controlplane.yaml");
    std::fs::copy(config, content.join("config.yaml")).unwrap();
    let iso = directory.path().join("config.iso");
    let made = Command::new("xorriso")
        .args(["-as", "mkisofs", "-quiet", "-r", "-V", "metal-iso", "-o"])
        .args([&iso, &content])
        .status();
    assert!(made.unwrap().success());
    let parameters = " corten.config=metal-iso";
    let node = start("acquire-volume", directory.path(), parameters, Some(&iso));
    node.ask(&node.admin(), &["version"], BOOT);
}
