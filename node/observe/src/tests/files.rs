//! Files of this machine.

use std::fs::{self, File};
use std::io::Read as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;

use corten_api::common::Data;
use corten_api::machine as api;
use corten_api::machine::list_request::Type;
use corten_api::machine::storage_service_server::StorageService as _;
use flate2::read::GzDecoder;
use rustix::fs::{CWD, FileType, Mode, mknodat};
use tempfile::TempDir;
use tokio_stream::StreamExt as _;
use tonic::{Code, Request, Status};

use super::all;
use crate::file_systems::{FileSystems, Meter};
use crate::{files, stream};

/// A directory with `a` (3 bytes, 0640), `b/c/d` (10 bytes), `link` to `b`, and a `fifo`.
fn prepared() -> TempDir {
    let tree = tempfile::tempdir().unwrap();
    let root = tree.path();
    fs::write(root.join("a"), "abc").unwrap();
    fs::set_permissions(root.join("a"), fs::Permissions::from_mode(0o640)).unwrap();
    fs::create_dir_all(root.join("b/c")).unwrap();
    fs::write(root.join("b/c/d"), "0123456789").unwrap();
    symlink("b", root.join("link")).unwrap();
    mknodat(CWD, root.join("fifo"), FileType::Fifo, Mode::RUSR, 0).unwrap();
    tree
}

fn text(path: &Path) -> String {
    path.to_str().unwrap().to_owned()
}

async fn listed(request: api::ListRequest) -> Vec<api::FileInfo> {
    let listed = all(move |sink| files::list(&request, sink)).await;
    listed.unwrap()
}

async fn measured(request: api::DiskUsageRequest) -> Vec<api::DiskUsageInfo> {
    let measured = all(move |sink| files::usage(&request, sink)).await;
    measured.unwrap()
}

fn names(files: &[api::FileInfo]) -> Vec<&str> {
    files
        .iter()
        .map(|file| file.relative_name.as_str())
        .collect()
}

#[tokio::test]
async fn directory_is_listed_to_the_requested_depth() {
    let tree = prepared();
    let request = |recurse, recursion_depth| api::ListRequest {
        root: text(tree.path()),
        recurse,
        recursion_depth,
        ..Default::default()
    };
    let flat = listed(request(false, 5)).await;
    assert_eq!(names(&flat), [".", "a", "b", "fifo", "link"]);
    assert_eq!(flat[1].name, text(&tree.path().join("a")));
    assert_eq!((flat[1].size, flat[1].mode), (3, 0o640));
    assert!(flat[1].modified > 1_500_000_000 && !flat[1].is_dir);
    assert!(flat[2].is_dir && flat[2].mode & 1 << 31 != 0);
    assert_eq!((flat[4].link.as_str(), flat[4].mode >> 27), ("b", 1));
    let two = listed(request(true, 2)).await;
    assert_eq!(names(&two), [".", "a", "b", "b/c", "fifo", "link"]);
    let deep = listed(request(true, 0)).await;
    assert_eq!(
        names(&deep),
        [".", "a", "b", "b/c", "b/c/d", "fifo", "link"]
    );
}

#[tokio::test]
async fn only_requested_file_types_are_listed_and_the_root_may_be_a_link() {
    let tree = prepared();
    let mut request = api::ListRequest {
        root: text(tree.path()),
        recurse: true,
        types: vec![Type::Regular.into(), Type::Symlink.into()],
        ..Default::default()
    };
    let files = listed(request.clone()).await;
    assert_eq!(names(&files), ["a", "b/c/d", "link"]);
    request.root = text(&tree.path().join("link"));
    let files = listed(request.clone()).await;
    assert_eq!(names(&files), ["c/d"]);
    request.root = text(&tree.path().join("b/../a"));
    let files = listed(request).await;
    assert_eq!(names(&files), ["a"]);
}

#[tokio::test]
async fn extended_attributes_are_listed_on_request() {
    let tree = prepared();
    let file = tree.path().join("a");
    rustix::fs::setxattr(&file, "user.note", b"x\0y", rustix::fs::XattrFlags::empty()).unwrap();
    let mut request = api::ListRequest {
        root: text(&file),
        report_xattrs: true,
        ..Default::default()
    };
    let files = listed(request.clone()).await;
    let note = files[0].xattrs.iter().find(|x| x.name == "user.note");
    assert_eq!(note.unwrap().data, b"x\0y");
    request.report_xattrs = false;
    assert!(listed(request).await[0].xattrs.is_empty());
}

#[tokio::test]
async fn a_large_directory_is_listed_whole() {
    let tree = prepared();
    let large = tree.path().join("b");
    for number in 0..10_000 {
        File::create(large.join(format!("{number:05}"))).unwrap();
    }
    let request = api::ListRequest {
        root: text(&large),
        types: vec![Type::Regular.into()],
        ..Default::default()
    };
    let files = listed(request).await;
    let mut found = names(&files);
    found.sort_unstable();
    found.dedup();
    assert_eq!((files.len(), found.len()), (10_000, 10_000));
}

#[tokio::test]
async fn disk_usage_adds_up() {
    let tree = prepared();
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
    let infos = measured(request.clone()).await;
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
        let infos = measured(request.clone()).await;
        let sizes: Vec<i64> = infos.iter().map(|info| info.size).collect();
        assert_eq!(sizes, expected, "{request:?}");
    }
}

async fn read(path: &Path) -> Result<Vec<u8>, Status> {
    let request = api::ReadRequest { path: text(path) };
    let frames = all(move |sink| files::read(&request, |_| Ok(()), sink)).await?;
    Ok(frames.into_iter().flat_map(|data| data.bytes).collect())
}

#[tokio::test]
async fn a_file_is_read_whole() {
    let tree = prepared();
    let large = tree.path().join("large");
    let content: Vec<u8> = (0..1_000_003_u32).map(|n| n.to_le_bytes()[1]).collect();
    fs::write(&large, &content).unwrap();
    symlink("large", tree.path().join("to-large")).unwrap();
    let through_link = tree.path().join("to-large");
    assert_eq!(read(&through_link).await.unwrap(), content);
    // The kernel's files report size zero.
    let booted = read(Path::new("/proc/sys/kernel/random/boot_id")).await;
    assert_eq!(booted.unwrap().len(), 37);
}

#[tokio::test]
async fn pipes_devices_and_directories_are_not_read() {
    let tree = prepared();
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
        let refused = read(&path).await.unwrap_err();
        assert_eq!(refused.code(), code, "{refused}");
        assert!(refused.message().starts_with("path: /"), "{refused}");
    }
}

async fn copied(path: &Path) -> (Vec<u8>, Option<Status>) {
    let request = api::CopyRequest {
        root_path: text(path),
    };
    let copy = move |sink: &_| files::copy(&request, |_| Ok(()), sink);
    let mut stream = stream::stream((), copy).unwrap();
    let mut archive = Vec::new();
    while let Some(frame) = stream.next().await {
        match frame {
            Ok(Data { bytes, .. }) => archive.extend(bytes),
            Err(status) => return (archive, Some(status)),
        }
    }
    (archive, None)
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
    let tree = prepared();
    let deep = "long-name-".repeat(20);
    fs::write(tree.path().join("b").join(&deep), vec![7; 3_000_000]).unwrap();
    let (archive, end) = copied(tree.path()).await;
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
    let (archive, _) = copied(&tree.path().join("a")).await;
    assert_eq!(unpacked(&archive)[0].0, "a");
    // The target of a link is copied, too; most links in /etc lead to files.
    symlink("a", tree.path().join("to-a")).unwrap();
    let (archive, end) = copied(&tree.path().join("to-a")).await;
    assert!(end.is_none(), "{end:?}");
    let expected = ("to-a".to_owned(), tar::EntryType::Regular, b"abc".to_vec());
    assert_eq!(unpacked(&archive), [expected]);
}

#[tokio::test]
async fn kernel_files_are_copied_and_unreadable_files_are_named() {
    let tree = prepared();
    let (archive, end) = copied(Path::new("/proc/sys/kernel/random")).await;
    let entries = unpacked(&archive);
    let boot_id = entries.iter().find(|(name, ..)| name == "boot_id").unwrap();
    assert_eq!(boot_id.2.len(), 37);
    assert!(end.is_none(), "{end:?}");
    // One of these files is write-only.
    let (archive, end) = copied(Path::new("/proc/sys/net/ipv4/route")).await;
    assert!(end.is_none(), "{end:?}");
    let entries = unpacked(&archive);
    let flush = entries.iter().find(|(name, ..)| name == "flush").unwrap();
    assert_eq!(flush.2, b"");
    // A file that is one hole looks like the kernel's endless files.
    let hole = File::create(tree.path().join("b/hole")).unwrap();
    hole.set_len(1 << 47)
        .unwrap_or_else(|_| hole.set_len(1 << 40).unwrap());
    let (archive, end) = copied(&tree.path().join("b")).await;
    assert_eq!(unpacked(&archive).len(), 2);
    let end = end.unwrap();
    assert_eq!(end.code(), Code::DataLoss);
    assert!(end.message().contains("b/hole"), "{end}");
}

#[tokio::test]
async fn refused_files_and_trees_are_not_read() {
    let tree = prepared();
    let refusal = || Status::permission_denied("a secret");
    let path = text(&tree.path().join("a"));
    let request = api::ReadRequest { path };
    let read = all(move |sink| files::read(&request, |_| Err(refusal()), sink)).await;
    let root_path = text(tree.path());
    let request = api::CopyRequest { root_path };
    let copied = all(move |sink| files::copy(&request, |_| Err(refusal()), sink)).await;
    for refused in [read, copied] {
        assert_eq!(refused.unwrap_err().message(), "a secret");
    }
}

#[tokio::test]
async fn file_systems_are_measured() {
    let service = FileSystems::new(&Meter::of_the_kernel());
    let statfs = async |path: &str| {
        let path = path.to_owned();
        let request = Request::new(api::StorageServiceStatfsRequest { path });
        service
            .statfs(request)
            .await
            .map(tonic::Response::into_inner)
    };
    let reply = statfs("/").await.unwrap();
    assert!(reply.size > 0 && reply.used + reply.available <= reply.size);
    assert_eq!(reply.inodes, reply.inodes_used + reply.inodes_free);
    // As everywhere, the leading slash is optional.
    let same = statfs("proc").await.unwrap();
    assert_eq!(same.size, 0);
    let refused = statfs("/no/such").await.unwrap_err();
    assert_eq!(refused.code(), Code::NotFound);
}
