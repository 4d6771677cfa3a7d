//! Upgrades of the node.

use std::time::Duration;

use corten_yaml::read::Reader;
use corten_yaml::section;
use corten_yaml::tree::Node;

/// Limits of the trial timeout. The upper one is below the hour for which an upgrading control plane node blocks the
/// others.
const SHORTEST: Duration = Duration::from_secs(60);
const LONGEST: Duration = Duration::from_secs(45 * 60);

section! {
    /// Upgrades of the node.
    pub struct UpgradeConfig [check_upgrade] {
        Acted "trialTimeout" trial_timeout: Option<Duration> = "Time for a new version to become as healthy as the previous one, from 1m to 45m; absent: 15m";
        Acted "minVersion" min_version: Option<String> = "Oldest version that an upgrade installs, such as `1.2.0`; `--force` installs older ones";
    }
}

fn check_upgrade(config: &UpgradeConfig, node: &Node, reader: &mut Reader<'_>) {
    let is_far = |timeout| !(SHORTEST..=LONGEST).contains(&timeout);
    if config.trial_timeout.is_some_and(is_far) {
        reader.wrong_in(node, "trialTimeout", "must be from 1m to 45m");
    }
    let fits = |c: char| c.is_ascii_alphanumeric() || ".-+~^".contains(c);
    let is_version =
        |text: &str| text.starts_with(|c: char| c.is_ascii_digit()) && text.chars().all(fits);
    if config
        .min_version
        .as_deref()
        .is_some_and(|text| !is_version(text))
    {
        reader.wrong_in(node, "minVersion", "must be a version such as 1.2.0");
    }
}

#[cfg(test)]
mod tests {
    use crate::Document;

    /// The problems of a config with these lines.
    fn problems(lines: &str) -> String {
        let text = format!(
            "version: v1alpha1\nmachine: {{type: worker, token: abcdef.0123456789abcdef}}\n---\napiVersion: v1alpha1\n\
             kind: UpgradeConfig\n{lines}\n"
        );
        let problems = Document::parse(text.as_bytes()).err();
        problems.map_or_else(String::new, |problems| problems.to_string())
    }

    #[test]
    fn trial_timeout_and_minimum_version_out_of_range_are_refused() {
        let (time, version) = ("must be from 1m to 45m", "must be a version such as 1.2.0");
        for (lines, word) in [
            ("trialTimeout: 59s", time),
            ("trialTimeout: 46m", time),
            ("minVersion: latest", version),
            ("minVersion: 1/2", version),
        ] {
            let problems = problems(lines);
            assert!(problems.contains(word), "{lines}: {problems}");
        }
        for lines in [
            "trialTimeout: 1m",
            "trialTimeout: 45m",
            "minVersion: 1.2.0-rc.1",
        ] {
            let problems = problems(lines);
            let is_wrong = problems.contains(time) || problems.contains(version);
            assert!(!is_wrong, "{lines}: {problems}");
        }
    }
}
