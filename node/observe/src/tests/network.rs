//! Sockets and packets of this machine.

use std::net::{TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

use corten_api::machine as api;
use corten_api::machine::connect_record::State;
use corten_api::machine::netstat_request::{Feature, Filter, L4proto, NetNs};
use corten_base::testing::skip;
use tokio::time::{interval, timeout};
use tokio_stream::StreamExt as _;
use tonic::{Code, Status};

use super::all;
use crate::capture::capture;
use crate::netstat::netstat;
use crate::{Paths, stream};

/// Timeout of a test.
const DEADLINE: Duration = Duration::from_secs(60);

fn sockets(paths: &Paths, request: &api::NetstatRequest) -> Vec<api::ConnectRecord> {
    netstat(paths, request)
        .unwrap()
        .messages
        .remove(0)
        .connectrecord
}

fn refusal(request: &api::NetstatRequest) -> Status {
    netstat(&Paths::default(), request).unwrap_err()
}

#[test]
fn sockets_are_listed_with_their_owners() {
    let paths = Paths::default();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = u32::from(listener.local_addr().unwrap().port());
    let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let near = u32::from(stream.local_addr().unwrap().port());
    let request = |filter: Filter, pid| api::NetstatRequest {
        filter: filter.into(),
        feature: Some(Feature { pid }),
        l4proto: Some(L4proto {
            tcp: true,
            ..L4proto::default()
        }),
        netns: None,
    };
    let listens = sockets(&paths, &request(Filter::Listening, true));
    // Other tests have sockets, too, and a port number may be in use more than once.
    let is_ours = |s: &&api::ConnectRecord| (s.localport, &*s.localip) == (port, "127.0.0.1");
    let found = listens.iter().find(is_ours).unwrap();
    assert_eq!((found.state(), &*found.l4proto), (State::Listen, "tcp"));
    assert_eq!(found.process.as_ref().unwrap().pid, std::process::id());
    assert!(!found.process.as_ref().unwrap().name.is_empty());
    let is_connection = |s: &&api::ConnectRecord| {
        (s.localport, s.remoteport, &*s.localip) == (near, port, "127.0.0.1")
    };
    assert_eq!(listens.iter().find(is_connection), None);

    let connected = sockets(&paths, &request(Filter::Connected, false));
    let found = connected.iter().find(is_connection).unwrap();
    assert_eq!(found.state(), State::Established);
    assert_eq!(found.process, None);

    let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
    let udp_port = u32::from(udp.local_addr().unwrap().port());
    let all = sockets(&paths, &api::NetstatRequest::default());
    let is_udp = |s: &&api::ConnectRecord| {
        (s.localport, &*s.localip, &*s.l4proto) == (udp_port, "127.0.0.1", "udp")
    };
    assert_eq!(all.iter().find(is_udp).unwrap().state(), State::Close);
    assert!(all.iter().any(|socket| is_connection(&socket)));
}

#[test]
fn missing_network_namespace_is_named() {
    let request = |name: &str| api::NetstatRequest {
        netns: Some(NetNs {
            netns: vec![name.to_owned()],
            ..NetNs::default()
        }),
        ..Default::default()
    };
    let refused = refusal(&request("cni-gone"));
    assert_eq!(refused.code(), Code::NotFound);
    assert!(refused.message().contains("cni-gone"), "{refused}");
    let refused = refusal(&request("../../proc/1/ns/net"));
    assert_eq!(refused.code(), Code::InvalidArgument);
}

/// The sockets of another namespace; skipped without the privilege to create one.
#[test]
fn sockets_of_another_network_namespace_are_listed() {
    let netns = tempfile::tempdir().unwrap();
    let link = netns.path().join("cni-1");
    let (sender, port) = std::sync::mpsc::channel();
    let (done, wait) = std::sync::mpsc::channel::<()>();
    std::thread::spawn(move || {
        use nix::sched::{CloneFlags, unshare};
        if unshare(CloneFlags::CLONE_NEWNET).is_err() {
            drop(sender);
            return;
        }
        let own = format!(
            "/proc/{}/task/{}/ns/net",
            std::process::id(),
            nix::unistd::gettid()
        );
        std::os::unix::fs::symlink(own, link).unwrap();
        // Its loopback interface is down, so bind to any address.
        let listener = TcpListener::bind("0.0.0.0:0").unwrap();
        sender.send(listener.local_addr().unwrap().port()).unwrap();
        let _ = wait.recv();
    });
    let Ok(port) = port.recv() else {
        return skip("the right to make a network namespace");
    };
    let request = api::NetstatRequest {
        netns: Some(NetNs {
            netns: vec!["cni-1".to_owned()],
            ..NetNs::default()
        }),
        ..Default::default()
    };
    let paths = Paths {
        netns: netns.path().to_owned(),
        ..Paths::default()
    };
    let found = sockets(&paths, &request);
    assert_eq!(found.len(), 1);
    assert_eq!(
        (found[0].localport, &*found[0].netns),
        (port.into(), "cni-1")
    );
    drop(done);
}

#[tokio::test]
async fn packets_are_captured_as_a_file() {
    let mut request = api::PacketCaptureRequest {
        interface: "lo".to_owned(),
        snap_len: 60,
        ..Default::default()
    };
    let asked = request.clone();
    let capturing = move |sink: &_| capture(&Paths::default(), &asked, sink);
    let mut stream = stream::stream((), capturing).unwrap();
    let header = match stream.next().await.unwrap() {
        Ok(frame) => frame.bytes,
        Err(status) if status.message().contains("not permitted") => {
            return skip("CAP_NET_RAW");
        }
        Err(status) => panic!("{status}"),
    };
    assert_eq!(header[..4], 0xa1b2_c3d4_u32.to_ne_bytes());
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let mut content = [b'x'; 500];
    content[..8].copy_from_slice(b"captured");
    let own = socket.local_addr().unwrap();
    let mut file = header[24..].to_vec();
    let marker = b"captured";
    let is_there = |file: &[u8]| file.windows(8).position(|part| part == marker);
    // The kernel drops packets when other tests send too many, so send until the packet is seen.
    let mut sending = interval(Duration::from_millis(20));
    let read = async {
        while is_there(&file).is_none_or(|at| file.len() < at + 18) {
            tokio::select! {
                _ = sending.tick() => {
                    socket.send_to(&content, own).unwrap();
                }
                frame = stream.next() => file.extend(frame.unwrap().unwrap().bytes),
            }
        }
    };
    timeout(DEADLINE, read).await.unwrap();
    // The record: 16 bytes, then 42 bytes of Ethernet, IPv4 and UDP headers, and 18 bytes of content.
    let at = is_there(&file).unwrap() - 42;
    let number = |at: usize| u32::from_ne_bytes(file[at..at + 4].try_into().unwrap());
    assert_eq!((number(at - 8), number(at - 4)), (60, 542));

    let refusal = async |asked: api::PacketCaptureRequest| {
        let captured = all(move |sink| capture(&Paths::default(), &asked, sink)).await;
        captured.unwrap_err()
    };
    request.interface = "nosuchlink".to_owned();
    let refused = refusal(request.clone()).await;
    assert_eq!(refused.code(), Code::NotFound);
    request.interface = "lo".to_owned();
    request.bpf_filter = vec![api::BpfInstruction {
        op: 0xffff,
        ..Default::default()
    }];
    let refused = refusal(request).await;
    assert_eq!(refused.code(), Code::InvalidArgument);
    assert!(refused.message().starts_with("bpf_filter"), "{refused}");
}
