//! One round of requests: all documents of a platform, or the reason why there are none yet.

use std::sync::Arc;

use tokio::task::spawn_blocking;

use crate::client::{Client, LARGEST, Question};
use crate::documents::{Documents, Given};
use crate::request::{Headers, Method, Need, Platform, Request, Role, Value, Volume};

/// From this round on, an unavailable optional document counts as absent, and a volume replaces its platform's service.
/// The machine config is not such a document ([`Need::Config`]).
const GIVE_UP: u32 = 3;
/// Request limit of one round; a list of tags needs many.
const MOST_QUESTIONS: usize = 160;

/// Blocking access to the machine.
pub trait Local: Send + Sync + 'static {
    /// Reads files from the first volume with one of the labels; without labels, from the first disc in a drive with one
    /// of the files. A file that does not exist is `None`; without such a volume the result is `None`.
    ///
    /// # Errors
    /// The volume cannot be read; the text names it.
    fn volume(
        &self,
        labels: &[&str],
        files: &[&str],
    ) -> Result<Option<Vec<Option<Vec<u8>>>>, String>;

    /// Reads a VMware guest property; `None` if it is not set.
    ///
    /// # Errors
    /// The machine does not run on VMware, or the hypervisor does not answer.
    fn guestinfo(&self, key: &str) -> Result<Option<Vec<u8>>, String>;

    /// Whether the node has no machine config yet.
    fn needs_config(&self) -> bool;
}

/// Sources of a platform's documents.
#[derive(Clone)]
pub(crate) struct Sources {
    pub client: Client,
    pub local: Arc<dyn Local>,
}

/// Result of one round.
#[derive(Debug, Default)]
pub(crate) struct Round {
    pub documents: Documents,
    /// Skipped requests, and the reasons.
    pub notes: Vec<String>,
}

/// Progress with a platform.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// No answer yet, after this many failed rounds.
    First(u32),
    /// An answer was accepted. Partial data must not replace it.
    Later,
}

impl Stage {
    /// Whether an unavailable optional document counts as absent.
    fn gives_up(self) -> bool {
        matches!(self, Stage::First(failed) if failed + 1 >= GIVE_UP)
    }

    /// Whether a volume may still appear.
    fn awaits_volume(self) -> bool {
        matches!(self, Stage::First(failed) if failed + 1 < GIVE_UP)
    }
}

/// Fetches all documents of a platform.
///
/// # Errors
/// The missing document or server, and the reason.
pub(crate) async fn ask(
    platform: &'static Platform,
    sources: &Sources,
    stage: Stage,
) -> Result<Round, String> {
    let mut round = Round::default();
    let Some(volume) = &platform.volume else {
        ask_service(platform, sources, stage, &mut round).await?;
        return Ok(round);
    };
    let read = read_volume(volume, sources, &mut round).await;
    // The config may be on the volume that cannot be read.
    let is_in_doubt = read.is_err() && sources.local.needs_config();
    let missing = match read {
        Ok(true) => None,
        Ok(false) => Some(format!("there is no {}", volume.shown())),
        Err(error) => Some(error),
    };
    let Role::Spare { instead_of } = volume.role else {
        let Some(why) = missing else {
            return Ok(round);
        };
        return match ask_service(platform, sources, stage, &mut round).await {
            Ok(()) if is_in_doubt && !has_config(platform, &round.documents) => Err(why),
            Ok(()) => Ok(round),
            Err(error) if error.is_empty() => Err(why),
            Err(error) => Err(format!("{why}; {error}")),
        };
    };
    let answer = ask_service(platform, sources, stage, &mut round).await;
    let has_one = || {
        let mut documents = instead_of.iter().map(|name| round.documents.raw(name));
        documents.any(|document| !document.trim().is_empty())
    };
    match (answer, missing) {
        (Ok(()), Some(why)) if (stage.awaits_volume() || is_in_doubt) && !has_one() => {
            Err(format!("it has no config, and {why}"))
        }
        (Ok(()), _) => Ok(round),
        // A hypervisor that has no guest properties does not get them later. A service that is only slow may have the
        // config that the volume lacks.
        (Err(error), None)
            if !platform.guestinfo.is_empty()
                || stage.gives_up() && has_config(platform, &round.documents) =>
        {
            let note = format!("{error}; going on with the {}", volume.shown());
            round.notes.push(note);
            Ok(round)
        }
        (Err(error), None) => Err(error),
        (Err(error), Some(why)) => Err(format!("{why}; {error}")),
    }
}

fn has_config(platform: &Platform, documents: &Documents) -> bool {
    let given = Given::new(documents, &[]);
    (platform.read)(&given).config.is_some()
}

/// Asks the platform's other source than a volume; the error is empty if it has none.
async fn ask_service(
    platform: &'static Platform,
    sources: &Sources,
    stage: Stage,
    round: &mut Round,
) -> Result<(), String> {
    if !platform.guestinfo.is_empty() {
        return read_guestinfo(platform, sources, round).await;
    }
    let mut why = String::new();
    for base in platform.bases {
        match ask_base(platform, base, sources, stage, round).await {
            Ok(()) => return Ok(()),
            Err(error) => {
                let and = if why.is_empty() { "" } else { "; " };
                why = format!("{why}{and}{error}");
            }
        }
    }
    Err(why)
}

async fn read_volume(
    volume: &'static Volume,
    sources: &Sources,
    round: &mut Round,
) -> Result<bool, String> {
    let files: Vec<&str> = volume.files.iter().map(|(_, file)| *file).collect();
    let local = Arc::clone(&sources.local);
    let found = spawn_blocking(move || local.volume(volume.labels, &files)).await;
    let found = found.map_err(|_| "reading the volume failed".to_owned())??;
    let Some(found) = found else {
        return Ok(false);
    };
    let shown = volume.shown();
    for (at, ((name, file), bytes)) in volume.files.iter().zip(found).enumerate() {
        let place = format!("{shown}: {file}");
        match bytes {
            Some(bytes) if bytes.len() > LARGEST && at == 0 && sources.local.needs_config() => {
                return Err(format!("{place}: is larger than {} KiB", LARGEST >> 10));
            }
            Some(bytes) if bytes.len() > LARGEST => {
                let note = format!("{place}: is larger than {} KiB", LARGEST >> 10);
                round.notes.push(note);
            }
            Some(bytes) => round.documents.insert(name, place, bytes),
            None => {}
        }
    }
    Ok(true)
}

async fn read_guestinfo(
    platform: &'static Platform,
    sources: &Sources,
    round: &mut Round,
) -> Result<(), String> {
    let local = Arc::clone(&sources.local);
    let read = move || {
        let keys = platform.guestinfo.iter();
        keys.map(|key| Ok::<_, String>((*key, local.guestinfo(key)?)))
            .collect::<Result<Vec<_>, _>>()
    };
    let found = spawn_blocking(read).await;
    let found = found.map_err(|_| "reading the guest's properties failed".to_owned())??;
    for (key, bytes) in found {
        if let Some(bytes) = bytes {
            round.documents.insert(key, key.to_owned(), bytes);
        }
    }
    Ok(())
}

async fn ask_base(
    platform: &'static Platform,
    base: &str,
    sources: &Sources,
    stage: Stage,
    round: &mut Round,
) -> Result<(), String> {
    let mut asked = 0;
    let mut without_config = Ok(());
    let mut waiting = platform.requests.to_vec();
    let mut known: Vec<String> = Vec::new();
    while !waiting.is_empty() {
        for request in waiting {
            asked += 1;
            if asked > MOST_QUESTIONS {
                let note =
                    format!("{base}: more than {MOST_QUESTIONS} documents; the rest is not read");
                round.notes.push(note);
                return without_config;
            }
            known.push(request.document.to_string());
            let url = format!("{base}{}", request.path);
            let answer = ask_one(platform, &url, &request, sources, &round.documents).await;
            match answer {
                Ok(Some(bytes)) => round.documents.insert(&request.document, url, bytes),
                Ok(None) if request.need != Need::Always => {}
                Ok(None) => return Err(format!("{url}: the answer is 404")),
                // The other documents go with the config of a volume that replaces this service.
                Err(why)
                    if request.need == Need::Config
                        && stage.gives_up()
                        && sources.local.needs_config() =>
                {
                    without_config = Err(format!("{url}: {why}"));
                }
                Err(why) if request.need != Need::Always && stage.gives_up() => {
                    round
                        .notes
                        .push(format!("{url}: {why}; going on without it"));
                }
                Err(why) => return Err(format!("{url}: {why}")),
            }
        }
        waiting = (platform.more)(&round.documents);
        waiting.retain(|request| !known.iter().any(|name| *name == request.document));
    }
    without_config
}

async fn ask_one(
    platform: &Platform,
    url: &str,
    request: &Request,
    sources: &Sources,
    documents: &Documents,
) -> Result<Option<Vec<u8>>, String> {
    let common: Headers = match request.method {
        Method::Get => platform.headers,
        Method::Put | Method::Post => &[],
    };
    let headers = common.iter().chain(request.headers);
    let headers = headers.map(|(name, value)| {
        let value = match value {
            Value::Is(text) => (*text).to_owned(),
            Value::Of(document) => documents.raw(document).trim().to_owned(),
        };
        (*name, value)
    });
    let question = Question {
        url,
        method: request.method,
        headers: headers.collect(),
        body: "",
        from_low_port: request.from_low_port,
    };
    sources.client.ask(&question).await
}
