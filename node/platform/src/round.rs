//! One round of requests: all documents of a platform, or the reason why there are none yet.

use std::sync::Arc;

use tokio::task::spawn_blocking;

use crate::client::{Client, LARGEST, Question};
use crate::documents::Documents;
use crate::request::{Headers, Method, Platform, Request, Value, Volume};

/// From this round on, an unavailable optional document counts as absent.
const GIVE_UP: u32 = 3;
/// Request limit of one round; a list of tags needs many.
const MOST_QUESTIONS: usize = 160;

/// Blocking access to the machine.
pub trait Local: Send + Sync + 'static {
    /// Reads files from the first volume with one of the labels. A file that does not exist is `None`; without such a
    /// volume the result is `None`.
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

/// Fetches all documents of a platform. `attempt` counts from 0.
///
/// # Errors
/// The missing document or server, and the reason.
pub(crate) async fn ask(
    platform: &'static Platform,
    sources: &Sources,
    attempt: u32,
) -> Result<Round, String> {
    let mut round = Round::default();
    let mut why = String::new();
    if let Some(volume) = &platform.volume {
        match read_volume(volume, sources, &mut round).await {
            Ok(true) if volume.is_all => return Ok(round),
            Ok(true) => {}
            Ok(false) => why = format!("there is no volume {}", volume.labels.join(" or ")),
            Err(error) => why = error,
        }
    }
    if !platform.guestinfo.is_empty() {
        read_guestinfo(platform, sources, &mut round).await?;
        return Ok(round);
    }
    for base in platform.bases {
        match ask_base(platform, base, sources, attempt, &mut round).await {
            Ok(()) => return Ok(round),
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
    let label = volume.labels.join(" or ");
    for ((name, file), bytes) in volume.files.iter().zip(found) {
        let place = format!("volume {label}: {file}");
        match bytes {
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
    attempt: u32,
    round: &mut Round,
) -> Result<(), String> {
    let mut asked = 0;
    let mut waiting = platform.requests.to_vec();
    let mut known: Vec<String> = Vec::new();
    while !waiting.is_empty() {
        for request in waiting {
            asked += 1;
            if asked > MOST_QUESTIONS {
                let note =
                    format!("{base}: more than {MOST_QUESTIONS} documents; the rest is not read");
                round.notes.push(note);
                return Ok(());
            }
            known.push(request.document.to_string());
            let url = format!("{base}{}", request.path);
            let answer = ask_one(platform, &url, &request, sources, &round.documents).await;
            match answer {
                Ok(Some(bytes)) => round.documents.insert(&request.document, url, bytes),
                Ok(None) if request.may_be_absent => {}
                Ok(None) => return Err(format!("{url}: the answer is 404")),
                Err(why) if request.may_be_absent && attempt + 1 >= GIVE_UP => {
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
    Ok(())
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
