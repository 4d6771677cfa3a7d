//! `config merge`: adds the contexts of another file.

use corten_client::clientconfig::ClientConfig;

/// Adds the other file's contexts and makes its current context ours. An identical existing context
/// is not added again; a name of a different context gets a number. Returns messages about renamed
/// contexts.
pub(super) fn merge(config: &mut ClientConfig, other: ClientConfig) -> Vec<String> {
    let mut told = Vec::new();
    for (name, context) in other.contexts {
        let free = |candidate: &String| {
            let there = config.contexts.get(candidate);
            there.is_none_or(|there| *there == context)
        };
        let numbered = (1_u32..).map(|number| format!("{name}-{number}"));
        let chosen = std::iter::once(name.clone()).chain(numbered).find(free);
        let chosen = chosen.unwrap_or_else(|| name.clone());
        if chosen != name {
            told.push(format!("renamed context {name:?} to {chosen:?}"));
        }
        if name == other.context {
            config.context.clone_from(&chosen);
        }
        config.contexts.insert(chosen, context);
    }
    told
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use corten_client::clientconfig::Context;

    use super::*;

    fn file(current: &str, contexts: &[(&str, &str)]) -> ClientConfig {
        let context = |endpoint: &str| Context {
            endpoints: vec![endpoint.to_owned()],
            ..Context::default()
        };
        let contexts = contexts.iter();
        ClientConfig {
            context: current.to_owned(),
            contexts: contexts
                .map(|(name, endpoint)| ((*name).to_owned(), context(endpoint)))
                .collect::<BTreeMap<_, _>>(),
            ..ClientConfig::default()
        }
    }

    #[test]
    fn merge_keeps_every_context_and_is_idempotent() {
        let mut ours = file("a", &[("a", "1"), ("a-1", "2"), ("b", "3")]);
        let theirs = file("a", &[("a", "9"), ("b", "3"), ("c", "4")]);
        let told = merge(&mut ours, theirs.clone());
        assert_eq!(told, [r#"renamed context "a" to "a-2""#]);
        let expected = file(
            "a-2",
            &[
                ("a", "1"),
                ("a-1", "2"),
                ("a-2", "9"),
                ("b", "3"),
                ("c", "4"),
            ],
        );
        assert_eq!(ours, expected);
        // A second merge changes nothing.
        merge(&mut ours, theirs);
        assert_eq!(ours, expected);
    }

    #[test]
    fn merge_into_an_empty_file_keeps_every_context() {
        let mut ours = ClientConfig::default();
        assert!(merge(&mut ours, file("x", &[("x", "1")])).is_empty());
        assert_eq!(ours, file("x", &[("x", "1")]));
    }
}
