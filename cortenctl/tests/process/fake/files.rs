//! Files of the fake nodes.

use std::io::Write as _;

use corten_api::common::Data;
use corten_api::machine as api;
use tonic::codegen::BoxStream;
use tonic::{Request, Response, Status};

use super::{each, frames, up};

fn file(name: &str, mode: u32, size: i64) -> api::FileInfo {
    api::FileInfo {
        name: format!("/etc/{name}"),
        relative_name: name.to_owned(),
        size,
        mode,
        modified: 1_000_000_000,
        uid: 50,
        gid: 60,
        ..Default::default()
    }
}

fn archive(entries: &[(&str, &[u8])]) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    for (name, data) in entries {
        let mut header = tar::Header::new_gnu();
        // The name is written unchecked: the library would refuse hostile names.
        header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
        header.set_size(data.len() as u64);
        header.set_mode(0o644);
        header.set_cksum();
        builder.append(&header, *data).unwrap();
    }
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(&builder.into_inner().unwrap()).unwrap();
    gzip.finish().unwrap()
}

/// Splits the bytes into frames of a few bytes.
pub(super) fn chunks(bytes: &[u8]) -> Response<BoxStream<Data>> {
    let chunk = |bytes: &[u8]| Data {
        bytes: bytes.to_vec(),
        ..Default::default()
    };
    frames(bytes.chunks(100).map(chunk).collect())
}

/// Files of the cgroup file system, as in a copy of it.
const CGROUPS: &[(&str, &[u8])] = &[
    ("cgroup.procs", b"2\n"),
    (
        "cpu.stat",
        b"usage_usec 4000000\nuser_usec 3000000\nsystem_usec 1000000\n",
    ),
    ("init/cgroup.procs", b"1\n77\n"),
    ("init/cpu.stat", b"user_usec 1500000\nsystem_usec 10000\n"),
    ("init/memory.current", b"50000000\n"),
    ("init/memory.max", b"max\n"),
    ("system/apid/cgroup.procs", b"\x1b[2J\n"),
    ("system/apid/memory.current", b"-1\n"),
    ("system/memory.low", b"100000000\n"),
];

const KUBECONFIG: &str = "\
apiVersion: v1
kind: Config
clusters: [{name: demo, cluster: {server: 'https://10.0.0.1:6443'}}]
users: [{name: admin@demo, user: {client-key-data: c2VjcmV0}}]
contexts: [{name: admin@demo, context: {cluster: demo, user: admin@demo, namespace: default}}]
current-context: admin@demo
";

pub(super) fn list(
    request: &Request<api::ListRequest>,
) -> Result<Response<BoxStream<api::FileInfo>>, Status> {
    let asked = request.get_ref().clone();
    let all = each(
        request,
        |node, metadata| {
            let mut files = vec![
                file("os-release", 0o644, 350),
                file("ssl", 1 << 31 | 0o755, 60),
            ];
            let mut link = file("mtab", 1 << 27 | 0o777, 19);
            link.link = "/proc/self/mounts".into();
            files.push(link);
            if asked.report_xattrs {
                files[0].xattrs.push(api::Xattr {
                    name: "security.selinux".into(),
                    data: b"system_u:object_r:etc_t:s0\0".to_vec(),
                });
            }
            if asked.root == "/broken" {
                files[1].error = "permission denied".into();
            }
            if node == "evil" {
                files = vec![
                    file("a\u{1b}[2Jb\nc", u32::MAX, -1),
                    file(&"x".repeat(300), 0, i64::MIN),
                ];
                files[0].modified = i64::MAX;
            }
            for file in &mut files {
                file.metadata.clone_from(&metadata);
            }
            files
        },
        |metadata| {
            vec![api::FileInfo {
                metadata,
                ..Default::default()
            }]
        },
    );
    Ok(frames(all.concat()))
}

pub(super) fn disk_usage(
    request: &Request<api::DiskUsageRequest>,
) -> Result<Response<BoxStream<api::DiskUsageInfo>>, Status> {
    let asked = request.get_ref().clone();
    // The path is the first level.
    let levels = match asked.recursion_depth {
        0 => usize::MAX,
        levels => usize::try_from(levels).unwrap(),
    };
    let all = each(
        request,
        |node, metadata| {
            let line = |path: String| api::DiskUsageInfo {
                metadata: metadata.clone(),
                size: if node == "evil" { -5 } else { 123_456 },
                error: if path == "/missing" {
                    "no such file".into()
                } else {
                    String::new()
                },
                relative_name: path.clone(),
                name: path,
            };
            let of_path = |path: &String| {
                let below = ["", "/log", "/log/pods"].into_iter().take(levels);
                below
                    .map(|name| line(format!("{path}{name}")))
                    .collect::<Vec<_>>()
            };
            asked.paths.iter().flat_map(of_path).collect::<Vec<_>>()
        },
        |metadata| {
            vec![api::DiskUsageInfo {
                metadata,
                ..Default::default()
            }]
        },
    );
    Ok(frames(all.concat()))
}

pub(super) fn read(
    request: &Request<api::ReadRequest>,
) -> Result<Response<BoxStream<Data>>, Status> {
    up(request)?;
    match &*request.get_ref().path {
        "/etc/os-release" => Ok(chunks(b"NAME=Corten\nID=corten\n")),
        "/proc/pressure/io" => Ok(chunks(b"some avg10=0.00 avg60=0.00 avg300=0.00 total=0\n")),
        path => Err(Status::not_found(format!("{path}: no such file"))),
    }
}

pub(super) fn copy(
    request: &Request<api::CopyRequest>,
) -> Result<Response<BoxStream<Data>>, Status> {
    let node = up(request)?;
    let whole = archive(&[("log/a.log", b"hello\n"), ("b.log", &[b'x'; 5000])]);
    match (&*node, &*request.get_ref().root_path) {
        ("evil", "/sys/fs/cgroup") => Ok(chunks(b"no archive")),
        ("evil", _) => Ok(chunks(&archive(&[("good", b"1"), ("../evil", b"2")]))),
        (_, "/sys/fs/cgroup") => Ok(chunks(&archive(CGROUPS))),
        // All files are copied except one, which is reported at the end.
        (_, "/some") => {
            let told = Status::internal("/some/secret: not readable");
            let whole = Data {
                bytes: whole,
                ..Default::default()
            };
            let frames = [Ok(whole), Err(told)];
            Ok(Response::new(Box::pin(tokio_stream::iter(frames))))
        }
        (_, "/cut") => Ok(chunks(&whole[..whole.len() / 2])),
        _ => Ok(chunks(&whole)),
    }
}

pub(super) fn kubeconfig(request: &Request<()>) -> Result<Response<BoxStream<Data>>, Status> {
    match &*up(request)? {
        "evil" => Ok(chunks(&archive(&[("kubeconfig", b"users: [secret\n")]))),
        "worker" => Err(Status::unimplemented("only control plane nodes have one")),
        _ => Ok(chunks(&archive(&[("kubeconfig", KUBECONFIG.as_bytes())]))),
    }
}

/// Two packets that reflect the request. The first goes from the port equal to its length to the
/// port equal to the filter's number of instructions. The second exists only when all packets are
/// requested.
pub(super) fn packet_capture(
    request: &Request<api::PacketCaptureRequest>,
) -> Result<Response<BoxStream<Data>>, Status> {
    let node = up(request)?;
    let asked = request.get_ref();
    if asked.interface == "eth9" {
        return Err(Status::not_found("interface: there is no link eth9"));
    }
    if node == "evil" {
        return Ok(chunks(b"GET / HTTP/1.1\r\nHost: \x1b[2J\r\n\r\n"));
    }
    let ethernet = etherparse::PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
    let ports = (asked.snap_len, asked.bpf_filter.len());
    let ports = (ports.0.try_into().unwrap(), ports.1.try_into().unwrap());
    let mut packet = Vec::new();
    ethernet
        .ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64)
        .udp(ports.0, ports.1)
        .write(&mut packet, b"hello")
        .unwrap();
    let mut packets = vec![packet];
    if asked.promiscuous {
        packets.push([&[2; 12][..], &[0x88, 0xcc], &[0; 46]].concat());
    }
    let mut file: Vec<u8> = [0xa1b2_c3d4, 0x0004_0002, 0, 0, asked.snap_len, 1]
        .map(u32::to_le_bytes)
        .concat();
    for packet in packets {
        let length = u32::try_from(packet.len()).unwrap();
        file.extend(
            [1_000_000_000, 5, length, length]
                .map(u32::to_le_bytes)
                .concat(),
        );
        file.extend(packet);
    }
    Ok(chunks(&file))
}
