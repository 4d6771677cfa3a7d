//! Preconditions of a service's start: other services, and conditions that other parts of machined report.

use std::collections::HashMap;

use crate::{Condition, ServiceSpec};

/// Known conditions; one that was never reported does not hold.
#[derive(Debug, Default)]
pub(super) struct Known(HashMap<Condition, Result<(), String>>);

impl Known {
    /// Records a report. Returns whether it is a new reason to wait.
    pub(super) fn learn(&mut self, condition: Condition, holds: Result<(), String>) -> bool {
        let waits = holds.is_err();
        let before = self.0.get(&condition);
        let news = waits && before != Some(&holds);
        self.0.insert(condition, holds);
        news
    }

    /// The unmet preconditions of a service in human-readable form; empty if it can start.
    pub(super) fn missing(&self, spec: &ServiceSpec, is_up: impl Fn(&str) -> bool) -> Vec<String> {
        let services = spec.depends_on.iter().filter(|id| !is_up(id));
        let services = services.map(|id| format!("service {id:?} to be \"up\""));
        let conditions = spec
            .needs
            .iter()
            .filter_map(|condition| match self.0.get(condition) {
                Some(Ok(())) => None,
                Some(Err(why)) => Some(format!("{condition} ({why})")),
                None => Some(condition.to_string()),
            });
        services.chain(conditions).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ApiMode, trustd};

    #[test]
    fn missing_dependencies_and_conditions_of_a_service_are_listed() {
        let mut known = Known::default();
        let spec = ServiceSpec {
            depends_on: vec!["udevd".into()],
            ..trustd()
        };
        let nobody = |_: &str| false;
        let all = |_: &str| true;
        assert_eq!(
            known.missing(&spec, nobody),
            ["service \"udevd\" to be \"up\"", "trustd's certificate"]
        );
        let condition = Condition::TrustdFiles;
        assert!(known.learn(condition.clone(), Err("no time".to_owned())));
        assert_eq!(
            known.missing(&spec, all),
            ["trustd's certificate (no time)"]
        );
        // The same reason again is not new, a different one is.
        assert!(!known.learn(condition.clone(), Err("no time".to_owned())));
        assert!(known.learn(condition.clone(), Err("no address".to_owned())));
        assert!(!known.learn(condition.clone(), Ok(())));
        assert!(known.missing(&spec, all).is_empty());
        // The files of one mode do not satisfy the other.
        known.learn(Condition::ApiFiles(ApiMode::Maintenance), Ok(()));
        let secure = ServiceSpec {
            needs: vec![Condition::ApiFiles(ApiMode::Secure)],
            ..trustd()
        };
        assert_eq!(known.missing(&secure, all).len(), 1);
    }
}
