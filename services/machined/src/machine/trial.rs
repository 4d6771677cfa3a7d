//! A config on trial: active but not stored, and reverted unless it is confirmed.

use corten_config::Document;
use corten_server::node::Apply;
use tokio::time::Instant;

/// A running trial.
#[derive(Debug)]
pub(super) struct Trial {
    /// Config to revert to.
    pub(super) before: Document,
    /// Deadline of the confirmation.
    pub(super) until: Instant,
}

impl Trial {
    /// The trial after the acceptance of another config. `active` is the config before that.
    pub(super) fn next(
        trial: Option<Trial>,
        how: Apply,
        active: Option<Document>,
        now: Instant,
    ) -> Option<Trial> {
        match how {
            // The trial is confirmed, or replaced by a permanent config.
            Apply::Now | Apply::Install => None,
            // A staged config is for the next boot; the running trial still ends.
            Apply::Staged => trial,
            Apply::Try(patience) => {
                // Successive trials revert to the config before the first.
                let before = trial.map(|trial| trial.before).or(active)?;
                Some(Trial {
                    before,
                    until: now + patience,
                })
            }
        }
    }

    /// Waits for the deadline of a trial; forever without one.
    pub(super) async fn over(trial: Option<&Trial>) {
        match trial {
            Some(trial) => tokio::time::sleep_until(trial.until).await,
            None => std::future::pending().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use corten_base::sample;

    use super::*;

    fn config(hostname: &str) -> Document {
        sample::config(&format!("network: {{hostname: {hostname}}}"), "")
    }

    #[test]
    fn successive_trials_revert_to_the_last_confirmed_config() {
        let now = Instant::now();
        let minute = Apply::Try(Duration::from_secs(60));
        let first = Trial::next(None, minute, Some(config("a")), now).unwrap();
        assert_eq!(first.before.hostname(), Some("a"));
        assert_eq!(first.until, now + Duration::from_secs(60));

        let later = now + Duration::from_secs(30);
        let second = Trial::next(Some(first), minute, Some(config("b")), later).unwrap();
        assert_eq!(second.before.hostname(), Some("a"));
        assert_eq!(second.until, later + Duration::from_secs(60));

        let staged = Trial::next(Some(second), Apply::Staged, Some(config("c")), later).unwrap();
        assert_eq!(staged.before.hostname(), Some("a"));
        assert!(Trial::next(Some(staged), Apply::Now, Some(config("c")), later).is_none());
        // There is no config to revert to.
        assert!(Trial::next(None, minute, None, now).is_none());
    }

    #[tokio::test]
    async fn trial_ends_at_its_deadline() {
        let now = Instant::now();
        let trial = Trial::next(
            None,
            Apply::Try(Duration::from_millis(20)),
            Some(config("a")),
            now,
        );
        Trial::over(trial.as_ref()).await;
        assert!(now.elapsed() >= Duration::from_millis(20));
        let never = tokio::time::timeout(Duration::from_millis(20), Trial::over(None)).await;
        never.unwrap_err();
    }
}
