//! What each verb does, a file per verb.

mod apply;
mod events;
mod generate;
mod get;
mod logs;
mod machineconfig;
mod memory;
mod meta;
mod mounts;
mod power;
mod processes;
mod service;
mod validate;
mod version;

use serde_json::{Map, Value};

use crate::answers::Answers;
use crate::cli::{Cli, Gen, Machineconfig, Verb};
use crate::connect::routes;
use crate::failure::Failure;
use crate::table::{self, Format, Table};

/// Runs the verb of a command line.
pub(crate) async fn run(cli: Cli) -> Result<(), Failure> {
    let global = cli.global;
    match cli.verb {
        Verb::Gen(Gen::Config(args)) => generate::config(&args),
        Verb::Gen(Gen::Secrets(args)) => generate::secrets(&args),
        Verb::Machineconfig(Machineconfig::Patch(args)) => machineconfig::patch(&args),
        Verb::Validate(args) => validate::run(&args),
        Verb::ApplyConfig(args) => {
            let request = apply::request(&args)?;
            apply::run(routes(&global).await?, request).await
        }
        Verb::Version(args) => version::run(&global, &args).await,
        Verb::Memory(args) => memory::run(routes(&global).await?, args.output).await,
        Verb::Dmesg(args) => logs::dmesg(routes(&global).await?, &args).await,
        Verb::Logs(args) => logs::logs(routes(&global).await?, &args).await,
        Verb::Events(args) => events::run(routes(&global).await?, &args).await,
        Verb::Meta(args) => meta::run(routes(&global).await?, args).await,
        Verb::Service(args) => service::run(routes(&global).await?, &args).await,
        Verb::Get(args) => get::run(routes(&global).await?, &args).await,
        Verb::Mounts(args) => mounts::run(routes(&global).await?, args.output).await,
        Verb::Processes(args) => processes::run(routes(&global).await?, &args).await,
        Verb::Reboot(args) => power::reboot(routes(&global).await?, args.mode).await,
        Verb::Shutdown(args) => power::shutdown(routes(&global).await?, args.force).await,
    }
}

/// Prints what nodes answered, as a table or as a list with an item per node,
/// and says which failed.
fn show<M>(
    answers: Answers<M>,
    format: Format,
    table: impl FnOnce(&[(String, M)]) -> Table,
    item: impl Fn(&M) -> Value,
) -> Result<(), Failure> {
    // A header over nothing would look like an answer.
    if !answers.good.is_empty() || answers.failed.is_empty() {
        let text = match format {
            Format::Table => table(&answers.good).render(),
            Format::Yaml | Format::Json => {
                let items = answers
                    .good
                    .iter()
                    .map(|(node, message)| with_node(node, item(message)));
                table::document(format, &Value::Array(items.collect()))?
            }
        };
        table::print(&text)?;
    }
    answers.finish()
}

fn with_node(node: &str, item: Value) -> Value {
    let mut object = Map::new();
    object.insert("node".to_owned(), Value::from(node));
    if let Value::Object(fields) = item {
        object.extend(fields);
    }
    Value::Object(object)
}
