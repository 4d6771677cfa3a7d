//! Decides whether the node is owned, free or locked, before the API answers its first caller.
//!
//! Owns the decision alone: a pure function of the findings on the disk, in META and in the kernel's parameters. Never
//! reads a disk. A node is free only when the absence of an owner is certain; every doubt locks it.

/// The node's treatment of callers without a certificate of its owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Standing {
    /// A machine config is active: it names the CA of the callers.
    Owned,
    /// The node has no owner: it serves the maintenance API.
    Free,
    /// The node has an owner, or may have one, and its machine config is not available. The text says why.
    Locked(String),
}

/// Outcome of the attempt to mount STATE, which keeps the machine config.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum State {
    /// No disk carries the node, even after the wait for the disk that the node was started from.
    NoDisk,
    /// STATE is mounted.
    Mounted,
    /// STATE was never created, or a reset removed it.
    NeverMade,
    /// None of these is certain. The text says why.
    Broken(String),
}

/// Input of the decision.
#[derive(Debug, Clone)]
pub(super) struct Findings {
    /// Whether a machine config is active.
    pub(super) has_config: bool,
    /// Reason why a present machine config is unusable.
    pub(super) unusable: Option<String>,
    /// Whether META names the CA of an owner ([`corten_meta::tags::OWNER`]).
    pub(super) has_owner: bool,
    /// Whether the kernel's parameters ask for maintenance, which proves access to the machine.
    pub(super) recover: bool,
    /// Outcome of the attempt to mount STATE.
    pub(super) state: State,
}

/// Decides the standing; the first rule that applies wins.
pub(super) fn standing(found: &Findings) -> Standing {
    if found.has_config {
        return Standing::Owned;
    }
    if found.recover {
        return Standing::Free;
    }
    if let Some(why) = &found.unusable {
        return Standing::Locked(why.clone());
    }
    match &found.state {
        State::Broken(why) => Standing::Locked(why.clone()),
        State::NoDisk | State::Mounted | State::NeverMade if found.has_owner => {
            let why = "META names an owner of this node, and STATE holds no machine config";
            Standing::Locked(why.to_owned())
        }
        State::NoDisk | State::Mounted | State::NeverMade => Standing::Free,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn states() -> [State; 4] {
        let broken = State::Broken("STATE is damaged".to_owned());
        [State::NoDisk, State::Mounted, State::NeverMade, broken]
    }

    fn all() -> impl Iterator<Item = Findings> {
        states().into_iter().flat_map(|state| {
            (0..16u8).map(move |bits| Findings {
                has_config: bits & 1 != 0,
                unusable: (bits & 2 != 0).then(|| "line 1".to_owned()),
                has_owner: bits & 4 != 0,
                recover: bits & 8 != 0,
                state: state.clone(),
            })
        })
    }

    #[test]
    fn node_is_free_only_without_an_owner_or_on_local_recovery() {
        for found in all() {
            let certain = found.unusable.is_none()
                && !found.has_owner
                && !matches!(found.state, State::Broken(_));
            let free = !found.has_config && (found.recover || certain);
            assert_eq!(standing(&found) == Standing::Free, free, "{found:?}");
        }
    }

    #[test]
    fn node_with_an_active_config_is_always_owned() {
        for found in all() {
            let owned = standing(&found) == Standing::Owned;
            assert_eq!(owned, found.has_config, "{found:?}");
        }
    }

    #[test]
    fn locked_node_reports_the_reason() {
        let found = Findings {
            has_config: false,
            unusable: None,
            has_owner: true,
            recover: false,
            state: State::Broken("STATE is damaged".to_owned()),
        };
        let damaged = Standing::Locked("STATE is damaged".to_owned());
        assert_eq!(standing(&found), damaged);
        let unusable = Some("config.yaml: line 1".to_owned());
        let config = Standing::Locked("config.yaml: line 1".to_owned());
        assert_eq!(standing(&Findings { unusable, ..found }), config);
    }
}
