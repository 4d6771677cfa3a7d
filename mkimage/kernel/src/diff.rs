//! The effect of a fragment change on the kernel: golden config against resolved config.

use crate::config::ResolvedConfig;

/// One readable line for each option that differs, sorted by option: `+CONFIG_X=y` was added,
/// `-CONFIG_Y=m` was removed, ` CONFIG_Z: 1 -> 2` changed. Empty if the configs are equal.
pub fn diff(golden: &ResolvedConfig, now: &ResolvedConfig) -> Vec<String> {
    let mut names: Vec<&str> = golden
        .options()
        .chain(now.options())
        .map(|(name, _)| name)
        .collect();
    names.sort_unstable();
    names.dedup();
    names
        .into_iter()
        .filter_map(|name| match (golden.get(name), now.get(name)) {
            (before, after) if before == after => None,
            ("n", after) => Some(format!("+{name}={after}")),
            (before, "n") => Some(format!("-{name}={before}")),
            (before, after) => Some(format!(" {name}: {before} -> {after}")),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_change_has_its_line() {
        let golden = ResolvedConfig::parse("CONFIG_A=y\nCONFIG_B=1\nCONFIG_C=m\n");
        let now = ResolvedConfig::parse("CONFIG_B=2\nCONFIG_C=m\nCONFIG_D=y\n");
        assert_eq!(
            diff(&golden, &now),
            ["-CONFIG_A=y", " CONFIG_B: 1 -> 2", "+CONFIG_D=y"]
        );
        assert!(diff(&golden, &golden).is_empty());
    }

    #[test]
    fn compiler_version_of_the_host_is_no_change() {
        let golden = ResolvedConfig::parse("CONFIG_CLANG_VERSION=190107\n");
        let now = ResolvedConfig::parse("CONFIG_CLANG_VERSION=190101\n");
        assert!(diff(&golden, &now).is_empty());
    }
}
