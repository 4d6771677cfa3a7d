//! Names and values as Kubernetes takes them: "Labels and Selectors" and "Taints and Tolerations" of its
//! documentation (<https://kubernetes.io/docs/concepts/>).

use super::is_host_name;

/// What a taint does to pods that do not tolerate it.
const EFFECTS: &[&str] = &["NoSchedule", "PreferNoSchedule", "NoExecute"];

/// Whether something can be called so: `name` or `prefix.example/name`.
pub(crate) fn is_qualified_name(text: &str) -> bool {
    match text.split_once('/') {
        Some((prefix, name)) => is_subdomain(prefix) && is_name(name),
        None => is_name(text),
    }
}

/// RFC 1123, in lower case.
pub(crate) fn is_subdomain(text: &str) -> bool {
    is_host_name(text) && !text.contains(|c: char| c.is_ascii_uppercase())
}

pub(crate) fn is_label_value(text: &str) -> bool {
    text.is_empty() || is_name(text)
}

/// `Effect` or `value:Effect`.
pub(crate) fn is_taint(text: &str) -> bool {
    let (value, effect) = text.split_once(':').unwrap_or(("", text));
    is_label_value(value) && EFFECTS.contains(&effect)
}

fn is_name(text: &str) -> bool {
    let edge = |c: char| c.is_ascii_alphanumeric();
    (1..=63).contains(&text.len())
        && text.starts_with(edge)
        && text.ends_with(edge)
        && text
            .chars()
            .all(|c| edge(c) || matches!(c, '-' | '_' | '.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_kubernetes() {
        let long = "a".repeat(63);
        for good in ["a", "A.b_c-9", "example.org/rack", &long] {
            assert!(is_qualified_name(good), "{good}");
        }
        let longer = "a".repeat(64);
        for bad in [
            "",
            "-a",
            "a-",
            "/a",
            "a/",
            "a/b/c",
            "Example.org/a",
            "a b",
            &longer,
        ] {
            assert!(!is_qualified_name(bad), "{bad}");
        }
        assert!(is_label_value("") && is_label_value("r13.a") && !is_label_value("a/b"));
    }

    #[test]
    fn a_taint_has_an_effect() {
        for good in ["NoSchedule", ":NoExecute", "gpu:PreferNoSchedule"] {
            assert!(is_taint(good), "{good}");
        }
        for bad in [
            "",
            "gpu",
            "gpu:",
            "noschedule",
            "a/b:NoSchedule",
            "a:b:NoSchedule",
        ] {
            assert!(!is_taint(bad), "{bad}");
        }
    }
}
