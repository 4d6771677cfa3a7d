//! `get`: resources by any name of their type.

use corten_api::cosi::resource as api;
use corten_api::cosi::resource::EventType;
use corten_api::cosi::resource::meta::ResourceDefinitionSpec;
use corten_client::clients::State;
use corten_client::connect::Route;
use corten_client::failure::{Failure, finish};
use corten_client::format::{Form, Format};
use corten_client::path;
use corten_client::resources::{definition, document, list, one, spec};
use corten_client::stream::{Node, Trouble, drain, each, only_one};
use corten_client::table::{Rows, print};
use serde_json::Value;

use crate::cli::Get;

pub(crate) async fn run(routes: Vec<Route>, args: &Get) -> Result<(), Failure> {
    if args.watch {
        only_one(&routes, "be watched")?;
    }
    let mut shown = Shown::new(&args.output.output);
    let failed = each(routes, async |node| {
        if args.watch {
            watch(node, args, &mut shown).await
        } else {
            get(node, args, &mut shown).await
        }
    })
    .await?;
    print(&shown.rows.render())?;
    finish(&failed)
}

async fn get(node: &Node, args: &Get, shown: &mut Shown<'_>) -> Result<(), Trouble> {
    let definition = definition(node, &args.kind).await?;
    let namespace = namespace(args, &definition);
    let kind = &definition.resource_type;
    let found = match &args.id {
        Some(id) => vec![one(node, namespace, kind, id).await?],
        None => list(node, namespace, kind).await?,
    };
    shown.begin(&definition, false);
    for resource in found {
        shown.add(&node.name, &definition, resource, None)?;
    }
    Ok(())
}

fn namespace<'a>(args: &'a Get, definition: &'a ResourceDefinitionSpec) -> &'a str {
    let own = &definition.default_namespace;
    args.namespace.as_ref().unwrap_or(own)
}

async fn watch(node: &Node, args: &Get, shown: &mut Shown<'_>) -> Result<(), Trouble> {
    let definition = definition(node, &args.kind).await?;
    let request = node.request(api::WatchRequest {
        namespace: namespace(args, &definition).to_owned(),
        r#type: definition.resource_type.clone(),
        id: args.id.clone(),
        options: Some(api::WatchOptions {
            bootstrap_contents: args.id.is_none(),
            ..Default::default()
        }),
        api_version: 1,
    });
    let mut frames = node.client::<State>().watch(request).await?.into_inner();
    shown.begin(&definition, true);
    // The existing resources are printed together, so that their columns are aligned.
    let mut live = args.id.is_some();
    drain(&mut frames, |frame: api::WatchResponse| {
        for event in frame.event {
            match event.event_type() {
                EventType::Bootstrapped => live = true,
                EventType::Noop => {}
                EventType::Errored => return Err(Trouble::Said(event.error().to_owned())),
                kind @ (EventType::Created | EventType::Updated | EventType::Destroyed) => {
                    let resource = event.resource.unwrap_or_default();
                    shown.add(&node.name, &definition, resource, Some(kind))?;
                }
            }
        }
        if live {
            print(&shown.rows.render())?;
        }
        Ok(())
    })
    .await
}

/// The printed resources and their header.
struct Shown<'a> {
    format: &'a Format,
    rows: Rows,
    documents: usize,
}

impl<'a> Shown<'a> {
    fn new(format: &'a Format) -> Shown<'a> {
        Shown {
            format,
            rows: Rows::default(),
            documents: 0,
        }
    }

    fn begin(&mut self, definition: &ResourceDefinitionSpec, watching: bool) {
        if !self.rows.is_empty() || *self.format != Format::Table {
            return;
        }
        let mut header = vec!["NODE".to_owned()];
        if watching {
            header.push("*".to_owned());
        }
        header.extend(["NAMESPACE", "TYPE", "ID", "VERSION"].map(str::to_owned));
        let columns = definition.print_columns.iter();
        header.extend(columns.map(|column| column.name.to_uppercase()));
        self.rows = Rows::new(header);
    }

    fn add(
        &mut self,
        node: &str,
        definition: &ResourceDefinitionSpec,
        resource: api::Resource,
        event: Option<EventType>,
    ) -> Result<(), Trouble> {
        let spec = spec(&resource)?;
        let metadata = resource.metadata.unwrap_or_default();
        let Format::Document(form) = self.format else {
            self.rows
                .row(cells(node, definition, metadata, event, &spec));
            return Ok(());
        };
        let event = event.map(|event| event.as_str_name().to_lowercase());
        let document = document(node, event.as_deref(), &metadata, spec);
        let text = form.document(&document)?;
        let separated = self.documents > 0 && *form == Form::Yaml;
        self.documents += 1;
        let separator = if separated { "---\n" } else { "" };
        Ok(print(&format!("{separator}{text}"))?)
    }
}

fn cells(
    node: &str,
    definition: &ResourceDefinitionSpec,
    metadata: api::Metadata,
    event: Option<EventType>,
    spec: &Value,
) -> Vec<String> {
    let mut cells = vec![node.to_owned()];
    cells.extend(event.map(|event| sign(event).to_owned()));
    cells.extend([
        metadata.namespace,
        definition.display_type.clone(),
        metadata.id,
        metadata.version,
    ]);
    let columns = definition.print_columns.iter();
    cells.extend(columns.map(|column| path::column(spec, &column.json_path)));
    cells
}

fn sign(event: EventType) -> &'static str {
    match event {
        EventType::Created => "+",
        EventType::Destroyed => "-",
        _ => " ",
    }
}
