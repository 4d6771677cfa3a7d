//! Asks a platform until it answers, and again from time to time.

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
use crate::round::{self, Local, Sources};

/// How often a platform is asked.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    /// After the first round without an answer.
    pub first: Duration,
    /// Between rounds without an answer, at most.
    pub longest: Duration,
    /// Between rounds with one.
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

/// What a follower hears.
#[derive(Debug, Clone, PartialEq)]
pub enum News {
    /// There is no answer yet: whom it waits for, why, and for how long it pauses.
    Waiting(String),
    /// Something of an answer is wrong, and left out.
    Wrong(String),
    /// What the platform says, for the first time or anew.
    Said(Box<Instance>),
}

/// Asks for ever, and tells what is new. `cards` are the machine's at that time.
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
        // What a node runs by stays, until all of it can be read anew.
        let rounds = if said.instance.is_some() { 0 } else { attempt };
        match round::ask(platform, &sources, rounds).await {
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
                // A node that has an answer does not need another one so much that each try is worth a line.
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

/// What was told last.
#[derive(Debug, Default)]
struct Said {
    instance: Option<Instance>,
    /// What was wrong with that.
    accepted: Vec<String>,
    /// What was wrong with the last answer.
    told: Vec<String>,
}

impl Said {
    /// An answer with something wrong that was right before is told, and changes nothing.
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

/// Half of a pause up to all of it: many machines that start together do not ask together.
pub(crate) fn jitter(pause: Duration) -> Duration {
    // A hasher of the standard library begins with a random key.
    let random = RandomState::new().build_hasher().finish();
    let part = f64::from(u16::try_from(random & 0xffff).unwrap_or_default()) / f64::from(u16::MAX);
    pause.mul_f64(0.5 + part / 2.0)
}

impl fmt::Debug for Sources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sources").finish_non_exhaustive()
    }
}
