//! Queries a platform until it answers, and polls it from then on.

use std::collections::hash_map::RandomState;
use std::fmt;
use std::hash::{BuildHasher as _, Hasher as _};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

use crate::client::Client;
use crate::documents::{Card, Given};
use crate::instance::Instance;
use crate::request::Platform;
use crate::round::{self, Local, Sources, Stage};

/// Poll intervals and back-off.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    /// Pause after the first failed round.
    pub first: Duration,
    /// Limit of the pause between failed rounds.
    pub longest: Duration,
    /// Pause after a successful round.
    pub again: Duration,
}

impl Default for Pace {
    fn default() -> Pace {
        Pace {
            first: Duration::from_secs(1),
            longest: Duration::from_secs(30),
            again: Duration::from_secs(300),
        }
    }
}

/// Events of a follower.
#[derive(Debug, Clone, PartialEq)]
pub enum News {
    /// No answer yet: the awaited server, the reason, and the length of the pause.
    Waiting(String),
    /// An invalid part of an answer, which was left out.
    Wrong(String),
    /// First or changed answer of the platform.
    Said(Box<Instance>),
}

/// Polls the platform for ever and reports changes. `cards` returns the machine's current cards.
pub async fn follow(
    platform: &'static Platform,
    client: Client,
    local: Arc<dyn Local>,
    pace: Pace,
    cards: impl Fn() -> Vec<Card>,
    mut tell: impl FnMut(News),
) {
    let sources = Sources { client, local };
    let mut said = Said::default();
    let mut attempt = 0;
    let mut pause = pace.first;
    loop {
        // With an accepted answer, a round never gives up on optional documents: partial data must not replace it.
        let stage = match said.instance {
            Some(_) => Stage::Later,
            None => Stage::First(attempt),
        };
        match round::ask(platform, &sources, stage).await {
            Ok(round) => {
                let cards = cards();
                let given = Given::new(&round.documents, &cards);
                let mut instance = (platform.read)(&given);
                platform.name.clone_into(&mut instance.metadata.platform);
                let mut notes = round.notes;
                notes.extend(given.into_notes());
                said.tell(instance, notes, &mut tell);
                (attempt, pause) = (0, pace.first);
                sleep(jitter(pace.again)).await;
            }
            Err(why) => {
                let wait = jitter(pause);
                // After the first answer, only the first of several failures is worth a log line.
                if said.instance.is_none() || attempt == 0 {
                    let seconds = wait.as_secs_f32().ceil();
                    tell(News::Waiting(format!("{why}; asking again in {seconds} s")));
                }
                sleep(wait).await;
                attempt = attempt.saturating_add(1);
                pause = pause.saturating_mul(2).min(pace.longest);
            }
        }
    }
}

/// The last reported state.
#[derive(Debug, Default)]
struct Said {
    instance: Option<Instance>,
    /// Problems of the accepted answer.
    accepted: Vec<String>,
    /// Problems of the latest answer.
    told: Vec<String>,
}

impl Said {
    /// Reports an answer. An answer with new problems is reported but does not replace the accepted one.
    fn tell(&mut self, instance: Instance, notes: Vec<String>, tell: &mut impl FnMut(News)) {
        for note in notes.iter().filter(|note| !self.told.contains(note)) {
            tell(News::Wrong(note.clone()));
        }
        self.told.clone_from(&notes);
        let is_worse = notes.iter().any(|note| !self.accepted.contains(note));
        if self.instance.is_some() && is_worse {
            return;
        }
        self.accepted = notes;
        if self.instance.as_ref() != Some(&instance) {
            tell(News::Said(Box::new(instance.clone())));
            self.instance = Some(instance);
        }
    }
}

/// A random pause of half to full length, so that machines that start together spread their requests.
pub(crate) fn jitter(pause: Duration) -> Duration {
    // The standard library seeds each hasher with a random key.
    let random = RandomState::new().build_hasher().finish();
    let part = f64::from(u16::try_from(random & 0xffff).unwrap_or_default()) / f64::from(u16::MAX);
    pause.mul_f64(0.5 + part / 2.0)
}

impl fmt::Debug for Sources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sources").finish_non_exhaustive()
    }
}
