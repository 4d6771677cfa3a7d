//! Logs the obstacle of a component once per reason. Owns: when an obstacle is worth a line on the console.
//! Never: decides whether the component tries again.

use std::time::Duration;

use tokio::time::Instant;

use crate::console;

/// The obstacle of one component. By default, it is logged at once.
#[derive(Debug, Default)]
pub struct Complaints {
    /// An obstacle that is gone sooner is normal, such as that of a component that still starts.
    patience: Duration,
    since: Option<Instant>,
    last: String,
}

impl Complaints {
    /// Logs an obstacle that has lasted for `patience`. Only for a caller that tries again: it logs nothing at the first
    /// attempt.
    #[must_use]
    pub fn of_lasting(patience: Duration) -> Complaints {
        Complaints {
            patience,
            ..Complaints::default()
        }
    }

    /// Logs that `part` has the obstacle `why`, unless it was logged last.
    pub fn say(&mut self, part: &str, why: &str) {
        let since = self.since.get_or_insert_with(Instant::now);
        if since.elapsed() >= self.patience && self.last != why {
            console::warn(&format!("{part}: {why}"));
            why.clone_into(&mut self.last);
        }
    }

    /// There is no obstacle: the next one is logged again.
    pub fn none(&mut self) {
        self.since = None;
        self.last.clear();
    }

    /// Whether there is an obstacle, logged or not.
    #[must_use]
    pub fn is_some(&self) -> bool {
        self.since.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn obstacle_of_a_starting_component_is_logged_only_if_it_lasts() {
        let mut complaints = Complaints::of_lasting(Duration::from_secs(30));
        let mut is_logged = async |seconds| {
            tokio::time::advance(Duration::from_secs(seconds)).await;
            complaints.say("etcd", "it refuses connections");
            !complaints.last.is_empty()
        };
        assert_eq!([is_logged(0).await, is_logged(29).await], [false, false]);
        assert!(is_logged(1).await);
        complaints.none();
        complaints.say("etcd", "it refuses connections");
        assert!(complaints.is_some() && complaints.last.is_empty());
        let mut at_once = Complaints::default();
        at_once.say("etcd", "its directory is full");
        assert_eq!(at_once.last, "its directory is full");
    }
}
