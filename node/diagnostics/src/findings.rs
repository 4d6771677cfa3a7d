//! What the checks have found so far: a fault becomes a diagnostic when it lasts.

use std::collections::BTreeMap;
use std::time::Duration;

use corten_base::console;
use corten_types::diagnostic::Diagnostic;
use tokio::time::Instant;

/// Longest time between two checks (the reference's value).
pub(crate) const INTERVAL: Duration = Duration::from_secs(60);
/// Time that a fault lasts before the node shows it (the reference's value): a node that starts has some for seconds.
pub(crate) const HYSTERESIS: Duration = Duration::from_secs(30);

/// The present faults, by id.
#[derive(Debug, Default)]
pub(crate) struct Findings(BTreeMap<&'static str, Finding>);

#[derive(Debug)]
struct Finding {
    /// Time of the first check that found the fault.
    since: Instant,
    /// Whether a check has found it after [`HYSTERESIS`], too.
    is_raised: bool,
    diagnostic: Diagnostic,
}

impl Findings {
    /// Takes the result of a check, and logs a diagnostic that begins or ends with it.
    pub(crate) fn take(&mut self, id: &'static str, found: Option<Diagnostic>, now: Instant) {
        let Some(diagnostic) = found else {
            if self.0.remove(id).is_some_and(|finding| finding.is_raised) {
                console::say(&format!("diagnostic {id}: the fault is gone"));
            }
            return;
        };
        let (since, was_raised) = self
            .0
            .get(id)
            .map_or((now, false), |known| (known.since, known.is_raised));
        let is_raised = was_raised || now.duration_since(since) >= HYSTERESIS;
        if is_raised && !was_raised {
            let details = diagnostic.details.join("; ");
            console::warn(&format!(
                "diagnostic {id}: {} ({details})",
                diagnostic.message
            ));
        }
        let finding = Finding {
            since,
            is_raised,
            diagnostic,
        };
        self.0.insert(id, finding);
    }

    /// The faults that have lasted.
    pub(crate) fn raised(&self) -> impl Iterator<Item = (&'static str, &Diagnostic)> {
        let raised = self.0.iter().filter(|(_, finding)| finding.is_raised);
        raised.map(|(id, finding)| (*id, &finding.diagnostic))
    }

    /// Time until the next check: a new fault is checked again as soon as it can be shown.
    pub(crate) fn pause(&self, now: Instant) -> Duration {
        let new = self.0.values().filter(|finding| !finding.is_raised);
        let left = new.map(|finding| HYSTERESIS.saturating_sub(now.duration_since(finding.since)));
        // Zero is left after a check that has failed; it is no reason to check without a pause.
        left.filter(|left| !left.is_zero())
            .min()
            .unwrap_or(INTERVAL)
    }
}
