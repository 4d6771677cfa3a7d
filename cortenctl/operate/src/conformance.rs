//! `conformance kubernetes`: runs the conformance tests of Kubernetes in the cluster, and prints their log.
//!
//! The tests are the container image of the Kubernetes project, in a pod of a namespace of its own. Each run begins
//! without a former one, and leaves nothing behind.

mod log;
mod objects;

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use corten_client::connect::Target;
use corten_client::failure::Failure;
use corten_client::flags::Global;
use corten_client::table::{print, printable};
use corten_cluster::{Cluster, Existing, Identity};
use tokio::signal;
use tokio::time::{sleep, timeout};

use self::log::{failed, follow, started};
use self::objects::{NAME, NAMESPACE, REPORT, Run, TESTS, objects, runs};
use crate::args::ConformanceKubernetes;
use crate::kubernetes;

/// Time for the namespace of a run to be gone.
const GONE: Duration = Duration::from_secs(5 * 60);
/// Time for the report to be printed once the tests have ended.
const REPORTED: Duration = Duration::from_secs(2 * 60);
/// Interval between two looks at it.
const LOOK: Duration = Duration::from_secs(2);

/// Runs `conformance kubernetes`.
///
/// # Errors
/// The cluster cannot be reached, the tests do not run, or a test fails.
pub async fn run(global: &Global, args: &ConformanceKubernetes) -> Result<(), Failure> {
    let access = kubernetes::access(Target::of(global)?, args.k8s_endpoint.as_deref()).await?;
    let access = access.map_err(Failure::call)?;
    let cluster = Cluster::connect_to_watch(&access).map_err(failed)?;
    let version = cluster.version().await.map_err(failed)?;
    let image = args.image.clone();
    let image = image.unwrap_or_else(|| format!("registry.k8s.io/conformance:{version}"));
    for run in runs(args.mode) {
        let results = run.is_kept.then(|| results(&version));
        eprintln!("running the tests {} of {}", run.focus, printable(&image));
        let limit = args.timeout.unwrap_or(run.limit);
        let ended = tokio::select! {
            ended = timeout(limit, execute(&cluster, &run, &image, results.as_deref())) => {
                ended.unwrap_or_else(|_| Err(late(limit)))
            }
            _ = signal::ctrl_c() => Err(Failure::call("interrupted")),
        };
        let removed = tokio::select! {
            removed = remove(&cluster) => removed,
            _ = signal::ctrl_c() => Err(Failure::call(format!(
                "interrupted: delete the namespace {NAMESPACE} and the ClusterRoleBinding {NAME} with kubectl"
            ))),
        };
        ended?;
        removed?;
    }
    eprintln!("all tests passed");
    Ok(())
}

fn late(limit: Duration) -> Failure {
    Failure::call(format!(
        "timeout after {} s: the tests are still running; --timeout gives them more time",
        limit.as_secs()
    ))
}

/// Directory of log and report, in the layout of the upstream collection, such as `v1.37/corten`.
fn results(version: &str) -> PathBuf {
    let plain = |part: &&str| part.chars().all(|c| c.is_ascii_alphanumeric());
    let parts: Vec<&str> = version.split('.').take(2).filter(plain).collect();
    Path::new(&parts.join(".")).join("corten")
}

/// Runs the tests to their end.
async fn execute(
    cluster: &Cluster,
    run: &Run,
    image: &str,
    results: Option<&Path>,
) -> Result<(), Failure> {
    remove(cluster).await?;
    for object in objects(run, image) {
        cluster
            .put(object, Existing::Update)
            .await
            .map_err(failed)?;
    }
    started(cluster, TESTS).await?;
    if run.is_kept {
        started(cluster, REPORT).await?;
    }
    let mut log = results.map(|at| kept(at, "e2e.log")).transpose()?;
    let code = follow(cluster, TESTS, |line| {
        print(&format!("{}\n", printable(line)))?;
        match &mut log {
            Some(log) => writeln!(log, "{line}"),
            None => Ok(()),
        }
    })
    .await?;
    if let Some(at) = results {
        let mut report = kept(at, "junit_01.xml")?;
        let followed = follow(cluster, REPORT, |line| writeln!(report, "{line}"));
        // Tests that were killed leave no report, and its container waits for one.
        match timeout(REPORTED, followed).await {
            Ok(followed) => drop(followed?),
            Err(_) => eprintln!("the tests have left no report"),
        }
        eprintln!("wrote {}", at.display());
    }
    match code {
        0 => Ok(()),
        code => Err(Failure::call(format!(
            "tests failed: the exit code is {code}; the log above names them"
        ))),
    }
}

fn kept(directory: &Path, name: &str) -> Result<File, Failure> {
    let path = directory.join(name);
    let file = fs::create_dir_all(directory).and_then(|()| File::create(&path));
    Ok(file.with_context(|| path.display().to_string())?)
}

/// Removes what a run made, and waits until it is gone.
async fn remove(cluster: &Cluster) -> Result<(), Failure> {
    let binding = Identity {
        group: "rbac.authorization.k8s.io".to_owned(),
        version: "v1".to_owned(),
        kind: "ClusterRoleBinding".to_owned(),
        namespace: String::new(),
        name: NAME.to_owned(),
    };
    let namespace = Identity {
        group: String::new(),
        kind: "Namespace".to_owned(),
        name: NAMESPACE.to_owned(),
        ..binding.clone()
    };
    cluster.delete(binding).await.map_err(failed)?;
    cluster.delete(namespace.clone()).await.map_err(failed)?;
    let gone = async {
        while cluster.exists(namespace.clone()).await.map_err(failed)? {
            sleep(LOOK).await;
        }
        Ok(())
    };
    timeout(GONE, gone).await.unwrap_or_else(|_| {
        Err(Failure::call(format!(
            "the namespace {NAMESPACE} is not gone after {} s; delete it with kubectl",
            GONE.as_secs()
        )))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_in_a_directory_of_the_release() {
        assert_eq!(results("v1.37.2"), Path::new("v1.37/corten"));
        assert_eq!(results("v1.38.0-rc.1"), Path::new("v1.38/corten"));
        assert_eq!(results("../../etc"), Path::new("./corten"));
    }
}
