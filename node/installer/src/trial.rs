//! The record of a version on trial. META keeps it, as STATE may be what the new version cannot read.

use serde::{Deserialize, Serialize};

/// How a trial ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// The new version is healthy, and stays.
    Good,
    /// The node runs the version before.
    Reverted,
}

/// An upgrade or a rollback, from the moment the boot loader can see the new version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Trial {
    /// The version that ran.
    pub from: String,
    /// The version that is tried.
    pub to: String,
    /// Its boot entry, without counter.
    pub entry: String,
    /// The stage the node was in.
    pub stage: String,
    /// The services that were healthy, by id: the new version has to bring them up.
    #[serde(default)]
    pub services: Vec<String>,
    /// Seconds since 1970 when it began.
    pub started: u64,
    /// `None`: it goes on.
    pub verdict: Option<Verdict>,
    /// Why, for a person; empty while it goes on.
    #[serde(default)]
    pub reason: String,
}

impl Trial {
    /// Reads a record.
    ///
    /// # Errors
    /// It is no such record; the text says why.
    pub fn parse(bytes: &[u8]) -> Result<Trial, String> {
        serde_json::from_slice(bytes).map_err(|error| error.to_string())
    }

    /// What [`Trial::parse`] reads.
    #[must_use]
    pub fn render(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// The same trial, with its end.
    #[must_use]
    pub fn ended(&self, verdict: Verdict, reason: &str) -> Trial {
        Trial {
            verdict: Some(verdict),
            reason: reason.to_owned(),
            ..self.clone()
        }
    }
}

/// What a start of the node means for a trial.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AtBoot {
    /// The new version runs: it is judged.
    Judge(Trial),
    /// The version before runs again, as the new one never became good.
    Reverted(Trial),
    /// No trial goes on: the version that runs is good once it answers.
    Settled,
    /// No boot loader with entries has started the node.
    Unknown,
}

/// What it means that the boot loader has started the entry `booted`.
#[must_use]
pub fn at_boot(trial: Option<Trial>, booted: Option<&str>) -> AtBoot {
    let Some(booted) = booted else {
        return AtBoot::Unknown;
    };
    match trial.filter(|trial| trial.verdict.is_none()) {
        Some(trial) if trial.entry == booted => AtBoot::Judge(trial),
        Some(trial) => AtBoot::Reverted(trial),
        None => AtBoot::Settled,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trial() -> Trial {
        Trial {
            from: "1".to_owned(),
            to: "2".to_owned(),
            entry: "corten-2.efi".to_owned(),
            stage: "running".to_owned(),
            services: vec!["apid".to_owned()],
            started: 7,
            verdict: None,
            reason: String::new(),
        }
    }

    #[test]
    fn trial_record_round_trips_and_malformed_records_are_refused() {
        let ended = trial().ended(Verdict::Reverted, "it was slow");
        for trial in [trial(), ended] {
            assert_eq!(Trial::parse(&trial.render()), Ok(trial));
        }
        for broken in ["", "{}", "null", "{\"from\": 1}"] {
            Trial::parse(broken.as_bytes()).unwrap_err();
        }
    }

    #[test]
    fn booted_version_decides_the_outcome_of_a_trial() {
        let (new, old) = (Some("corten-2.efi"), Some("corten-1.efi"));
        assert_eq!(at_boot(Some(trial()), new), AtBoot::Judge(trial()));
        assert_eq!(at_boot(Some(trial()), old), AtBoot::Reverted(trial()));
        assert_eq!(at_boot(Some(trial()), None), AtBoot::Unknown);
        assert_eq!(at_boot(None, old), AtBoot::Settled);
        let ended = trial().ended(Verdict::Good, "");
        assert_eq!(at_boot(Some(ended), new), AtBoot::Settled);
    }
}
