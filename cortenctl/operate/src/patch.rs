//! `patch` and `edit`: read a node's machine config, change it, and apply it. No error quotes the
//! config, and a file with it is readable by its owner only: it is full of secrets.

use std::io::Write as _;
use std::process::Command;

use anyhow::Context as _;
use corten_api::machine::{ApplyConfiguration, ApplyConfigurationResponse};
use corten_client::clients::Machine;
use corten_client::configfile;
use corten_client::connect::{Route, count};
use corten_client::failure::{Failure, finish};
use corten_client::messages::failure_of;
use corten_client::resources;
use corten_client::stream::{Node, Trouble, each, only_one};
use corten_client::table::printable;
use serde_json::Value;

use super::apply;
use crate::args::{Applying, How, Patch};

/// The resource of the active config, with its id.
const CONFIG: (&str, &str, &str) = ("config", "MachineConfigs.config.talos.dev", "v1alpha1");

/// Runs `patch`.
///
/// # Errors
/// The changed config is invalid, or a node refuses it.
pub async fn patch(routes: Vec<Route>, args: &Patch) -> Result<(), Failure> {
    let mut patches = args.patch.clone();
    if let Some(file) = &args.patch_file {
        patches.push(format!("@{}", file.display()));
    }
    let several = count(&routes) > 1;
    let failed = each(routes, async |node| {
        let config = config(node).await?;
        let changed = configfile::patched(config.into_bytes(), &patches)?;
        give(node, changed, &args.applying.how, several).await
    })
    .await?;
    finish(&failed)
}

/// Runs `edit`.
///
/// # Errors
/// The changed config is invalid, or a node refuses it.
pub async fn edit(routes: Vec<Route>, args: &Applying) -> Result<(), Failure> {
    only_one(&routes, "be edited")?;
    let failed = each(routes, async |node| {
        let before = config(node).await?;
        let mut file = tempfile::Builder::new()
            .prefix("cortenctl-")
            .suffix(".yaml")
            .tempfile()?;
        file.write_all(before.as_bytes())?;
        file.flush()?;
        run_editor(file.path())?;
        let after = configfile::read(file.path())?;
        if after == before.as_bytes() {
            eprintln!("{}: nothing was changed", printable(&node.name));
            return Ok(());
        }
        if let Err(trouble) = give(node, after, &args.how, false).await {
            // The user's edit is kept.
            let (_, path) = file.keep().map_err(|error| Failure::from(error.error))?;
            eprintln!(
                "the edited config is in {}; it contains secrets: delete the file when you no longer need it",
                path.display()
            );
            return Err(trouble);
        }
        Ok(())
    })
    .await?;
    finish(&failed)
}

/// The node's config, with its comments.
pub(super) async fn config(node: &Node) -> Result<String, Trouble> {
    let (namespace, kind, id) = CONFIG;
    let resource = resources::one(node, namespace, kind, id).await?;
    let yaml = resource
        .spec
        .as_ref()
        .map_or("", |spec| &*spec.yaml_spec)
        .to_owned();
    match resources::spec(&resource)? {
        // The whole text in one scalar; nodes of older versions send the document.
        Value::String(text) => Ok(text),
        Value::Object(_) => Ok(yaml),
        _ => Err(Trouble::Said("the node has no machine config".to_owned())),
    }
}

/// Applies a config to the node; `several` if it is one of many nodes.
pub(super) async fn give(
    node: &Node,
    config: Vec<u8>,
    how: &How,
    several: bool,
) -> Result<(), Trouble> {
    let body = apply::body(config, how);
    let mut client = node.client::<Machine>();
    let answer = client.apply_configuration(node.brief(body)).await?;
    let ApplyConfigurationResponse { messages } = answer.into_inner();
    let message: ApplyConfiguration = messages.into_iter().next().unwrap_or_default();
    if let Some(why) = failure_of(&message) {
        return Err(Trouble::Said(why));
    }
    apply::tell(several.then_some(node.name.as_str()), &message);
    Ok(())
}

/// Runs the user's editor. The variable may have arguments, as for `git`.
fn run_editor(path: &std::path::Path) -> Result<(), Failure> {
    let chosen = ["TALOS_EDITOR", "VISUAL", "EDITOR"]
        .into_iter()
        .filter_map(|name| std::env::var(name).ok())
        .find(|editor| !editor.trim().is_empty())
        .unwrap_or_else(|| "vi".to_owned());
    let mut words = chosen.split_whitespace();
    let program = words.next().unwrap_or("vi");
    let status = Command::new(program)
        .args(words)
        .arg(path)
        .status()
        .with_context(|| format!("editor {chosen:?}; set EDITOR to another"))?;
    if status.success() {
        Ok(())
    } else {
        Err(Failure::call(format!(
            "editor {chosen:?} failed ({status}); nothing was changed"
        )))
    }
}
