//! Resource requests and limits of a container.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::object::set;

/// Requests and limits of a container: quantities of `cpu` and `memory` in Kubernetes' format.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Resources {
    /// Guaranteed quantities.
    pub requests: BTreeMap<String, String>,
    /// Maximum quantities.
    pub limits: BTreeMap<String, String>,
}

impl Resources {
    /// The field `resources` of a container; `cpu` and `memory` are the default requests.
    #[must_use]
    pub fn field(&self, cpu: &str, memory: &str) -> Value {
        let request = |name: &str, default: &str| {
            let said = self.requests.get(name).filter(|said| !said.is_empty());
            said.map_or(default, String::as_str).to_owned()
        };
        let mut field = json!({
            "requests": { "cpu": request("cpu", cpu), "memory": request("memory", memory) },
        });
        let limits: BTreeMap<&str, &str> = ["cpu", "memory"]
            .into_iter()
            .filter_map(|name| Some((name, self.limits.get(name)?.as_str())))
            .filter(|(_, limit)| !limit.is_empty())
            .collect();
        if !limits.is_empty() {
            set(&mut field, "", "limits", json!(limits));
        }
        field
    }

    /// `GOMEMLIMIT` at 95 % of the memory limit, so that Go collects garbage before the kernel kills the process.
    #[must_use]
    pub fn memory_limit(&self) -> Option<Value> {
        let limit = bytes(self.limits.get("memory")?)?;
        let limit = limit.checked_mul(95)? / 100;
        (limit > 0).then(|| json!({ "name": "GOMEMLIMIT", "value": limit.to_string() }))
    }
}

/// Bytes of a quantity: `128Mi`, `1.5G`, `500000`. Exponents and insignificant digits are not supported.
fn bytes(quantity: &str) -> Option<u64> {
    let digits = quantity
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(quantity.len());
    let (number, suffix) = quantity.split_at_checked(digits)?;
    let unit: u64 = match suffix {
        "" => 1,
        "k" => 1_000,
        "M" => 1_000_000,
        "G" => 1_000_000_000,
        "T" => 1_000_000_000_000,
        "Ki" => 1 << 10,
        "Mi" => 1 << 20,
        "Gi" => 1 << 30,
        "Ti" => 1 << 40,
        _ => return None,
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let tenths = match fraction {
        "" => 0,
        // Avoids an overflow: no u64 needs more digits.
        _ if fraction.len() > 9 => return None,
        _ => {
            let parts = u128::from(fraction.parse::<u64>().ok()?) * u128::from(unit);
            let scale = 10_u128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
            u64::try_from(parts / scale).ok()?
        }
    };
    let whole = whole.parse::<u64>().ok()?.checked_mul(unit)?;
    whole.checked_add(tenths)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_quantities_are_read_in_binary_and_decimal_units() {
        assert_eq!(bytes("128Mi"), Some(128 << 20));
        assert_eq!(bytes("1G"), Some(1_000_000_000));
        assert_eq!(bytes("4096"), Some(4096));
        assert_eq!(bytes("1.5Gi"), Some(3 << 29));
        for bad in [
            "",
            "Mi",
            "1.2.3",
            "1e9",
            "-1",
            "99999999999999999999",
            "16777216Ti",
        ] {
            assert_eq!(bytes(bad), None, "{bad}");
        }
    }
}
