//! Objects in JSON, and how they are damaged: in their structure, because a parser refuses damaged bytes at once.

use proptest::collection::vec;
use proptest::prelude::{Just, Strategy, any, prop_oneof};
use proptest::sample::Index;
use serde_json::{Value, json};

/// Maximum number of damages to one sample.
const MOST: usize = 4;
/// Length of a long text, in bytes.
const LONG: usize = 5_000;

/// A change of the values in an object.
#[derive(Debug, Clone)]
enum Damage {
    /// Replaces a value.
    Set(Index, Value),
    /// Removes the members of a value.
    Empty(Index),
    /// Replaces a value by one of another sample.
    Splice(Index, Index, Index),
}

/// Values at which readers fail.
fn value() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        Just(json!(1e300)),
        Just(json!(u64::MAX)),
        Just(json!("")),
        Just(json!("../..")),
        Just(json!("\u{0}\u{1b}[2J")),
        "\\PC{0,20}".prop_map(Value::from),
        Just(json!("x".repeat(LONG))),
        Just(json!([])),
        Just(json!({})),
        Just(json!([null, {}, 7])),
        Just(json!({ "": { "": null } })),
    ]
}

fn damage() -> impl Strategy<Value = Damage> {
    let place = any::<Index>;
    prop_oneof![
        3 => (place(), value()).prop_map(|(at, value)| Damage::Set(at, value)),
        1 => place().prop_map(Damage::Empty),
        1 => (place(), place(), place()).prop_map(|(at, which, from)| Damage::Splice(at, which, from)),
    ]
}

/// The number of values in a value, itself included.
fn count(value: &Value) -> usize {
    let members = match value {
        Value::Array(items) => items.iter().map(count).sum(),
        Value::Object(fields) => fields.values().map(count).sum(),
        _ => 0,
    };
    1 + members
}

/// The value with this number, in the order of the text; or how many are missing.
fn nth(value: &mut Value, number: usize) -> Result<&mut Value, usize> {
    let Some(mut left) = number.checked_sub(1) else {
        return Ok(value);
    };
    let members: Vec<&mut Value> = match value {
        Value::Array(items) => items.iter_mut().collect(),
        Value::Object(fields) => fields.values_mut().collect(),
        _ => Vec::new(),
    };
    for member in members {
        match nth(member, left) {
            Err(missing) => left = missing,
            found => return found,
        }
    }
    Err(left)
}

fn apply(value: &mut Value, damage: &Damage, samples: &[Value]) {
    let (at, with) = match damage {
        Damage::Set(at, with) => (at, Some(with.clone())),
        Damage::Empty(at) => (at, None),
        Damage::Splice(at, which, from) => {
            let mut other = which.get(samples).clone();
            let number = from.index(count(&other));
            (at, nth(&mut other, number).ok().map(|found| found.take()))
        }
    };
    let number = at.index(count(value));
    let Ok(found) = nth(value, number) else {
        return;
    };
    *found = with.unwrap_or_else(|| match found {
        Value::Array(_) => json!([]),
        Value::Object(_) => json!({}),
        _ => Value::Null,
    });
}

/// A sample of the format, intact or damaged. Each file of the format is an object in JSON.
///
/// # Panics
/// The format has no samples, or one is not JSON.
pub fn hostile_json(format: &str) -> impl Strategy<Value = Value> + use<> {
    let read = |sample: crate::Sample| {
        let parsed = serde_json::from_slice(&sample.bytes);
        parsed.unwrap_or_else(|error| panic!("{format}/{}: {error}", sample.name))
    };
    let samples: Vec<Value> = crate::samples(format).into_iter().map(read).collect();
    (any::<Index>(), vec(damage(), 0..MOST)).prop_map(move |(which, damages)| {
        let mut value = which.get(&samples).clone();
        for damage in &damages {
            apply(&mut value, damage, &samples);
        }
        value
    })
}

#[cfg(test)]
mod tests {
    use proptest::strategy::ValueTree as _;
    use proptest::test_runner::TestRunner;

    use super::*;

    #[test]
    fn every_value_of_an_object_can_be_damaged() {
        let object = json!({ "a": [1, { "b": null }], "c": "d" });
        assert_eq!(count(&object), 6);
        for number in 0..6 {
            let mut damaged = object.clone();
            *nth(&mut damaged, number).unwrap() = json!("new");
            assert_ne!(damaged, object);
            assert_eq!(damaged.to_string().matches("new").count(), 1);
        }
        assert_eq!(nth(&mut object.clone(), 8), Err(2));
    }

    #[test]
    fn strategy_gives_whole_and_damaged_objects() {
        let whole = crate::samples("kubernetes").into_iter();
        let whole = whole.map(|one| serde_json::from_slice(&one.bytes).unwrap());
        let whole: Vec<Value> = whole.collect();
        let mut runner = TestRunner::deterministic();
        let strategy = hostile_json("kubernetes");
        let drawn = (0..200).map(|_| strategy.new_tree(&mut runner).unwrap().current());
        let (intact, damaged): (Vec<_>, Vec<_>) = drawn.partition(|value| whole.contains(value));
        assert!(intact.len() > 10 && damaged.len() > 10);
    }
}
