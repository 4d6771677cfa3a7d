//! `kubeconfig`: the cluster administrator's config for kubectl.

mod merge;

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde_json::Value;

use crate::answers::finish;
use crate::cli::Kubeconfig;
use crate::clients::Machine;
use crate::connect::Route;
use crate::failure::Failure;
use crate::stream::{Node, Trouble, each, gather, only_one};
use crate::table::{harmless, print};
use crate::verbs::copy::file_of;
use crate::{files, yaml};

/// The largest kubeconfig read, in bytes; a node's is about 6 kB.
const MAX_SIZE: usize = 8 * 1024 * 1024;

pub(crate) async fn run(routes: Vec<Route>, args: &Kubeconfig) -> Result<(), Failure> {
    only_one(&routes, "give its kubeconfig")?;
    let target = target(args)?;
    let failed = each(routes, async |node| {
        write(&fetch(node).await?, &target, args)
    })
    .await?;
    finish(&failed)
}

/// The node's kubeconfig, unchanged.
///
/// # Errors
/// The node refuses the call, or its answer is no archive with a kubeconfig.
pub(crate) async fn fetch(node: &Node) -> Result<String, Trouble> {
    let mut archive = Vec::new();
    let mut client = node.client::<Machine>();
    let mut frames = client.kubeconfig(node.request(())).await?.into_inner();
    let too_large = "its kubeconfig exceeds the size limit";
    gather(&mut frames, MAX_SIZE, too_large, &mut archive).await?;
    file_of(&archive, "kubeconfig", MAX_SIZE as u64)
        .map_err(|error| Trouble::Said(format!("its archive cannot be read: {error}")))
}

fn write(text: &str, target: &Path, args: &Kubeconfig) -> Result<(), Trouble> {
    let made = parse(text)
        .and_then(|made| merge::single(made, args.force_context_name.as_deref()))
        .map_err(|error| Trouble::Said(format!("its answer is not a kubeconfig: {error}")))?;
    if target == Path::new("-") {
        return Ok(print(&harmless(&render(&made.document())?))?);
    }
    let target = &files::real(target);
    let there = target.exists();
    let document = if args.merge && there {
        let old = files::read(target, MAX_SIZE as u64).map_err(Failure::from)?;
        let merged = parse(&old).and_then(|old| merge::merge(old, made, args.force));
        let (document, context) = merged
            .with_context(|| target.display().to_string())
            .map_err(Failure::from)?;
        eprintln!("the current context is now {context}");
        document
    } else {
        made.document()
    };
    files::make_parent(target).map_err(Failure::from)?;
    files::write(target, &render(&document)?, args.force || args.merge).map_err(Failure::from)?;
    eprintln!("wrote {}", target.display());
    Ok(())
}

/// No error quotes the text, because it has keys.
fn parse(text: &str) -> anyhow::Result<Value> {
    if text.trim().is_empty() {
        return Ok(Value::Null);
    }
    yaml::parse(text)
}

fn render(document: &Value) -> Result<String, Failure> {
    Ok(yaml::indented(document, 2)?)
}

/// The path to write: the named one, else kubectl's default.
fn target(args: &Kubeconfig) -> Result<PathBuf, Failure> {
    if let Some(path) = &args.path {
        return Ok(if path.is_dir() {
            path.join("kubeconfig")
        } else {
            path.clone()
        });
    }
    if let Some(list) = std::env::var_os("KUBECONFIG")
        && let Some(first) = std::env::split_paths(&list).find(|path| !path.as_os_str().is_empty())
    {
        return Ok(first);
    }
    let home = std::env::home_dir().filter(|home| !home.as_os_str().is_empty());
    home.map(|home| home.join(".kube").join("config"))
        .ok_or_else(|| Failure::usage("there is no home directory: name the file to write"))
}
