//! `kubeconfig`: the cluster administrator's config for kubectl.

mod merge;

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use corten_client::connect::Route;
use corten_client::failure::{Failure, finish};
use corten_client::kubeconfig::{MAX_SIZE, fetch};
use corten_client::stream::{Trouble, each, only_one};
use corten_client::table::{harmless, print};
use corten_client::{files, yaml};
use serde_json::Value;

use crate::args::Kubeconfig;

/// Runs `kubeconfig`.
///
/// # Errors
/// The node refuses, or the file cannot be written.
pub async fn run(routes: Vec<Route>, args: &Kubeconfig) -> Result<(), Failure> {
    only_one(&routes, "give its kubeconfig")?;
    let target = target(args)?;
    let failed = each(routes, async |node| {
        write(&fetch(node).await?, &target, args)
    })
    .await?;
    finish(&failed)
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

/// The path to write: the named one, else kubectl's default. A file that is not merged never replaces that default, which
/// may have other clusters: it is `kubeconfig` in the working directory.
fn target(args: &Kubeconfig) -> Result<PathBuf, Failure> {
    if let Some(path) = &args.path {
        return Ok(if path.is_dir() {
            path.join("kubeconfig")
        } else {
            path.clone()
        });
    }
    if !args.merge {
        return Ok(PathBuf::from("kubeconfig"));
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
