//! Kubernetes' formats of names and values: "Labels and Selectors" and "Taints and Tolerations" of its documentation
//! (<https://kubernetes.io/docs/concepts/>).

use crate::names::is_host_name;
use crate::text::texts;

texts! {
    /// The name of a Kubernetes object.
    ObjectName = "a name of lower-case letters, digits and dashes in parts of at most 63", is_subdomain;
}

/// Effects of a taint on pods that do not tolerate it.
const EFFECTS: &[&str] = &["NoSchedule", "PreferNoSchedule", "NoExecute"];

/// Whether the text is a qualified name: `name` or `prefix.example/name`.
#[must_use]
pub fn is_qualified_name(text: &str) -> bool {
    match text.split_once('/') {
        Some((prefix, name)) => is_subdomain(prefix) && is_name(name),
        None => is_name(text),
    }
}

/// A name of RFC 1123, in lower case.
#[must_use]
pub fn is_subdomain(text: &str) -> bool {
    is_host_name(text) && !text.contains(|c: char| c.is_ascii_uppercase())
}

/// Whether the text is a valid value of a label.
#[must_use]
pub fn is_label_value(text: &str) -> bool {
    text.is_empty() || is_name(text)
}

/// A taint: `Effect` or `value:Effect`.
#[must_use]
pub fn is_taint(text: &str) -> bool {
    let (value, effect) = text.split_once(':').unwrap_or(("", text));
    is_label_value(value) && EFFECTS.contains(&effect)
}

/// A quantity in thousandths, rounded up as Kubernetes does: `250m`, `1.5Gi`, `1e9`, `2` (Kubernetes, "Quantity").
#[must_use]
pub fn quantity(text: &str) -> Option<u128> {
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at_checked(end)?;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits = format!("{whole}{fraction}");
    let is_short = (1..=20).contains(&digits.len()) && fraction.len() <= 9;
    if !is_short || fraction.contains('.') {
        return None;
    }
    let power = |exponent: u32| 10_u128.checked_pow(exponent);
    // The unit in billionths.
    let unit = match unit {
        "n" => power(0)?,
        "u" => power(3)?,
        "m" => power(6)?,
        "" => power(9)?,
        "k" => power(12)?,
        "M" => power(15)?,
        "G" => power(18)?,
        "T" => power(21)?,
        "Ki" => power(9)? << 10,
        "Mi" => power(9)? << 20,
        "Gi" => power(9)? << 30,
        "Ti" => power(9)? << 40,
        _ => {
            let exponent = unit.strip_prefix(['e', 'E'])?;
            let exponent: u32 = exponent
                .parse()
                .ok()
                .filter(|_| !exponent.starts_with('+'))?;
            power(exponent.checked_add(9)?)?
        }
    };
    let billionths = digits.parse::<u128>().ok()?.checked_mul(unit)?;
    let scale = power(u32::try_from(fraction.len()).ok()?)?;
    Some(billionths.div_ceil(scale).div_ceil(power(6)?))
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
    fn label_keys_and_values_follow_the_kubernetes_rules() {
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
    fn quantities_are_compared_in_thousandths() {
        for (text, thousandths) in [
            ("250m", 250),
            ("2", 2_000),
            ("0.5", 500),
            ("1.5Gi", 1_610_612_736_000),
            ("128Mi", 134_217_728_000),
            ("1e3", 1_000_000),
            ("1n", 1),
            (".5", 500),
        ] {
            assert_eq!(quantity(text), Some(thousandths), "{text}");
        }
        for bad in [
            "", "Mi", "-1", "1 Gi", "1.2.3", "1GB", "a", "1e+3", "1e99", ".",
        ] {
            assert_eq!(quantity(bad), None, "{bad}");
        }
    }

    #[test]
    fn taint_requires_a_valid_effect() {
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
