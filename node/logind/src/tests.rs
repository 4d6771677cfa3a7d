//! A client speaks the kubelet's sequence with the socket's server. `tests/corpus/dbus` has the kubelet's messages, as
//! its library (godbus) writes them.

use std::io::{IoSliceMut, Read as _, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use corten_corpus::{hostile, sample};
use proptest::prelude::proptest;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use tempfile::TempDir;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::*;
use crate::message::read;

/// Timeout for work that takes milliseconds on an idle machine.
const PATIENCE: Duration = Duration::from_secs(60);

struct World {
    _directory: TempDir,
    path: PathBuf,
    inhibitors: Inhibitors,
    server: JoinHandle<Infallible>,
}

impl Drop for World {
    fn drop(&mut self) {
        self.server.abort();
    }
}

fn world_of(owner: u32) -> World {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("bus");
    let (listener, inhibitors) = (bind(&path).unwrap(), Inhibitors::default());
    let its = inhibitors.clone();
    let server = tokio::spawn(async move { serve(&listener, owner, its).await });
    World {
        _directory: directory,
        path,
        inhibitors,
        server,
    }
}

fn world() -> World {
    world_of(rustix::process::geteuid().as_raw())
}

/// A message to the client.
#[derive(Debug)]
struct Received {
    kind: u8,
    header: String,
    body: Vec<u8>,
    descriptor: Option<OwnedFd>,
}

struct Kubelet(UnixStream);

impl Kubelet {
    /// Connects like godbus 5.2.
    fn connect(path: &Path) -> Kubelet {
        let mut kubelet = Kubelet::unknown(path);
        kubelet.0.write_all(b"\0").unwrap();
        for (line, begin) in [
            ("AUTH", "REJECTED EXTERNAL"),
            ("AUTH EXTERNAL", "DATA"),
            ("DATA", "OK "),
            ("NEGOTIATE_UNIX_FD", "AGREE_UNIX_FD"),
        ] {
            assert!(kubelet.line(line).starts_with(begin), "{line}");
        }
        kubelet.0.write_all(b"BEGIN\r\n").unwrap();
        kubelet
    }

    fn unknown(path: &Path) -> Kubelet {
        let stream = UnixStream::connect(path).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Kubelet(stream)
    }

    fn line(&mut self, line: &str) -> String {
        self.0.write_all(format!("{line}\r\n").as_bytes()).unwrap();
        let mut answer = Vec::new();
        while !answer.ends_with(b"\r\n") {
            let mut byte = [0];
            self.0.read_exact(&mut byte).unwrap();
            answer.extend(byte);
        }
        String::from_utf8(answer).unwrap().trim_end().to_owned()
    }

    fn receive(&self) -> Received {
        let mut bytes = [0; 4096];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let parts = &mut [IoSliceMut::new(&mut bytes)];
        let received = recvmsg(&self.0, parts, &mut control, RecvFlags::CMSG_CLOEXEC).unwrap();
        let mut descriptors = control.drain().flat_map(|message| match message {
            RecvAncillaryMessage::ScmRights(descriptors) => descriptors.collect(),
            _ => Vec::new(),
        });
        let bytes = &bytes[..received.bytes];
        let number = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
        let header = (16 + number(12)).next_multiple_of(8);
        assert_eq!(bytes.len(), header + number(4), "one whole message");
        Received {
            kind: bytes[1],
            header: String::from_utf8_lossy(&bytes[..header]).into_owned(),
            body: bytes[header..].to_vec(),
            descriptor: descriptors.next(),
        }
    }

    fn call(&mut self, message: &[u8]) -> Received {
        self.0.write_all(message).unwrap();
        self.receive()
    }

    fn inhibit(&mut self) -> Received {
        self.call(&sample("dbus", "inhibit"))
    }

    fn ends(mut self) -> bool {
        let read = self.0.read(&mut [0; 64]);
        read.map_or_else(
            |error| error.kind() == io::ErrorKind::ConnectionReset,
            |read| read == 0,
        )
    }
}

/// A sample with a text replaced by one of the same length.
fn changed(name: &str, from: &str, to: &str) -> Vec<u8> {
    let mut message = sample("dbus", name);
    let at = message
        .windows(from.len())
        .rposition(|part| part == from.as_bytes())
        .unwrap();
    message[at..at + to.len()].copy_from_slice(to.as_bytes());
    message
}

#[tokio::test(flavor = "multi_thread")]
async fn end_waits_for_a_kubelet_that_was_told_of_it() {
    let world = world();
    let mut kubelet = Kubelet::connect(&world.path);
    let hello = kubelet.call(&sample("dbus", "hello"));
    assert_eq!((hello.kind, hello.body), (2, b"\x04\0\0\0:1.0\0".to_vec()));
    let delay = kubelet.call(&sample("dbus", "get"));
    let expected = [&b"\x01t\0\0\0\0\0\0"[..], &1_200_000_000_u64.to_le_bytes()].concat();
    assert_eq!((delay.kind, delay.body), (2, expected));
    let lock = kubelet.inhibit();
    assert_eq!((lock.kind, lock.body), (2, vec![0; 4]));
    let lock = lock.descriptor.unwrap();
    assert_eq!(world.inhibitors.held(), 1);
    let subscribed = kubelet.call(&sample("dbus", "add-match"));
    assert_eq!((subscribed.kind, subscribed.body), (2, Vec::new()));

    let inhibitors = world.inhibitors.clone();
    let ended = tokio::spawn(async move { inhibitors.announce_end(PATIENCE).await });
    let signal = kubelet.receive();
    assert_eq!((signal.kind, signal.body), (4, vec![1, 0, 0, 0]));
    for part in [
        "/org/freedesktop/login1",
        "org.freedesktop.login1.Manager",
        "PrepareForShutdown",
    ] {
        assert!(signal.header.contains(part), "{}", signal.header);
    }
    assert!(!ended.is_finished());
    let late = kubelet.inhibit();
    assert!(
        late.kind == 3 && late.header.contains("OperationInProgress"),
        "{late:?}"
    );
    drop(lock);
    assert!(ended.await.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn kubelet_that_dies_delays_no_end() {
    let world = world();
    let mut kubelet = Kubelet::connect(&world.path);
    drop(kubelet.inhibit());
    assert!(world.inhibitors.announce_end(PATIENCE).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_that_a_kubelet_does_not_make_are_refused_by_name() {
    let world = world();
    let mut kubelet = Kubelet::connect(&world.path);
    for (message, error) in [
        (
            changed("get", "InhibitDelayMaxUSec", "HandlePowerKey12345"),
            "UnknownProperty",
        ),
        (changed("inhibit", "delay", "block"), "InvalidArgs"),
        (
            changed("inhibit", "shutdown\0\0\0\0\x07", "sleep:at\0\0\0\0\x07"),
            "InvalidArgs",
        ),
        (
            changed("inhibit", "Inhibit\0", "Suspend\0"),
            "UnknownMethod",
        ),
        (changed("hello", "Hello", "Getid"), "UnknownMethod"),
        (
            changed("add-match", "g\0\x01s\0", "g\0\x01o\0"),
            "InvalidArgs",
        ),
    ] {
        let answer = kubelet.call(&message);
        assert!(
            answer.kind == 3 && answer.header.contains(error),
            "{error}: {answer:?}"
        );
    }
    assert_eq!(world.inhibitors.held(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn client_that_accepts_no_descriptors_or_awaits_no_answer_gets_no_inhibitor() {
    let world = world();
    let mut kubelet = Kubelet::unknown(&world.path);
    kubelet.0.write_all(b"\0").unwrap();
    assert!(kubelet.line("AUTH EXTERNAL 30").starts_with("OK "));
    kubelet.0.write_all(b"BEGIN\r\n").unwrap();
    let refused = kubelet.inhibit();
    assert!(refused.header.contains("NotSupported"), "{refused:?}");

    let mut kubelet = Kubelet::connect(&world.path);
    let mut silent = sample("dbus", "inhibit");
    silent[2] = 1;
    kubelet.0.write_all(&silent).unwrap();
    assert!(kubelet.call(&sample("dbus", "hello")).descriptor.is_none());
    assert_eq!(world.inhibitors.held(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn pieces_and_bundles_of_messages_are_read_alike() {
    let world = world();
    let mut kubelet = Kubelet::connect(&world.path);
    for piece in sample("dbus", "get").chunks(7) {
        kubelet.0.write_all(piece).unwrap();
        tokio::task::yield_now().await;
    }
    assert_eq!(kubelet.receive().kind, 2);
    let all: Vec<u8> = ["inhibit"; 20]
        .iter()
        .flat_map(|name| sample("dbus", name))
        .collect();
    kubelet.0.write_all(&all).unwrap();
    let mut held = Vec::new();
    while world.inhibitors.held() < inhibitors::MOST {
        held.extend(kubelet.receive().descriptor);
    }
    assert_eq!(world.inhibitors.held(), inhibitors::MOST);
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_owner_is_served_and_few_connections_at_once() {
    let foreign = world_of(rustix::process::geteuid().as_raw() + 1);
    assert!(Kubelet::unknown(&foreign.path).ends());
    let world = world();
    let first: Vec<Kubelet> = (0..MOST).map(|_| Kubelet::connect(&world.path)).collect();
    assert!(Kubelet::unknown(&world.path).ends());
    drop(first);
    // The places are free once the server has seen that the clients are gone.
    let served = async {
        loop {
            let mut next = Kubelet::unknown(&world.path);
            let written = next.0.write_all(b"\0AUTH\r\n");
            if written.is_ok() && next.0.read(&mut [0; 64]).is_ok_and(|read| read > 0) {
                break;
            }
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, served).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_that_are_no_handshake_or_message_end_the_connection() {
    let world = world();
    for bytes in [
        &b"AUTH\r\n"[..],
        b"\0BEGIN\r\n",
        &[b'x'; 2000],
        b"\0\xff\xff\r\n",
    ] {
        let mut client = Kubelet::unknown(&world.path);
        client.0.write_all(bytes).unwrap();
        assert!(client.ends());
    }
    let mut client = Kubelet::unknown(&world.path);
    client
        .0
        .write_all(&[&b"\0"[..], &b"PING\r\n".repeat(40)].concat())
        .unwrap();
    let mut answers = Vec::new();
    let _ = client.0.read_to_end(&mut answers);
    assert!(answers.len() <= 16 * b"ERROR\r\n".len());
    for (at, byte) in [(0, b'B'), (1, 0), (3, 2), (5, 0xff), (14, 0xff)] {
        let mut client = Kubelet::connect(&world.path);
        let mut message = sample("dbus", "hello");
        message[at] = byte;
        client.0.write_all(&message).unwrap();
        assert!(client.ends(), "byte {at}");
    }
}

#[test]
fn messages_of_the_kubelet_are_read() {
    for (name, arguments) in [("hello", 0), ("get", 2), ("inhibit", 4), ("add-match", 1)] {
        let message = sample("dbus", name);
        let (length, call) = read(&message).unwrap().unwrap();
        assert_eq!(length, message.len());
        let call = call.unwrap();
        assert!(call.expects_reply && call.path.starts_with("/org/freedesktop/"));
        let found = [
            call.strings::<0>().is_some(),
            call.strings::<1>().is_some(),
            call.strings::<2>().is_some(),
            false,
            call.strings::<4>().is_some(),
        ];
        assert_eq!(
            found.iter().position(|found| *found),
            Some(arguments),
            "{name}"
        );
        for cut in 0..message.len() {
            assert_eq!(read(&message[..cut]), Ok(None), "{name}, {cut} bytes");
        }
    }
}

#[test]
fn unknown_fields_are_skipped_and_other_kinds_need_no_answer() {
    let field = |code: u8, kind: &[u8], value: &[u8]| {
        let mut message = vec![b'l', 1, 0, 1, 0, 0, 0, 0, 7, 0, 0, 0];
        let length = u32::try_from(3 + kind.len() + value.len()).unwrap();
        message.extend(length.to_le_bytes());
        message.extend([code, u8::try_from(kind.len()).unwrap()]);
        message.extend(kind);
        message.push(0);
        message.extend(value);
        message.resize(message.len().next_multiple_of(8), 0);
        message
    };
    let signal = field(40, b"u", &[1, 0, 0, 0]);
    let (length, call) = read(&signal).unwrap().unwrap();
    assert_eq!((length, call.map(|call| call.serial)), (24, Some(7)));
    let mut signal = signal;
    signal[1] = 4;
    assert_eq!(read(&signal), Ok(Some((24, None))));
    for bad in [
        field(40, b"au", &[0; 4]),
        field(1, b"s", b"\0\0\0\0\0"),
        field(3, b"s", b"\x02\0\0\0a\0"),
        field(3, b"s", b"\x01\0\0\0\xff\0"),
        field(3, b"s", b"\x01\0\0\0ab"),
    ] {
        read(&bad).unwrap_err();
    }
}

proptest! {
    #[test]
    fn hostile_messages_are_answered_or_refused(bytes in hostile("dbus")) {
        let inhibitors = Inhibitors::default();
        let mut rest = bytes.as_slice();
        while let Ok(Some((length, call))) = read(rest) {
            assert!(length > 0 && length <= rest.len());
            if let Some(call) = call {
                // Without descriptors no inhibitor is taken, which needs a runtime.
                let answer = manager::answer(&call, &inhibitors, false);
                assert!(!matches!(answer, manager::Answer::Inhibitor(_)));
            }
            rest = &rest[length..];
        }
    }
}
