//! `config`: the client config file. Keys in it are never printed.

mod info;
mod merge;

use std::io::{self, BufRead as _, IsTerminal as _};
use std::path::Path;

use anyhow::Context as _;
use corten_api::machine::GenerateClientConfigurationRequest;
use corten_client::answers::ask;
use corten_client::clientconfig;
use corten_client::clientconfig::{ClientConfig, Context, Identity, Search};
use corten_client::clients::Machine;
use corten_client::connect::{node_value, routes};
use corten_client::failure::Failure;
use corten_client::files;
use corten_client::flags::{Global, Output};
use corten_client::format::Format;
use corten_client::stream::only_one;
use corten_client::table;
use corten_client::table::Table;

use crate::cli::{Config, ConfigAdd, ConfigNew, ConfigRemove};

/// The largest PEM file read, in bytes.
const MAX_PEM: u64 = 1024 * 1024;
const HEADER: &[&str] = &["CURRENT", "NAME", "ENDPOINTS", "NODES"];

pub(crate) async fn run(global: &Global, what: Config) -> Result<(), Failure> {
    let search = Search::new(global.cortenconfig.clone());
    match what {
        Config::Add(args) => edit(&search, |config| add(config, &args)),
        Config::Context { name } => edit(&search, |config| {
            config.select(Some(&name))?;
            config.context = name;
            Ok(())
        }),
        Config::Contexts(output) => contexts(&search.load()?, &output),
        Config::Endpoint { endpoints } => edit(&search, |config| {
            let written = endpoints.iter().map(ToString::to_string);
            current(config, global)?.endpoints = written.collect();
            Ok(())
        }),
        Config::Info(output) => info::run(&search.load()?, global.context.as_deref(), &output),
        Config::Merge { file } => {
            let other = clientconfig::read(&file)
                .with_context(|| format!("client config {}", file.display()))?;
            edit(&search, |config| {
                for line in merge::merge(config, other) {
                    eprintln!("{}", table::printable(&line));
                }
                Ok(())
            })
        }
        Config::New(args) => new(global, &args).await,
        Config::Node { nodes } => {
            for node in &nodes {
                node_value(node)?;
            }
            edit(&search, |config| {
                current(config, global)?.nodes = nodes;
                Ok(())
            })
        }
        Config::Remove(args) => remove(&search, &args),
    }
}

/// Changes the client config and writes it, or leaves it unchanged on an error.
fn edit(
    search: &Search,
    change: impl FnOnce(&mut ClientConfig) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let (path, mut config) = search.open()?;
    change(&mut config)?;
    save(&path, &config)
}

fn save(path: &Path, config: &ClientConfig) -> Result<(), Failure> {
    files::make_parent(path)?;
    Ok(files::write(path, &config.render()?, true)?)
}

fn current<'a>(config: &'a mut ClientConfig, global: &Global) -> Result<&'a mut Context, Failure> {
    let name = global.context.as_deref();
    config.select(name)?;
    let name = name.unwrap_or(&config.context).to_owned();
    let found = config.contexts.get_mut(&name);
    found.ok_or_else(|| Failure::call(format!("no context {name:?}")))
}

fn add(config: &mut ClientConfig, args: &ConfigAdd) -> Result<(), Failure> {
    if config.contexts.contains_key(&args.name) && !args.force {
        return Err(Failure::call(format!(
            "context {:?} exists; --force overwrites it, and its key is lost",
            args.name
        )));
    }
    let identity = Identity {
        ca: files::read(&args.ca, MAX_PEM)?,
        crt: files::read(&args.crt, MAX_PEM)?,
        key: files::read(&args.key, MAX_PEM)?,
    };
    // Refuses unusable credentials now, not at the first call.
    corten_client::tls::mutual(&identity, std::time::SystemTime::now())?;
    let context = Context::new(Vec::new(), &identity);
    config.contexts.insert(args.name.clone(), context);
    if config.context.is_empty() {
        config.context.clone_from(&args.name);
    }
    Ok(())
}

fn contexts(config: &ClientConfig, output: &Output) -> Result<(), Failure> {
    let rows = config.contexts.iter().map(|(name, context)| {
        let mark = if *name == config.context { "*" } else { "" };
        (mark, name, &context.endpoints, &context.nodes)
    });
    let Format::Document(form) = &output.output else {
        let mut table = Table::new(HEADER);
        for (mark, name, endpoints, nodes) in rows {
            table.row([mark, name, &endpoints.join(","), &nodes.join(",")]);
        }
        return Ok(table::print(&table.render())?);
    };
    let items = rows.map(|(mark, name, endpoints, nodes)| {
        serde_json::json!({
            "name": name,
            "current": !mark.is_empty(),
            "endpoints": endpoints,
            "nodes": nodes,
        })
    });
    Ok(table::print(&form.list(items.collect())?)?)
}

fn remove(search: &Search, args: &ConfigRemove) -> Result<(), Failure> {
    let (path, mut config) = search.open()?;
    let matches = matching(&args.name, config.contexts.keys())?;
    if matches.is_empty() {
        return Err(Failure::call(format!(
            "{}: no context matches {:?}; `config contexts` lists them",
            path.display(),
            args.name
        )));
    }
    let mut has_changed = false;
    for name in matches {
        let what = format!("context {name:?} of {}", path.display());
        if name == config.context {
            eprintln!("{what} is the current one and stays: choose another with `config context`");
        } else if args.dry_run {
            eprintln!("{what} would be removed");
        } else if args.noconfirm || confirmed(&what)? {
            config.contexts.remove(&name);
            has_changed = true;
            eprintln!("{what} is removed");
        } else {
            eprintln!("{what} stays");
        }
    }
    if has_changed {
        save(&path, &config)?;
    }
    Ok(())
}

/// The names that match a pattern, in which `*` is any text.
fn matching<'a>(
    pattern: &str,
    names: impl Iterator<Item = &'a String>,
) -> anyhow::Result<Vec<String>> {
    let expression = regex_lite::escape(pattern).replace("\\*", ".*");
    let expression = regex_lite::Regex::new(&format!("^{expression}$"))?;
    let names = names.filter(|name| expression.is_match(name));
    Ok(names.cloned().collect())
}

fn confirmed(what: &str) -> Result<bool, Failure> {
    if !io::stdin().is_terminal() {
        return Err(Failure::usage(
            "standard input is not a terminal, so the removal cannot be confirmed; -y removes without confirmation",
        ));
    }
    eprint!("remove {what} and its key? [y/N] ");
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

/// Writes a client config made by a control plane node. The endpoints are ours, because the node
/// does not know them.
async fn new(global: &Global, args: &ConfigNew) -> Result<(), Failure> {
    let routes = routes(global).await?;
    only_one(&routes, "make a client config")?;
    let body = GenerateClientConfigurationRequest {
        roles: args.roles.clone(),
        crt_ttl: prost_types::Duration::try_from(args.crt_ttl).ok(),
    };
    let mut answers = ask(routes, body, |mut client: Machine, request| async move {
        client.generate_client_configuration(request).await
    })
    .await?;
    for (node, message) in std::mem::take(&mut answers.good) {
        let made = String::from_utf8(message.talosconfig).ok();
        let made = made.and_then(|text| ClientConfig::parse(&text).ok());
        let Some(mut made) = made.filter(|made| made.select(None).is_ok()) else {
            let why = "its answer is not a client config".to_owned();
            answers.failed.push((node, why));
            continue;
        };
        let endpoints = endpoints(global)?;
        for context in made.contexts.values_mut() {
            context.endpoints.clone_from(&endpoints);
        }
        let text = made.render()?;
        if args.file == Path::new("-") {
            table::print(&table::harmless(&text))?;
        } else {
            files::write(&args.file, &text, args.force)?;
            eprintln!("created {}", args.file.display());
        }
    }
    answers.finish()
}

fn endpoints(global: &Global) -> Result<Vec<String>, Failure> {
    if !global.endpoints.is_empty() {
        return Ok(global.endpoints.iter().map(ToString::to_string).collect());
    }
    let config = Search::new(global.cortenconfig.clone()).load()?;
    let context = config.select(global.context.as_deref())?;
    Ok(context.endpoints.clone())
}
