//! For tests: machine configs, a worker's, which needs the fewest fields, with what a test is about; and waiting
//! for what controllers show.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a failing step is a failing test"
)]

use std::time::Duration;

use corten_config::Document;
use corten_resources::{Pointer, Spec, Start, Store, Typed};
use tokio::time::timeout;

/// For what a controller does in milliseconds on an idle machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// The part every config has, and with it `version` and `machine`. `fields` is one more line of `machine`, in flow
/// style where it is long.
pub fn machine(fields: &str) -> String {
    let crt = "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCkFBQUEKLS0tLS1FTkQgQ0VSVElGSUNBVEUtLS0tLQo=";
    format!("version: v1alpha1\nmachine:\n  type: worker\n  ca: {{crt: {crt}}}\n  {fields}\n")
}

/// The text of a config: [`machine`], and after a `cluster` (whose next line may be the first of it) `more`.
pub fn text(fields: &str, more: &str) -> String {
    let machine = machine(fields);
    format!("{machine}cluster:\n  controlPlane: {{endpoint: 'https://10.0.0.1:6443'}}\n{more}")
}

/// [`text`], read.
pub fn config(fields: &str, more: &str) -> Document {
    read(&text(fields, more))
}

/// A config with a document of its own, of which this is the kind and what follows it.
pub fn kind(more: &str) -> Document {
    config("", &format!("---\napiVersion: v1alpha1\nkind: {more}\n"))
}

/// What a config says, or all that is wrong with it.
pub fn read(text: &str) -> Document {
    Document::parse(text.as_bytes()).unwrap_or_else(|problems| panic!("{problems}"))
}

/// Waits until a resource is as it shall be, and returns it; `None`: there is none. Who shows it has to be in the
/// store's runtime already.
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
