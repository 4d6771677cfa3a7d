//! The objects of a kind as they change (Kubernetes API concepts, "Efficient detection of changes").

use std::time::Duration;

use futures_util::stream::{BoxStream, StreamExt as _};
use kube::Api;
use kube::api::{
    DynamicObject, ListParams, ObjectMeta, PartialObjectMeta, WatchEvent, WatchParams,
};
use tokio::time::{Instant, sleep};

use crate::{ClusterError, within};

/// Lifetime of one watch request, in seconds; the server then ends it.
const LIFETIME: u32 = 290;
/// Silence after which a connection with a watch is dead.
pub(crate) const SILENCE: Duration = Duration::from_secs(LIFETIME as u64 + 5);
/// Pause before the next request: a server that ends each request at once is not asked in a tight loop.
const PAUSE: Duration = Duration::from_secs(1);
/// Interval in which a version expires on a broken server only.
const OFTEN: Duration = Duration::from_secs(10);
/// Status code of the server when it no longer has the changes since a version.
const GONE: u16 = 410;

/// A change of an object.
#[derive(Debug)]
pub(crate) enum Change {
    /// The object exists, in this state.
    Is(DynamicObject),
    /// The object was deleted; its last state.
    Gone(DynamicObject),
}

type Events = BoxStream<'static, Result<WatchEvent<DynamicObject>, kube::Error>>;

/// Watches the objects of a kind. First each existing object is a change. After a longer interruption all of them are
/// changes again, and deletions in between are not. Of a single object the deletion is a change, too.
pub(crate) struct Changes {
    api: Api<DynamicObject>,
    params: WatchParams,
    /// Whether only the metadata of the objects is requested.
    is_partial: bool,
    /// Name of the object, if only one is watched.
    one: Option<String>,
    /// The state of that object before its next events.
    first: Option<Change>,
    /// Name of the watched objects, for messages.
    what: &'static str,
    /// Version from which a new request continues; `None` for all existing objects. Before the first bookmark the
    /// versions of the objects are in no order.
    version: Option<String>,
    events: Option<Events>,
    /// The last time that the changes since a version were gone.
    expired: Option<Instant>,
    replays: u64,
}

impl Changes {
    /// Whole objects.
    pub(crate) fn of(api: Api<DynamicObject>, what: &'static str) -> Changes {
        let params = WatchParams {
            timeout: Some(LIFETIME),
            bookmarks: true,
            ..WatchParams::default()
        };
        Changes {
            api,
            params,
            is_partial: false,
            one: None,
            first: None,
            what,
            version: None,
            events: None,
            expired: None,
            replays: 0,
        }
    }

    /// One whole object.
    pub(crate) fn of_one(api: Api<DynamicObject>, name: &str, what: &'static str) -> Changes {
        let mut changes = Changes::of(api, what);
        changes.params.field_selector = Some(format!("metadata.name={name}"));
        changes.one = Some(name.to_owned());
        changes
    }

    /// The metadata of objects with a label.
    pub(crate) fn of_metadata(api: Api<DynamicObject>, label: &str, what: &'static str) -> Changes {
        let mut changes = Changes::of(api, what);
        changes.params.label_selector = Some(label.to_owned());
        changes.is_partial = true;
        changes
    }

    /// Number of times that all existing objects became changes. A higher number than before the last change means that
    /// this change is the first of them.
    pub(crate) fn replays(&self) -> u64 {
        self.replays
    }

    /// Waits for the next change. Dropping the future loses none.
    pub(crate) async fn next(&mut self) -> Result<Change, ClusterError> {
        loop {
            if let Some(first) = self.first.take() {
                return Ok(first);
            }
            if self.events.is_none() {
                if self.version.is_none() && self.look().await? {
                    continue;
                }
                match self.open().await {
                    Ok(opened) => self.events = Some(opened),
                    Err(error) if error.code() == Some(GONE) && self.version.is_some() => {
                        self.version = None;
                        continue;
                    }
                    Err(error) => return Err(error),
                }
            }
            let Some(events) = &mut self.events else {
                continue;
            };
            match events.next().await {
                Some(Ok(WatchEvent::Added(object) | WatchEvent::Modified(object))) => {
                    self.proceed(&object);
                    return Ok(Change::Is(object));
                }
                Some(Ok(WatchEvent::Deleted(object))) => {
                    self.proceed(&object);
                    return Ok(Change::Gone(object));
                }
                Some(Ok(WatchEvent::Bookmark(mark))) => {
                    self.version = Some(mark.metadata.resource_version);
                }
                Some(Ok(WatchEvent::Error(status))) if status.code == GONE => {
                    self.version = None;
                    self.events = None;
                    let expired = self.expired.replace(Instant::now());
                    if expired.is_some_and(|before| before.elapsed() < OFTEN) {
                        sleep(PAUSE).await;
                    }
                }
                Some(Ok(WatchEvent::Error(status))) => {
                    self.events = None;
                    let error = kube::Error::Api(status);
                    return Err(ClusterError::failed("watch", &self.what, error));
                }
                Some(Err(error)) => {
                    self.events = None;
                    return Err(ClusterError::failed("watch", &self.what, error));
                }
                // The request's time is over.
                None => {
                    self.events = None;
                    sleep(PAUSE).await;
                }
            }
        }
    }

    fn proceed(&mut self, object: &DynamicObject) {
        if self.version.is_some() {
            self.version.clone_from(&object.metadata.resource_version);
        }
    }

    /// Reads the object that is watched alone, from whose version the events then continue. Returns whether there is one.
    async fn look(&mut self) -> Result<bool, ClusterError> {
        let Some(name) = &self.one else {
            return Ok(false);
        };
        // A list has a version even without the object.
        let only = ListParams::default().fields(&format!("metadata.name={name}"));
        let found = within("read", &self.what, self.api.list(&only)).await?;
        self.version = Some(found.metadata.resource_version.unwrap_or_default());
        let gone = || {
            Change::Gone(DynamicObject {
                types: None,
                metadata: ObjectMeta {
                    name: Some(name.clone()),
                    ..ObjectMeta::default()
                },
                data: serde_json::Value::Null,
            })
        };
        let is = found.items.into_iter().next().map(Change::Is);
        self.first = Some(is.unwrap_or_else(gone));
        Ok(true)
    }

    async fn open(&mut self) -> Result<Events, ClusterError> {
        self.replays += u64::from(self.version.is_none());
        let (api, params) = (&self.api, &self.params);
        let version = self.version.as_deref().unwrap_or_default();
        if self.is_partial {
            let opened = api.watch_metadata(params, version);
            let opened = within("watch", &self.what, opened).await?;
            return Ok(opened.map(|event| event.map(whole)).boxed());
        }
        let opened = within("watch", &self.what, api.watch(params, version)).await?;
        Ok(opened.boxed())
    }
}

/// An event of metadata as an event of objects without content.
fn whole(event: WatchEvent<PartialObjectMeta<DynamicObject>>) -> WatchEvent<DynamicObject> {
    let whole = |part: PartialObjectMeta<DynamicObject>| DynamicObject {
        types: part.types,
        metadata: part.metadata,
        data: serde_json::Value::Null,
    };
    match event {
        WatchEvent::Added(part) => WatchEvent::Added(whole(part)),
        WatchEvent::Modified(part) => WatchEvent::Modified(whole(part)),
        WatchEvent::Deleted(part) => WatchEvent::Deleted(whole(part)),
        WatchEvent::Bookmark(mark) => WatchEvent::Bookmark(mark),
        WatchEvent::Error(status) => WatchEvent::Error(status),
    }
}
