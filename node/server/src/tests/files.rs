//! Files over the wire.

use std::fs::{self, File};
use std::io::Read as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;

use corten_api::common::Data;
use corten_api::machine as api;
use corten_api::machine::list_request::Type;
use corten_api::machine::machine_service_client::MachineServiceClient;
use corten_api::machine::storage_service_client::StorageServiceClient;
use corten_base::runtime::{BLOCKING_THREADS, WORKERS};
use flate2::read::GzDecoder;
use rustix::fs::{CWD, FileType, Mode, mknodat};
use tempfile::TempDir;
use tokio::time::timeout;
use tonic::transport::Channel;
use tonic::{Code, Request, Status, Streaming};

use super::{DEADLINE, World, world};
use crate::stream::STREAMS;

/// A world, and a directory with `a` (3 bytes, 0640), `b/c/d` (10 bytes), `link` to `b`, and a `fifo`.
fn prepared() -> (World, MachineServiceClient<Channel>, TempDir) {
    let tree = tempfile::tempdir().unwrap();
    let root = tree.path();
    fs::write(root.join("a"), "abc").unwrap();
    fs::set_permissions(root.join("a"), fs::Permissions::from_mode(0o640)).unwrap();
    fs::create_dir_all(root.join("b/c")).unwrap();
    fs::write(root.join("b/c/d"), "0123456789").unwrap();
    symlink("b", root.join("link")).unwrap();
    mknodat(CWD, root.join("fifo"), FileType::Fifo, Mode::RUSR, 0).unwrap();
    let world = world();
    let client = MachineServiceClient::new(world.channel.clone());
    (world, client, tree)
}

async fn all<T>(mut stream: Streaming<T>) -> Result<Vec<T>, Status> {
    let mut messages = Vec::new();
    while let Some(message) = stream.message().await? {
        messages.push(message);
    }
    Ok(messages)
}

fn text(path: &Path) -> String {
    path.to_str().unwrap().to_owned()
}

async fn listed(
    client: &mut MachineServiceClient<Channel>,
    request: api::ListRequest,
) -> Vec<api::FileInfo> {
    all(client.list(request).await.unwrap().into_inner())
        .await
        .unwrap()
}

fn names(files: &[api::FileInfo]) -> Vec<&str> {
    files
        .iter()
        .map(|file| file.relative_name.as_str())
        .collect()
}

#[tokio::test]
async fn directory_is_listed_to_the_requested_depth() {
    let (_world, mut client, tree) = prepared();
    let request = |recurse, recursion_depth| api::ListRequest {
        root: text(tree.path()),
        recurse,
        recursion_depth,
        ..Default::default()
    };
    let flat = listed(&mut client, request(false, 5)).await;
    assert_eq!(names(&flat), [".", "a", "b", "fifo", "link"]);
    assert_eq!(flat[1].name, text(&tree.path().join("a")));
    assert_eq!((flat[1].size, flat[1].mode), (3, 0o640));
    assert!(flat[1].modified > 1_500_000_000 && !flat[1].is_dir);
    assert!(flat[2].is_dir && flat[2].mode & 1 << 31 != 0);
    assert_eq!((flat[4].link.as_str(), flat[4].mode >> 27), ("b", 1));
    let two = listed(&mut client, request(true, 2)).await;
    assert_eq!(names(&two), [".", "a", "b", "b/c", "fifo", "link"]);
    let deep = listed(&mut client, request(true, 0)).await;
    assert_eq!(
        names(&deep),
        [".", "a", "b", "b/c", "b/c/d", "fifo", "link"]
    );
}

#[tokio::test]
async fn only_requested_file_types_are_listed_and_the_root_may_be_a_link() {
    let (_world, mut client, tree) = prepared();
    let mut request = api::ListRequest {
        root: text(tree.path()),
        recurse: true,
        types: vec![Type::Regular.into(), Type::Symlink.into()],
        ..Default::default()
    };
    let files = listed(&mut client, request.clone()).await;
    assert_eq!(names(&files), ["a", "b/c/d", "link"]);
    request.root = text(&tree.path().join("link"));
    let files = listed(&mut client, request.clone()).await;
    assert_eq!(names(&files), ["c/d"]);
    request.root = text(&tree.path().join("b/../a"));
    let files = listed(&mut client, request).await;
    assert_eq!(names(&files), ["a"]);
}

#[tokio::test]
async fn extended_attributes_are_listed_on_request() {
    let (_world, mut client, tree) = prepared();
    let file = tree.path().join("a");
    rustix::fs::setxattr(&file, "user.note", b"x\0y", rustix::fs::XattrFlags::empty()).unwrap();
    let mut request = api::ListRequest {
        root: text(&file),
        report_xattrs: true,
        ..Default::default()
    };
    let files = listed(&mut client, request.clone()).await;
    let note = files[0].xattrs.iter().find(|x| x.name == "user.note");
    assert_eq!(note.unwrap().data, b"x\0y");
    request.report_xattrs = false;
    assert!(listed(&mut client, request).await[0].xattrs.is_empty());
}

#[tokio::test]
async fn a_large_directory_is_listed_whole() {
    let (_world, mut client, tree) = prepared();
    let large = tree.path().join("b");
    for number in 0..10_000 {
        File::create(large.join(format!("{number:05}"))).unwrap();
    }
    let request = api::ListRequest {
        root: text(&large),
        types: vec![Type::Regular.into()],
        ..Default::default()
    };
    let files = listed(&mut client, request).await;
    let mut found = names(&files);
    found.sort_unstable();
    found.dedup();
    assert_eq!((files.len(), found.len()), (10_000, 10_000));
}

#[tokio::test]
async fn disk_usage_adds_up() {
    let (_world, mut client, tree) = prepared();
    let missing = text(&tree.path().join("missing"));
    let mut request = api::DiskUsageRequest {
        all: true,
        paths: vec![text(&tree.path().join("b")), missing.clone()],
        ..Default::default()
    };
    let usage = |infos: &[api::DiskUsageInfo]| {
        infos
            .iter()
            .map(|info| (info.relative_name.clone(), info.size))
            .collect::<Vec<_>>()
    };
    let own =
        |path: &str| i64::try_from(fs::metadata(tree.path().join(path)).unwrap().len()).unwrap();
    let infos = all(client
        .disk_usage(request.clone())
        .await
        .unwrap()
        .into_inner())
    .await
    .unwrap();
    let c = own("b/c") + 10;
    let b = c + own("b");
    assert_eq!(
        usage(&infos[..3]),
        [
            ("c/d".to_owned(), 10),
            ("c".to_owned(), c),
            (".".to_owned(), b)
        ]
    );
    assert_eq!(infos[3].name, missing);
    assert!(infos[3].error.contains("No such file"), "{infos:?}");

    for (depth, everything, threshold, expected) in [
        (1, true, 0, vec![b]),
        (2, true, 0, vec![c, b]),
        (0, false, 0, vec![c, b]),
        (0, true, b, vec![b]),
        (0, true, -10, vec![10]),
    ] {
        request.paths.truncate(1);
        request.recursion_depth = depth;
        request.all = everything;
        request.threshold = threshold;
        let infos = client.disk_usage(request.clone()).await.unwrap();
        let infos = all(infos.into_inner()).await.unwrap();
        let sizes: Vec<i64> = infos.iter().map(|info| info.size).collect();
        assert_eq!(sizes, expected, "{request:?}");
    }
}

async fn read(client: &mut MachineServiceClient<Channel>, path: &Path) -> Result<Vec<u8>, Status> {
    let request = api::ReadRequest { path: text(path) };
    let frames = all(client.read(request).await?.into_inner()).await?;
    Ok(frames.into_iter().flat_map(|data| data.bytes).collect())
}

#[tokio::test]
async fn a_file_is_read_whole() {
    let (_world, mut client, tree) = prepared();
    let large = tree.path().join("large");
    let content: Vec<u8> = (0..1_000_003_u32).map(|n| n.to_le_bytes()[1]).collect();
    fs::write(&large, &content).unwrap();
    symlink("large", tree.path().join("to-large")).unwrap();
    let through_link = tree.path().join("to-large");
    assert_eq!(read(&mut client, &through_link).await.unwrap(), content);
    // The kernel's files report size zero.
    let booted = read(&mut client, Path::new("/proc/sys/kernel/random/boot_id")).await;
    assert_eq!(booted.unwrap().len(), 37);
}

#[tokio::test]
async fn pipes_devices_and_directories_are_not_read() {
    let (_world, mut client, tree) = prepared();
    let root = tree.path();
    symlink("loop", root.join("loop")).unwrap();
    for (path, code) in [
        (root.join("fifo"), Code::InvalidArgument),
        (root.join("b"), Code::InvalidArgument),
        ("/dev/zero".into(), Code::InvalidArgument),
        (root.join("missing"), Code::NotFound),
        (root.join("a/below-a-file"), Code::FailedPrecondition),
        (root.join("nul\0"), Code::InvalidArgument),
        (root.join("x".repeat(5000)), Code::InvalidArgument),
        (root.join("loop"), Code::Internal),
    ] {
        let refused = read(&mut client, &path).await.unwrap_err();
        assert_eq!(refused.code(), code, "{refused}");
        assert!(refused.message().starts_with("path: /"), "{refused}");
    }
}

async fn copied(
    client: &mut MachineServiceClient<Channel>,
    path: &Path,
) -> (Vec<u8>, Option<Status>) {
    let request = api::CopyRequest {
        root_path: text(path),
    };
    let mut stream = client.copy(request).await.unwrap().into_inner();
    let mut archive = Vec::new();
    loop {
        match stream.message().await {
            Ok(Some(Data { bytes, .. })) => archive.extend(bytes),
            Ok(None) => return (archive, None),
            Err(status) => return (archive, Some(status)),
        }
    }
}

/// Name, type and content of each archive entry.
fn unpacked(archive: &[u8]) -> Vec<(String, tar::EntryType, Vec<u8>)> {
    let mut archive = tar::Archive::new(GzDecoder::new(archive));
    let entries = archive.entries().unwrap().map(|entry| {
        let mut entry = entry.unwrap();
        let mut content = Vec::new();
        entry.read_to_end(&mut content).unwrap();
        let name = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
        (name, entry.header().entry_type(), content)
    });
    entries.collect()
}

#[tokio::test]
async fn a_tree_is_copied_as_an_archive() {
    let (_world, mut client, tree) = prepared();
    let deep = "long-name-".repeat(20);
    fs::write(tree.path().join("b").join(&deep), vec![7; 3_000_000]).unwrap();
    let (archive, end) = copied(&mut client, tree.path()).await;
    assert!(end.is_none(), "{end:?}");
    let entries = unpacked(&archive);
    let shown: Vec<_> = entries
        .iter()
        .map(|(name, kind, content)| (name.as_str(), *kind, content.len()))
        .collect();
    assert_eq!(
        shown,
        [
            ("a", tar::EntryType::Regular, 3),
            ("b/", tar::EntryType::Directory, 0),
            ("b/c/", tar::EntryType::Directory, 0),
            ("b/c/d", tar::EntryType::Regular, 10),
            (&format!("b/{deep}"), tar::EntryType::Regular, 3_000_000),
            ("fifo", tar::EntryType::Fifo, 0),
            ("link", tar::EntryType::Symlink, 0),
        ]
    );
    let mut archive = tar::Archive::new(GzDecoder::new(archive.as_slice()));
    let a = archive.entries().unwrap().next().unwrap().unwrap();
    assert_eq!(a.header().mode().unwrap(), 0o640);

    // A single file is copied under its name.
    let (archive, _) = copied(&mut client, &tree.path().join("a")).await;
    assert_eq!(unpacked(&archive)[0].0, "a");
    // The target of a link is copied, too; most links in /etc lead to files.
    symlink("a", tree.path().join("to-a")).unwrap();
    let (archive, end) = copied(&mut client, &tree.path().join("to-a")).await;
    assert!(end.is_none(), "{end:?}");
    let expected = ("to-a".to_owned(), tar::EntryType::Regular, b"abc".to_vec());
    assert_eq!(unpacked(&archive), [expected]);
}

#[tokio::test]
async fn kernel_files_are_copied_and_unreadable_files_are_named() {
    let (_world, mut client, tree) = prepared();
    let (archive, end) = copied(&mut client, Path::new("/proc/sys/kernel/random")).await;
    let entries = unpacked(&archive);
    let boot_id = entries.iter().find(|(name, ..)| name == "boot_id").unwrap();
    assert_eq!(boot_id.2.len(), 37);
    assert!(end.is_none(), "{end:?}");
    // One of these files is write-only.
    let (archive, end) = copied(&mut client, Path::new("/proc/sys/net/ipv4/route")).await;
    assert!(end.is_none(), "{end:?}");
    let entries = unpacked(&archive);
    let flush = entries.iter().find(|(name, ..)| name == "flush").unwrap();
    assert_eq!(flush.2, b"");
    // A file that is one hole looks like the kernel's endless files.
    let hole = File::create(tree.path().join("b/hole")).unwrap();
    hole.set_len(1 << 47)
        .unwrap_or_else(|_| hole.set_len(1 << 40).unwrap());
    let (archive, end) = copied(&mut client, &tree.path().join("b")).await;
    assert_eq!(unpacked(&archive).len(), 2);
    let end = end.unwrap();
    assert_eq!(end.code(), Code::DataLoss);
    assert!(end.message().contains("b/hole"), "{end}");
}

#[tokio::test]
async fn slow_reader_holds_few_frames_and_leaks_nothing() {
    let (_world, mut client, tree) = prepared();
    let endless = tree.path().join("endless");
    File::create(&endless).unwrap().set_len(1 << 40).unwrap();
    let request = api::ReadRequest {
        path: text(&endless),
    };
    let mut streams = Vec::new();
    for _ in 0..STREAMS {
        streams.push(client.read(request.clone()).await.unwrap());
    }
    let refused = client.read(request.clone()).await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted);
    drop(streams);
    // Their threads end when they notice; until then callers are refused.
    let served = async {
        while client.read(request.clone()).await.is_err() {
            tokio::task::yield_now().await;
        }
    };
    timeout(DEADLINE, served).await.unwrap();
}

/// With machined's number of threads.
#[test]
fn slow_readers_do_not_block_other_callers() {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    runtime
        .worker_threads(WORKERS)
        .max_blocking_threads(BLOCKING_THREADS)
        .enable_all();
    runtime.build().unwrap().block_on(async {
        let (world, mut client, tree) = prepared();
        let endless = tree.path().join("endless");
        File::create(&endless).unwrap().set_len(1 << 40).unwrap();
        let path = text(&endless);
        let mut streams = Vec::new();
        for _ in 0..STREAMS {
            let request = api::ReadRequest { path: path.clone() };
            streams.push(client.read(request).await.unwrap());
        }
        let mut other = MachineServiceClient::new(world.another_connection());
        let answer = timeout(DEADLINE, other.memory(())).await.unwrap();
        answer.unwrap();
    });
}

#[tokio::test]
async fn readers_list_files_and_only_administrators_read_them() {
    let (_world, mut client, tree) = prepared();
    let as_reader = |path: &Path| {
        let mut request = Request::new(api::ReadRequest { path: text(path) });
        let role = "os:reader".parse().unwrap();
        request.metadata_mut().append("talos-role", role);
        request
    };
    let refused = client.read(as_reader(&tree.path().join("a"))).await;
    assert_eq!(refused.unwrap_err().code(), Code::PermissionDenied);
    let root = text(tree.path());
    let list = as_reader(tree.path()).map(|_| api::ListRequest {
        root: root.clone(),
        ..Default::default()
    });
    client.list(list).await.unwrap();
    let copy = as_reader(tree.path()).map(|_| api::CopyRequest { root_path: root });
    let refused = client.copy(copy).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied);
}

#[tokio::test]
async fn file_systems_are_measured() {
    let world = world();
    let mut client = StorageServiceClient::new(world.channel.clone());
    let request = |path: &str| api::StorageServiceStatfsRequest { path: path.into() };
    let reply = client.statfs(request("/")).await.unwrap().into_inner();
    assert!(reply.size > 0 && reply.used + reply.available <= reply.size);
    assert_eq!(reply.inodes, reply.inodes_used + reply.inodes_free);
    // As everywhere, the leading slash is optional.
    let same = client.statfs(request("proc")).await.unwrap().into_inner();
    assert_eq!(same.size, 0);
    let refused = client.statfs(request("/no/such")).await.unwrap_err();
    assert_eq!(refused.code(), Code::NotFound);
}
