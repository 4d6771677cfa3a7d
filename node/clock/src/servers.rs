//! One round of queries: asks all servers at once, combines their answers and corrects the clock.

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
use super::ask::{Answer, Resting, ask};
use super::discipline::{Act, Discipline, retry};
use super::error::{AskError, PATIENCE};
use super::floor::Floor;
use super::protected::Proofs;
use super::sntp::{BadAnswer, Sample, moved};

/// Threads that resolve the servers' names. A resolution may outlast our timeout, so a few may still be busy.
static NAMES: LazyLock<Bulkhead> = LazyLock::new(|| Bulkhead::new(8, PATIENCE));
/// Limit of concurrent queries.
const AT_ONCE: usize = 8;
/// Time for a second server to answer before a single answer is trusted.
const ALONE: Duration = Duration::from_secs(60);

/// The configured servers and their history.
#[derive(Debug)]
pub struct Servers {
    /// Lower bounds of the clock.
    floor: Arc<Floor>,
    names: Vec<String>,
    /// Keys for authenticated answers, if those are required.
    proofs: Option<Proofs>,
    /// Addresses that asked for a pause.
    resting: Resting,
    /// Servers whose failure was already reported.
    complained: BTreeSet<String>,
    /// Distrusted servers, and the reasons.
    refused: BTreeMap<String, String>,
    /// Condition that must hold before any server is followed; empty for none.
    waits_for: String,
    /// Start of the period in which only one of several servers answers.
    alone: Option<Instant>,
    /// Consecutive rounds without a server to follow.
    failures: u32,
    /// Server that was followed last.
    source: Option<String>,
}

impl Servers {
    /// A list without servers.
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

    /// Sets the list of servers and whether their answers must be authenticated. Returns whether anything changed.
    /// Paused addresses stay paused.
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

    /// Whether no server is configured.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// Condition that must hold before any server is followed; empty for none.
    pub fn waits_for(&self) -> &str {
        &self.waits_for
    }

    /// Distrusted servers, and the reasons.
    pub fn refused(&self) -> &BTreeMap<String, String> {
        &self.refused
    }

    /// Queries all servers and corrects the clock. Returns the delay until the next round.
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

    /// Runs a round. Returns the server to follow and its measurement.
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
                // Without any answer, each server's failure is reported instead.
                if self.waits_for != waits_for && !voices.is_empty() {
                    console::warn(&format!("time: waiting for {waits_for}"));
                }
                self.waits_for = waits_for;
                None
            }
        }
    }

    /// Queries the servers until all have answered or a majority is certain, and drops impossible times.
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
        // In the order of the config.
        let place = |voice: &Voice| self.names.iter().position(|name| *name == voice.name);
        voices.sort_by_key(place);
        voices
    }

    async fn ask_one(&self, name: &str) -> Result<Answer, AskError> {
        match &self.proofs {
            // A local device needs no proof.
            Some(proofs) if !name.starts_with('/') => proofs.ask(name, &NAMES, &self.resting).await,
            _ => ask(name, &NAMES, &self.resting).await,
        }
    }

    /// Trusts a single answer if only one server is configured, if it agrees with the clock, or if no other server has
    /// answered for [`ALONE`]. Waiting longer adds no safety: an attacker who blocks all other answers can also forge
    /// them.
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
            "a second time server to confirm {} (only it answers of {} configured servers)",
            voice.name,
            self.names.len()
        ))
    }

    /// Without a majority, a server that agrees with the clock wins: servers set the clock earlier.
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
                &format!("rejected: its time is {at}, and too few other servers agree"),
            );
        }
        Err("more than half of the time servers to agree".to_owned())
    }

    /// Follows the best server of the majority, unless its time is below a lower bound.
    fn accept(&mut self, best: Voice, others: &[Voice], now: Instant) -> Result<Voice, String> {
        let Some(at) = said(best.answer.sample) else {
            // The step to this time fails, with a reason.
            return Ok(best);
        };
        match self.floor.judge(at, now) {
            Ok(None) => {}
            Ok(Some(known)) => console::warn(&format!(
                "time: {} has reported {} for an hour; the last time this node knew ({}) was wrong",
                best.name,
                rfc3339(at),
                rfc3339(known)
            )),
            Err(early) => {
                for voice in others.iter().chain([&best]) {
                    self.refuse(voice, &early.to_string());
                }
                return Err("a time that is not before the last time this node knew".to_owned());
            }
        }
        Ok(best)
    }

    fn refuse(&mut self, voice: &Voice, why: &str) {
        self.complain(&voice.name, why);
        self.refused.insert(voice.name.clone(), why.to_owned());
    }

    /// Reports a failure once, until the server recovers.
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
                console::say(&format!(
                    "time: set by {milliseconds} ms to the time of {name}"
                ));
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
        "rejected: its time differs by {more} ms from {}, with which other servers agree",
        best.name
    )
}

/// Current time according to a sample.
fn said(sample: Sample) -> Option<SystemTime> {
    moved(SystemTime::now(), sample.offset)
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
