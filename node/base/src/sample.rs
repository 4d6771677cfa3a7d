//! Test support: sample machine configs and a wait for resources. The configs are a worker's, which needs the fewest
//! fields, plus the part under test.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a failing step is a failing test"
)]

use std::time::Duration;

use corten_config::Document;
use corten_resources::{Pointer, Spec, Start, Store, Typed};
use tokio::time::timeout;

/// Timeout for work that takes a controller milliseconds on an idle machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// The part that every config needs: `version` and `machine`. `fields` is one more line of `machine`, in flow style if
/// long.
pub fn machine(fields: &str) -> String {
    let crt = "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCkFBQUEKLS0tLS1FTkQgQ0VSVElGSUNBVEUtLS0tLQo=";
    format!("version: v1alpha1\nmachine:\n  type: worker\n  ca: {{crt: {crt}}}\n  {fields}\n")
}

/// The text of a config: [`machine`], then `cluster`, then `more`, which may begin with another line of `cluster`.
pub fn text(fields: &str, more: &str) -> String {
    let machine = machine(fields);
    format!("{machine}cluster:\n  controlPlane: {{endpoint: 'https://10.0.0.1:6443'}}\n{more}")
}

/// [`text`], parsed.
pub fn config(fields: &str, more: &str) -> Document {
    read(&text(fields, more))
}

/// A config with an additional document; `more` is its kind and the lines that follow.
pub fn kind(more: &str) -> Document {
    config("", &format!("---\napiVersion: v1alpha1\nkind: {more}\n"))
}

/// Parses a config; panics with all its problems.
pub fn read(text: &str) -> Document {
    Document::parse(text.as_bytes()).unwrap_or_else(|problems| panic!("{problems}"))
}

/// Waits until a resource satisfies the predicate, and returns it; `None` if it is absent. Its controller must already
/// be in the store's runtime.
pub async fn until<S: Spec>(
    store: &Store,
    id: &str,
    done: impl Fn(Option<&S>) -> bool,
) -> Option<Typed<S>> {
    let mut watcher = store.watch(&Pointer::of::<S>(id), Start::Now).unwrap();
    let reached = async {
        loop {
            let found = store.get_as::<S>(id);
            if done(found.as_deref()) {
                return found;
            }
            watcher.next().await.unwrap();
        }
    };
    timeout(PATIENCE, reached)
        .await
        .unwrap_or_else(|_| panic!("{id} stays {:?}", store.get_as::<S>(id).as_deref()))
}
