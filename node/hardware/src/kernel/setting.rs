//! A kernel parameter with its value, and the syntax of sysctl.d(5).

/// A line of a file in the syntax of sysctl.d(5).
#[derive(Debug, PartialEq, Eq)]
pub struct Setting {
    /// Name of the parameter.
    pub key: String,
    /// Value of the parameter.
    pub value: String,
    /// Whether errors are ignored (a leading `-`).
    pub quiet: bool,
}

/// The lines with a parameter, in their order.
pub(super) fn parse(text: &str) -> Vec<Setting> {
    let is_comment =
        |line: &&str| line.is_empty() || line.starts_with('#') || line.starts_with(';');
    let setting = |line: &str| {
        let (key, value) = line.split_once('=')?;
        let key = key.trim();
        let (key, quiet) = key
            .strip_prefix('-')
            .map_or((key, false), |key| (key, true));
        Some(Setting {
            key: key.to_owned(),
            value: value.trim().to_owned(),
            quiet,
        })
    };
    text.lines()
        .map(str::trim)
        .filter(|line| !is_comment(line))
        .filter_map(setting)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_blank_lines_and_quiet_settings_are_parsed() {
        let parsed = parse("# why\n; why\n\nkernel.kptr_restrict = 2\n-net.a=1 2\nnonsense\n");
        let expected = [
            Setting {
                key: "kernel.kptr_restrict".into(),
                value: "2".into(),
                quiet: false,
            },
            Setting {
                key: "net.a".into(),
                value: "1 2".into(),
                quiet: true,
            },
        ];
        assert_eq!(parsed, expected);
    }
}
