//! Promise: a pod with `hostPort` answers at that port of the node. The image's own CNI plugin runs in network namespaces
//! of this machine: a node, a pod and a client.
#![expect(clippy::unwrap_used, reason = "a failing step is a failing test")]

use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsRawFd as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use corten_base::testing::{Neighbour, alone, cable, give, kernel};
use rtnetlink::{Handle, LinkUnspec, LinkVeth, RouteMessageBuilder};
use serde_json::{Value, json};
use tests::workspace;

const POD: [&str; 2] = ["10.9.0.2", "fd00:9::2"];
const NODE: [&str; 2] = ["10.9.0.1", "fd00:9::1"];
/// The other address of the node, which the client reaches.
const UPLINK: &str = "10.8.0.1";
const CLIENT: &str = "10.8.0.2";
const LIMIT: Duration = Duration::from_secs(5);

/// The plugin, as containerd calls it for a pod in the namespace `pod`.
fn plugin(verb: &str, container: &str, pod: &Neighbour, mappings: &Value) -> Output {
    let config = json!({
        "cniVersion": "1.0.0",
        "name": "cbr0",
        "type": "portmap",
        "runtimeConfig": { "portMappings": mappings },
        "prevResult": {
            "cniVersion": "1.0.0",
            "interfaces": [{ "name": "veth1" }, { "name": "eth0", "sandbox": "/pod" }],
            "ips": [
                { "address": format!("{}/24", POD[0]), "interface": 1 },
                { "address": format!("{}/64", POD[1]), "interface": 1 },
            ],
        },
    });
    let program = workspace::step_output("go").unwrap().join("cni");
    let namespace = format!("/proc/{}/fd/{}", std::process::id(), pod.0.as_raw_fd());
    let mut child = Command::new(program)
        .arg0("portmap")
        .envs([
            ("CNI_COMMAND", verb),
            ("CNI_CONTAINERID", container),
            ("CNI_NETNS", &namespace),
            ("CNI_IFNAME", "eth0"),
            ("CNI_PATH", "/opt/cni/bin"),
        ])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    input.write_all(config.to_string().as_bytes()).unwrap();
    drop(input);
    child.wait_with_output().unwrap()
}

fn must(verb: &str, container: &str, pod: &Neighbour, mappings: &Value) {
    let output = plugin(verb, container, pod, mappings);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{verb}: {text}");
}

/// Answers each connection with the address of its client.
fn serve(listener: TcpListener) {
    thread::spawn(move || {
        while let Ok((mut stream, peer)) = listener.accept() {
            let _ = write!(stream, "{}", peer.ip().to_canonical());
        }
    });
}

/// The address of this caller that the pod sees behind a port.
fn call(address: &str, port: u16) -> io::Result<String> {
    let address: IpAddr = address.parse().unwrap();
    let mut stream = TcpStream::connect_timeout(&SocketAddr::new(address, port), LIMIT)?;
    stream.set_read_timeout(Some(LIMIT))?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    Ok(text)
}

/// The node itself answers a port without a rule.
fn assert_refused(answer: io::Result<String>) {
    let error = answer.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused, "{error}");
}

async fn lead_through(handle: &Handle, gateway: &str) {
    let gateway = gateway.parse().unwrap();
    let route = RouteMessageBuilder::<Ipv4Addr>::new().gateway(gateway);
    handle.route().add(route.build()).execute().await.unwrap();
}

/// A pod behind the node, with addresses of both families, and a client on another network of the node.
async fn neighbours() -> (Neighbour, Neighbour) {
    let handle = kernel();
    let pod = cable([2, 0, 0, 0, 0, 1]).await;
    give(&handle, "plug", &NODE).await;
    let client = Neighbour::new();
    let veth = LinkVeth::new("uplink", "far").build();
    handle.link().add(veth).execute().await.unwrap();
    let moved = LinkUnspec::new_with_name("far").setns_by_fd(client.0.as_raw_fd());
    handle.link().set(moved.build()).execute().await.unwrap();
    give(&handle, "uplink", &[UPLINK]).await;
    give(&handle, "lo", &[]).await;
    pod.asks(async |handle| {
        give(&handle, "far", &POD).await;
        lead_through(&handle, NODE[0]).await;
    });
    client.asks(async |handle| {
        give(&handle, "far", &[CLIENT]).await;
        lead_through(&handle, UPLINK).await;
    });
    std::fs::write("/proc/sys/net/ipv4/ip_forward", "1").unwrap();
    (pod, client)
}

/// The answer at an IPv6 address, which the kernel does not use for a second or two (duplicate address detection).
fn call_by_ipv6(address: &str, port: u16) -> io::Result<String> {
    let end = Instant::now() + LIMIT;
    loop {
        match call(address, port) {
            Err(_) if Instant::now() < end => thread::sleep(Duration::from_millis(100)),
            done => return done,
        }
    }
}

#[test]
#[ignore = "make test-vm"]
fn port_of_the_node_leads_to_the_pod_from_everywhere() {
    alone(async {
        let (pod, client) = neighbours().await;
        serve(pod.acts(|| TcpListener::bind("[::]:8080").unwrap()));
        let mappings = json!([
            { "hostPort": 7070, "containerPort": 8080, "protocol": "TCP" },
            { "hostPort": 7071, "containerPort": 8080, "protocol": "tcp", "hostIP": UPLINK },
            { "hostPort": 7072, "containerPort": 8080, "protocol": "udp" },
        ]);
        must("ADD", "pod-1", &pod, &mappings);
        must("CHECK", "pod-1", &pod, &mappings);
        // A caller outside keeps its address.
        assert_eq!(client.acts(|| call(UPLINK, 7070)).unwrap(), CLIENT);
        assert_eq!(client.acts(|| call(UPLINK, 7071)).unwrap(), CLIENT);
        // The node itself, by its own addresses and 127.0.0.1.
        for address in [NODE[0], UPLINK, "127.0.0.1"] {
            call(address, 7070).unwrap();
        }
        call_by_ipv6(NODE[1], 7070).unwrap();
        // The pod itself: without another source address, it would answer itself.
        assert_eq!(pod.acts(|| call(NODE[0], 7070)).unwrap(), NODE[0]);
        // A mapping of one address leaves the others alone.
        assert_refused(call(NODE[0], 7071));
        let socket = pod.acts(|| UdpSocket::bind((POD[0], 8080)).unwrap());
        socket.set_read_timeout(Some(LIMIT)).unwrap();
        client.acts(|| {
            let from = UdpSocket::bind((CLIENT, 0)).unwrap();
            from.send_to(b"hello", (UPLINK, 7072)).unwrap();
        });
        assert_eq!(socket.recv(&mut [0; 16]).unwrap(), 5);

        // Adding the pod again adds no second set of rules; removing it is idempotent, and leaves other pods alone.
        must("ADD", "pod-1", &pod, &mappings);
        must("CHECK", "pod-1", &pod, &mappings);
        let other = json!([{ "hostPort": 7073, "containerPort": 8080, "protocol": "tcp" }]);
        must("ADD", "pod-2", &pod, &other);
        must("DEL", "pod-1", &pod, &mappings);
        must("DEL", "pod-1", &pod, &mappings);
        assert_refused(client.acts(|| call(UPLINK, 7070)));
        assert_eq!(client.acts(|| call(UPLINK, 7073)).unwrap(), CLIENT);
        let gone = plugin("CHECK", "pod-1", &pod, &mappings);
        assert!(!gone.status.success());
        must("CHECK", "pod-2", &pod, &other);
    });
}

#[test]
#[ignore = "make test-vm"]
fn mapping_that_cannot_be_kept_is_named() {
    alone(async {
        let pod = Neighbour::new();
        for (mapping, why) in [
            (
                json!({ "hostPort": 0, "containerPort": 80, "protocol": "tcp" }),
                "portMappings[0]: hostPort",
            ),
            (
                json!({ "hostPort": 80, "containerPort": 80, "protocol": "icmp" }),
                "use tcp, udp or sctp",
            ),
            (
                json!({ "hostPort": 80, "containerPort": 80, "protocol": "tcp", "hostIP": "node" }),
                "hostIP is \\\"node\\\"",
            ),
        ] {
            let output = plugin("ADD", "pod-1", &pod, &json!([mapping]));
            let text = String::from_utf8_lossy(&output.stdout);
            assert!(!output.status.success() && text.contains(why), "{text}");
        }
    });
}
