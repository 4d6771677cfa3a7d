//! The record of a version on trial. META keeps it: the new version may fail to read STATE.

use serde::{Deserialize, Serialize};

/// Result of a trial.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// The new version is healthy and stays.
    Good,
    /// The node runs the previous version again.
    Reverted,
}

/// An upgrade or a rollback, from the moment at which the boot loader can see the new version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Trial {
    /// Version that ran before the trial.
    pub from: String,
    /// Version on trial.
    pub to: String,
    /// Boot entry of the version on trial, without counter.
    pub entry: String,
    /// Stage of the node before the trial.
    pub stage: String,
    /// IDs of the services that were healthy before the trial: the new version must bring them up.
    #[serde(default)]
    pub services: Vec<String>,
    /// Names of the partitions and disks that were usable before the trial.
    #[serde(default)]
    pub volumes: Vec<String>,
    /// Conditions of readiness that were not met before the trial; `None` in the record of a version that compares none.
    #[serde(default)]
    pub unmet: Option<Vec<String>>,
    /// Begin of the trial, in seconds since 1970.
    pub started: u64,
    /// Starts of the version on trial so far.
    #[serde(default)]
    pub tries: u32,
    /// Result; `None` while the trial goes on.
    pub verdict: Option<Verdict>,
    /// Reason of the result, for the operator; empty while the trial goes on.
    #[serde(default)]
    pub reason: String,
}

impl Trial {
    /// Decodes a record.
    ///
    /// # Errors
    /// The bytes are no such record; the text says why.
    pub fn parse(bytes: &[u8]) -> Result<Trial, String> {
        serde_json::from_slice(bytes).map_err(|error| error.to_string())
    }

    /// Encodes the record for [`Trial::parse`].
    #[must_use]
    pub fn render(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// The same trial, with its result.
    #[must_use]
    pub fn ended(&self, verdict: Verdict, reason: &str) -> Trial {
        Trial {
            verdict: Some(verdict),
            reason: reason.to_owned(),
            ..self.clone()
        }
    }
}

/// Meaning of a start of the node for a trial.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AtBoot {
    /// The new version runs: its health decides.
    Judge(Trial),
    /// The previous version runs again: the new one was never marked good.
    Reverted(Trial),
    /// No trial goes on: the running version is good once it answers.
    Settled,
    /// The node was not started from a boot entry.
    Unknown,
}

/// Interprets the start of the entry `booted` by the boot loader; `None`: it started none.
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
            volumes: vec!["EPHEMERAL".to_owned()],
            unmet: Some(vec!["nodeReady".to_owned()]),
            started: 7,
            tries: 1,
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
        let older = r#"{"from":"1","to":"2","entry":"corten-2.efi","stage":"running","started":7,"verdict":null}"#;
        let older = Trial::parse(older.as_bytes()).unwrap();
        assert_eq!((older.unmet, older.tries), (None, 0));
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
