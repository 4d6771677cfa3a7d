//! A round of questions: all servers at once, what they say together, and what the clock does about it.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::mem;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, SystemTime};

use corten_base::bulkhead::Bulkhead;
use corten_base::calendar::rfc3339;
use corten_base::console;
use futures_util::StreamExt as _;
use futures_util::stream;
use tokio::time::Instant;

use super::agree::{Verdict, Voice, hear, is_settled};
use super::ask::{Answer, AskError, PATIENCE, Resting, ask};
use super::discipline::{Act, Discipline, retry};
use super::floor::Floor;
use super::protected::Proofs;
use super::sntp::{BadAnswer, Sample};

/// What resolves the servers' names. Who resolves one gives up some time after us, so a few may still be at it.
static NAMES: LazyLock<Bulkhead> = LazyLock::new(|| Bulkhead::new(8, PATIENCE));
/// So many are asked at once.
const AT_ONCE: usize = 8;
/// For so long a second server may take to answer before the only one that does is believed.
const ALONE: Duration = Duration::from_secs(60);

/// Who is asked.
#[derive(Debug)]
pub struct Servers {
    /// What nobody is believed below.
    floor: Arc<Floor>,
    names: Vec<String>,
    /// What proves their answers, if that is wanted.
    proofs: Option<Proofs>,
    /// Whose addresses want to be left alone.
    resting: Resting,
    /// Who is not to be complained of again.
    complained: BTreeSet<String>,
    /// Who is not believed, and why.
    refused: BTreeMap<String, String>,
    /// What is waited for before anybody is followed.
    waits_for: String,
    /// Since when one alone of several answers.
    alone: Option<Instant>,
    /// How often in a row nobody could be followed.
    failures: u32,
    /// Who was followed last.
    source: Option<String>,
}

impl Servers {
    /// Nobody to ask yet.
    pub fn new(floor: Arc<Floor>) -> Servers {
        Servers {
            floor,
            names: Vec::new(),
            proofs: None,
            resting: Resting::default(),
            complained: BTreeSet::new(),
            refused: BTreeMap::new(),
            waits_for: String::new(),
            alone: None,
            failures: 0,
            source: None,
        }
    }

    /// Takes a new list, of servers that have to prove their answers or need not; returns whether it is one. Whose
    /// addresses want to be left alone may stand in it again.
    pub fn take(&mut self, mut names: Vec<String>, with_proof: bool) -> bool {
        let mut seen = BTreeSet::new();
        names.retain(|name| seen.insert(name.clone()));
        if self.names == names && self.proofs.is_some() == with_proof {
            return false;
        }
        *self = Servers {
            names,
            proofs: with_proof.then(|| Proofs::new(self.floor.image())),
            resting: mem::take(&mut self.resting),
            source: self.source.take(),
            ..Servers::new(self.floor.clone())
        };
        true
    }

    /// Whether there is nobody to ask.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// What is waited for before anybody is followed; empty: nothing.
    pub fn waits_for(&self) -> &str {
        &self.waits_for
    }

    /// Who is not believed, and why.
    pub fn refused(&self) -> &BTreeMap<String, String> {
        &self.refused
    }

    /// Asks all, and does what they say together. Returns when to ask again.
    pub async fn ask(&mut self, clock: &mut Discipline) -> Duration {
        match self.round(clock, Instant::now).await {
            Some((name, sample)) => {
                self.failures = 0;
                self.waits_for.clear();
                self.follow(&name, sample, clock)
            }
            None => {
                let pause = retry(self.failures);
                self.failures = self.failures.saturating_add(1);
                pause
            }
        }
    }

    /// Whom to follow, and its word.
    async fn round(
        &mut self,
        clock: &mut Discipline,
        now: impl Fn() -> Instant,
    ) -> Option<(String, Sample)> {
        self.refused.clear();
        let voices = self.hear_all(clock).await;
        let now = now();
        let chosen = match hear(&voices) {
            Verdict::Silence => Err("an answer of a time server".to_owned()),
            Verdict::Alone(voice) => self.hear_one(voice, clock, now),
            Verdict::Agreed {
                best,
                others,
                against,
            } => {
                self.alone = None;
                for liar in &against {
                    self.refuse(liar, &dissent(liar, &best));
                }
                Ok((best, others))
            }
            Verdict::Divided(voices) => self.hear_divided(&voices, clock),
        };
        let believed = chosen.and_then(|(best, others)| self.accept(best, &others, now));
        match believed {
            Ok(best) => {
                let is_well = |voice: &&Voice| !self.refused.contains_key(&voice.name);
                for voice in voices.iter().filter(is_well) {
                    self.complained.remove(&voice.name);
                }
                Some((best.name, best.answer.sample))
            }
            Err(waits_for) => {
                // That nobody answers is told of each.
                if self.waits_for != waits_for && !voices.is_empty() {
                    console::warn(&format!("time: waiting for {waits_for}"));
                }
                self.waits_for = waits_for;
                None
            }
        }
    }

    /// All answers, or as many as settle it, but those that cannot be.
    async fn hear_all(&mut self, clock: &mut Discipline) -> Vec<Voice> {
        let (mut voices, mut failed) = (Vec::new(), Vec::new());
        {
            let questions = self.names.iter().map(|name| {
                let asked = self.ask_one(name);
                async move { (name.clone(), asked.await) }
            });
            let questions: Vec<_> = questions.collect();
            let mut answers = stream::iter(questions).buffer_unordered(AT_ONCE);
            while let Some((name, answered)) = answers.next().await {
                match answered {
                    Ok(answer) => {
                        let voice = Voice { name, answer };
                        match said(answer.sample).map_or(Ok(()), |at| self.floor.check_image(at)) {
                            Ok(()) => voices.push(voice),
                            Err(early) => failed.push((voice.name, early.to_string(), true)),
                        }
                    }
                    Err(error) => {
                        if matches!(error, AskError::Bad(BadAnswer::Rate)) {
                            clock.ask_less();
                        }
                        failed.push((name, error.to_string(), false));
                    }
                }
                if is_settled(&voices, self.names.len()) {
                    break;
                }
            }
        }
        for (name, why, is_refused) in failed {
            self.complain(&name, &why);
            if is_refused {
                self.refused.insert(name, why);
            }
        }
        // As the config has them.
        let place = |voice: &Voice| self.names.iter().position(|name| *name == voice.name);
        voices.sort_by_key(place);
        voices
    }

    async fn ask_one(&self, name: &str) -> Result<Answer, AskError> {
        match &self.proofs {
            // A device is the node's own.
            Some(proofs) if !name.starts_with('/') => proofs.ask(name, &NAMES, &self.resting).await,
            _ => ask(name, &NAMES, &self.resting).await,
        }
    }

    /// One that answers alone is believed when no other is configured, when it says what the clock says, or when no
    /// other has answered for some time: whoever can hold back all other answers can forge them, too.
    fn hear_one(
        &mut self,
        voice: Voice,
        clock: &Discipline,
        now: Instant,
    ) -> Result<(Voice, Vec<Voice>), String> {
        if self.names.len() == 1 || clock.is_near(voice.answer.sample) {
            self.alone = None;
            return Ok((voice, Vec::new()));
        }
        let since = *self.alone.get_or_insert(now);
        let left = ALONE.saturating_sub(now.saturating_duration_since(since));
        if left.is_zero() {
            return Ok((voice, Vec::new()));
        }
        Err(format!(
            "a second time server to confirm {} (of {} that are configured it alone answers)",
            voice.name,
            self.names.len()
        ))
    }

    /// Where no majority agrees, the clock itself has a voice: it was set by servers.
    fn hear_divided(
        &mut self,
        voices: &[Voice],
        clock: &Discipline,
    ) -> Result<(Voice, Vec<Voice>), String> {
        self.alone = None;
        let is_near = |voice: &&Voice| clock.is_near(voice.answer.sample);
        if let Some(near) = voices.iter().find(is_near) {
            return Ok((near.clone(), Vec::new()));
        }
        for voice in voices {
            let at = said(voice.answer.sample).map(rfc3339).unwrap_or_default();
            self.refuse(
                voice,
                &format!("not believed: it says {at}, and too few others agree"),
            );
        }
        Err("more than half of the time servers to agree".to_owned())
    }

    /// Believes the best of those that agree, when their time is above the known one.
    fn accept(&mut self, best: Voice, others: &[Voice], now: Instant) -> Result<Voice, String> {
        let Some(at) = said(best.answer.sample) else {
            // Setting the clock to it fails, with a reason.
            return Ok(best);
        };
        match self.floor.judge(at, now) {
            Ok(None) => {}
            Ok(Some(known)) => console::warn(&format!(
                "time: {} has said {} for an hour; the last time this node knew ({}) was wrong",
                best.name,
                rfc3339(at),
                rfc3339(known)
            )),
            Err(early) => {
                for voice in others.iter().chain([&best]) {
                    self.refuse(voice, &early.to_string());
                }
                return Err("a time that is not before the last one this node knew".to_owned());
            }
        }
        Ok(best)
    }

    fn refuse(&mut self, voice: &Voice, why: &str) {
        self.complain(&voice.name, why);
        self.refused.insert(voice.name.clone(), why.to_owned());
    }

    /// Once, until all is well again.
    fn complain(&mut self, name: &str, why: &str) {
        if self.complained.insert(name.to_owned()) {
            console::warn(&format!("time: {name}: {why}"));
        }
    }

    fn follow(&mut self, name: &str, sample: Sample, clock: &mut Discipline) -> Duration {
        let was_synced = clock.synced;
        let (act, pause) = clock.take(sample);
        if let Err(error) = perform(act, sample, clock) {
            console::warn(&format!("time: cannot adjust the clock: {error}"));
            clock.synced = was_synced;
            return pause;
        }
        if act != Act::Wait {
            self.floor.learn(SystemTime::now());
        }
        let milliseconds = sample.offset / 1_000_000;
        match act {
            Act::Step(_) => {
                console::say(&format!("time: set by {milliseconds} ms, as {name} says"));
            }
            Act::Steer(_) if self.source.as_deref() != Some(name) => {
                console::say(&format!(
                    "time: {milliseconds} ms off from {name}; steering"
                ));
            }
            Act::Steer(_) | Act::Wait => {}
        }
        self.source = Some(name.to_owned());
        pause
    }
}

fn dissent(liar: &Voice, best: &Voice) -> String {
    let offset = liar.answer.sample.offset;
    let more = offset.saturating_sub(best.answer.sample.offset) / 1_000_000;
    format!(
        "not believed: it says {more} ms more than {}, with which others agree",
        best.name
    )
}

/// Which time that is now.
fn said(sample: Sample) -> Option<SystemTime> {
    moved(SystemTime::now(), sample.offset)
}

/// A time and so many nanoseconds.
pub(super) fn moved(time: SystemTime, offset: i64) -> Option<SystemTime> {
    let span = Duration::from_nanos(offset.unsigned_abs());
    if offset < 0 {
        time.checked_sub(span)
    } else {
        time.checked_add(span)
    }
}

fn perform(act: Act, sample: Sample, clock: &Discipline) -> io::Result<()> {
    let error = Duration::from_nanos(sample.delay.unsigned_abs() / 2);
    let rest = match act {
        Act::Wait => return Ok(()),
        Act::Steer(offset) => offset,
        Act::Step(offset) => {
            let to = moved(SystemTime::now(), offset);
            corten_sys::clock::set(to.ok_or(io::ErrorKind::InvalidInput)?)?;
            0
        }
    };
    corten_sys::clock::steer(rest, clock.time_constant(), error)
}

#[cfg(test)]
#[path = "servers_tests.rs"]
mod tests;
