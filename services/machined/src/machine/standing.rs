//! Whose the node is, decided before the API answers anybody.
//!
//! Owns the decision alone: a pure function of what the disk, META and the kernel's parameters say. Never reads a
//! disk. A node is free only when that is certain; every doubt locks it.

/// What the node does with callers that show no certificate of its owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Standing {
    /// A machine config is active: the config says who may call.
    Owned,
    /// Nobody owns the node: it serves the maintenance API.
    Free,
    /// The node has an owner, or may have one, and its machine config cannot be had. The text says why.
    Locked(String),
}

/// What became of STATE, where the machine config is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum State {
    /// No disk carries the node, also after the wait for the disk that the node was started from.
    NoDisk,
    /// It is mounted.
    Mounted,
    /// The node has not made it yet, or a reset took it away.
    NeverMade,
    /// Neither of these is certain. The text says why.
    Broken(String),
}

/// Everything that counts.
#[derive(Debug, Clone)]
pub(super) struct Findings {
    /// A machine config is active.
    pub(super) has_config: bool,
    /// Why a machine config that is there cannot be used.
    pub(super) unusable: Option<String>,
    /// META names the authority of an owner ([`corten_meta::tags::OWNER`]).
    pub(super) has_owner: bool,
    /// The kernel's parameters ask for maintenance: somebody is at the machine.
    pub(super) recover: bool,
    /// What became of STATE.
    pub(super) state: State,
}

/// The decision.
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
