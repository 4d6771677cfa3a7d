//! Sets the link aliases of the config in the kernel, where every program sees them.

use std::collections::BTreeMap;
use std::sync::Arc;

use corten_resources::controller::{Context, Controller, Dependency, Failure, Input, Output};
use corten_types::network_alias::LinkAliasSpec;
use futures_util::TryStreamExt as _;
use rtnetlink::packet_route::link::{LinkAttribute, LinkMessage};
use rtnetlink::{LinkUnspec, MulticastGroup};
use tokio::sync::Mutex;

use crate::netlink::Kernel;

/// Aliases by link name.
type Names = BTreeMap<String, String>;

/// Makes the kernel's aliases follow the specs; aliases set by other programs are left alone.
#[derive(Debug, Clone, Default)]
pub(crate) struct Aliases {
    /// Aliases set by this controller; shared by all runs, so that they survive a restart.
    given: Arc<Mutex<Names>>,
}

impl Controller for Aliases {
    fn name(&self) -> &'static str {
        "network.LinkAliasSpecController"
    }

    fn inputs(&self) -> Vec<Input> {
        vec![Input::of::<LinkAliasSpec>(Dependency::Weak)]
    }

    fn outputs(&self) -> Vec<Output> {
        vec![]
    }

    async fn run(self, context: &mut Context) -> Result<(), Failure> {
        let mut kernel = Kernel::connect(&[MulticastGroup::Link])?;
        loop {
            tokio::select! {
                () = context.event() => {}
                changed = kernel.changed() => changed?,
            }
            let specs = context.list::<LinkAliasSpec>()?;
            let wanted: Names = specs
                .iter()
                .map(|spec| (spec.id().to_owned(), spec.alias.clone()))
                .collect();
            let mut given = self.given.lock().await;
            follow(&kernel.handle, &wanted, &mut given).await?;
        }
    }
}

async fn follow(
    handle: &rtnetlink::Handle,
    wanted: &Names,
    given: &mut Names,
) -> Result<(), rtnetlink::Error> {
    let links: Vec<LinkMessage> = handle.link().get().execute().try_collect().await?;
    for (index, name, alias) in links.iter().filter_map(named) {
        let wish = wanted.get(&name);
        let is_ours = given.get(&name) == Some(&alias);
        let new = match wish {
            Some(wish) if *wish != alias => wish.as_str(),
            None if is_ours => "",
            _ => continue,
        };
        let change = LinkUnspec::new_with_index(index).alias(new).build();
        handle.link().set(change).execute().await?;
    }
    given.clone_from(wanted);
    Ok(())
}

/// Index, name and alias of a link; the alias may be empty.
fn named(message: &LinkMessage) -> Option<(u32, String, String)> {
    let (mut name, mut alias) = (None, String::new());
    for attribute in &message.attributes {
        match attribute {
            LinkAttribute::IfName(text) => name = Some(text.clone()),
            LinkAttribute::IfAlias(text) => alias.clone_from(text),
            _ => {}
        }
    }
    Some((message.header.index, name?, alias))
}

#[cfg(test)]
mod tests {
    use corten_base::testing::alone;
    use rtnetlink::LinkBridge;

    use super::*;

    async fn aliases(handle: &rtnetlink::Handle) -> Names {
        let links: Vec<LinkMessage> = handle.link().get().execute().try_collect().await.unwrap();
        let named = links.iter().filter_map(named);
        named
            .filter(|(_, name, _)| name != "lo")
            .map(|(_, name, alias)| (name, alias))
            .collect()
    }

    fn names(all: &[(&str, &str)]) -> Names {
        let pair = |(link, alias): &(&str, &str)| ((*link).to_owned(), (*alias).to_owned());
        all.iter().map(pair).collect()
    }

    #[test]
    fn link_aliases_follow_the_config_and_foreign_aliases_stay() {
        alone(async {
            let (connection, handle, _) = rtnetlink::new_connection().unwrap();
            tokio::spawn(connection);
            for name in ["br0", "br1", "br2"] {
                let bridge = LinkBridge::new(name).build();
                handle.link().add(bridge).execute().await.unwrap();
            }
            let others = LinkUnspec::new_with_name("br2").alias("theirs").build();
            handle.link().set(others).execute().await.unwrap();
            let mut given = Names::new();
            for wanted in [
                [("br0", "net0"), ("br1", "net1"), ("br2", "theirs")],
                [("br0", "net0"), ("br1", "uplink"), ("br2", "theirs")],
                [("br0", ""), ("br1", "net0"), ("br2", "theirs")],
                [("br0", ""), ("br1", ""), ("br2", "theirs")],
            ] {
                let ours = wanted
                    .iter()
                    .filter(|(link, alias)| *link != "br2" && !alias.is_empty());
                let ours: Vec<_> = ours.copied().collect();
                follow(&handle, &names(&ours), &mut given).await.unwrap();
                assert_eq!(aliases(&handle).await, names(&wanted));
            }
        });
    }
}
