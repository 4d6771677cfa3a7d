//! Limits of the methods that read files.

use std::fs::File;
use std::path::Path;

use corten_api::machine as api;
use corten_api::machine::machine_service_client::MachineServiceClient;
use corten_base::runtime::{BLOCKING_THREADS, WORKERS};
use tokio::time::timeout;
use tonic::{Code, Request};

use super::{DEADLINE, world};
use crate::places::STREAMS;

fn text(path: &Path) -> String {
    path.to_str().unwrap().to_owned()
}

#[tokio::test]
async fn slow_reader_holds_few_frames_and_leaks_nothing() {
    let tree = tempfile::tempdir().unwrap();
    let world = world();
    let mut client = world.client.clone();
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
        let tree = tempfile::tempdir().unwrap();
        let world = world();
        let mut client = world.client.clone();
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
    let tree = tempfile::tempdir().unwrap();
    std::fs::write(tree.path().join("a"), "abc").unwrap();
    let world = world();
    let mut client = world.client.clone();
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
