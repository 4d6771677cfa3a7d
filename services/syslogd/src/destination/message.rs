//! Formats a line of a log as a message for a destination: one JSON object per line. No I/O.
//!
//! Keys of the reference: `msg`, `talos-level`, `talos-service`, `talos-time`, for the kernel `facility`, `seq`,
//! `clock`, `priority`. Then come the fields of a line that is JSON itself, and the tags of the machine config.

use crate::kernel;
use crate::parse::{facility, severity};
use crate::sources::KERNEL;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// Keys of these fields in programs' JSON, the most common first.
const TEXTS: [&str; 3] = ["msg", "message", "content"];
const LEVELS: [&str; 2] = ["level", "severity"];
const TIMES: [&str; 3] = ["time", "ts", "timestamp"];

/// Between 1970 and the year 9999, in seconds.
const TIME_RANGE: std::ops::Range<f64> = 0.0..253_402_300_800.0;

/// Tags of a destination.
pub type Tags = BTreeMap<String, String>;

/// The message of a line that arrived at `at` (microseconds since 1970), line feed included.
#[must_use]
pub fn encode(log: &str, line: &[u8], at: u64, tags: &Tags) -> Vec<u8> {
    let object = match kernel::decode(line).filter(|_| log == KERNEL) {
        Some(line) => kernel_object(&line),
        None => service_object(log, line, at),
    };
    finished(object, tags)
}

/// The message that reports `lost` messages of a log before the next one.
#[must_use]
pub fn encode_loss(log: &str, lost: u64, at: u64, tags: &Tags) -> Vec<u8> {
    let text = format!("{lost} messages were lost");
    finished(head(text, "warn", log, kernel::rfc3339(at)), tags)
}

/// A message of at most `limit` bytes: the same one, or a truncated one.
#[must_use]
pub fn shortened(message: Vec<u8>, limit: usize) -> Vec<u8> {
    if message.len() <= limit {
        return message;
    }
    let Ok(Value::Object(mut object)) = serde_json::from_slice(&message) else {
        return message;
    };
    let over = message.len();
    object.retain(|key, _| key == "msg" || key.starts_with("talos-"));
    if let Some(Value::String(text)) = object.get_mut("msg") {
        // An escaped character has at most six bytes; half of the limit is for the other fields.
        let kept = text.floor_char_boundary(limit / 12);
        text.truncate(kept);
        text.push_str(&format!(" [cut from {over} bytes]"));
    }
    finished(object, &Tags::new())
}

fn finished(mut object: Map<String, Value>, tags: &Tags) -> Vec<u8> {
    for (key, value) in tags {
        object.insert(key.clone(), value.as_str().into());
    }
    // Strings, numbers and parsed values always serialize.
    let mut line = serde_json::to_vec(&object).unwrap_or_default();
    line.push(b'\n');
    line
}

fn head(text: String, level: &str, log: &str, time: String) -> Map<String, Value> {
    let mut object = Map::new();
    object.insert("msg".into(), text.into());
    object.insert("talos-level".into(), level.into());
    object.insert("talos-service".into(), log.into());
    object.insert("talos-time".into(), time.into());
    object
}

fn service_object(log: &str, line: &[u8], at: u64) -> Map<String, Value> {
    let arrived = || kernel::rfc3339(at);
    let parsed = match line.trim_ascii_start().first() {
        Some(b'{') => serde_json::from_slice::<Map<String, Value>>(line).ok(),
        _ => None,
    };
    let Some(mut fields) = parsed else {
        let text = String::from_utf8_lossy(line).into_owned();
        return head(text, "info", log, arrived());
    };
    let text = take_text(&mut fields, &TEXTS).unwrap_or_default();
    let level = take_text(&mut fields, &LEVELS).unwrap_or_else(|| "info".to_owned());
    let time = TIMES
        .iter()
        .find_map(|key| {
            let time = time_of(fields.get(*key)?)?;
            fields.shift_remove(*key);
            Some(time)
        })
        .unwrap_or_else(arrived);
    let mut object = head(text, level_name(&level), log, time);
    for (key, value) in fields {
        object.entry(key).or_insert(value);
    }
    object
}

fn kernel_object(line: &kernel::Line<'_>) -> Map<String, Value> {
    let severity = severity(line.priority);
    let text = line.text.clone().into_owned();
    let time = kernel::rfc3339(line.time);
    let mut object = head(text, level_name(severity), KERNEL, time);
    object.insert("facility".into(), facility(line.priority).into());
    object.insert("seq".into(), line.sequence.into());
    object.insert("clock".into(), line.clock.into());
    object.insert("priority".into(), severity.into());
    object
}

/// Removes the first of these fields that is a string.
fn take_text(fields: &mut Map<String, Value>, keys: &[&str]) -> Option<String> {
    let key = keys
        .iter()
        .find(|key| fields.get(**key).is_some_and(Value::is_string))?;
    match fields.shift_remove(*key) {
        Some(Value::String(text)) => Some(text),
        _ => None,
    }
}

/// Parses RFC 3339 text, or seconds since 1970.
fn time_of(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => {
            let at = OffsetDateTime::parse(text, &Rfc3339).ok()?;
            at.to_offset(time::UtcOffset::UTC).format(&Rfc3339).ok()
        }
        Value::Number(seconds) => {
            let seconds = seconds.as_f64().filter(|at| TIME_RANGE.contains(at))?;
            let at = OffsetDateTime::UNIX_EPOCH + time::Duration::seconds_f64(seconds);
            at.format(&Rfc3339).ok()
        }
        _ => None,
    }
}

/// Maps the level names of programs and syslog to one spelling; `info` for an unknown one.
fn level_name(level: &str) -> &'static str {
    match level.to_ascii_lowercase().as_str() {
        "emerg" | "alert" | "crit" | "critical" | "fatal" | "panic" | "dpanic" => "fatal",
        "err" | "error" => "error",
        "warn" | "warning" => "warn",
        "debug" | "trace" => "debug",
        _ => "info",
    }
}

#[cfg(test)]
mod tests {
    use super::{Tags, encode, encode_loss, shortened};
    use proptest::prelude::{any, prop_assert, proptest};
    use serde_json::{Value, json};

    const AT: u64 = 1_735_787_045_500_000;

    fn encoded(log: &str, line: &str) -> Value {
        let message = encode(log, line.as_bytes(), AT, &Tags::new());
        serde_json::from_slice(&message).unwrap()
    }

    #[test]
    fn text_line_becomes_a_message_of_its_service() {
        let tags = Tags::from([("rack".to_owned(), "7".to_owned())]);
        let message = encode("apid", b"hello \"you\"", AT, &tags);
        assert_eq!(
            std::str::from_utf8(&message).unwrap(),
            "{\"msg\":\"hello \\\"you\\\"\",\"talos-level\":\"info\",\"talos-service\":\"apid\",\
             \"talos-time\":\"2025-01-02T03:04:05.5Z\",\"rack\":\"7\"}\n"
        );
        assert_eq!(encoded("a", "{broken")["msg"], "{broken");
    }

    #[test]
    fn json_lines_keep_their_fields() {
        let line = r#"{"ts":1.5,"level":"WARNING","msg":"slow","pod":{"name":"x"},"talos-service":"forged"}"#;
        assert_eq!(
            encoded("kubelet", line),
            json!({"msg": "slow", "talos-level": "warn", "talos-service": "kubelet",
                   "talos-time": "1970-01-01T00:00:01.5Z", "pod": {"name": "x"}})
        );
        let odd = encoded("a", r#"{"time":"yesterday","level":3,"content":"c"}"#);
        assert_eq!(odd["talos-time"], "2025-01-02T03:04:05.5Z");
        assert_eq!(
            (&odd["time"], &odd["level"], &odd["msg"]),
            (&json!("yesterday"), &json!(3), &json!("c"))
        );
    }

    #[test]
    fn kernel_message_keeps_its_numbers() {
        assert_eq!(
            encoded("kernel", "4,339,5140900,1735787045500000;link down"),
            json!({"msg": "link down", "talos-level": "warn", "talos-service": "kernel",
                   "talos-time": "2025-01-02T03:04:05.5Z", "facility": "kern", "seq": 339,
                   "clock": 5_140_900, "priority": "warning"})
        );
        // Only the kernel log has this format.
        assert!(
            encoded("apid", "4,339,5140900,1735787045500000;x")
                .get("seq")
                .is_none()
        );
    }

    #[test]
    fn losses_are_reported_and_oversized_lines_truncated() {
        let lost: Value = serde_json::from_slice(&encode_loss("a", 7, AT, &Tags::new())).unwrap();
        assert_eq!(
            (&lost["msg"], &lost["talos-service"]),
            (&json!("7 messages were lost"), &json!("a"))
        );
        let giant = encode("a", "\u{1}".repeat(60_000).as_bytes(), AT, &Tags::new());
        let cut = shortened(giant, 10_000);
        assert!(cut.len() <= 10_000 && cut.ends_with(b"\n"));
        let cut: Value = serde_json::from_slice(&cut).unwrap();
        assert!(cut["msg"].as_str().unwrap().ends_with(" bytes]"));
        assert_eq!(cut["talos-service"], "a");
    }

    proptest! {
        #[test]
        fn hostile_lines_become_one_line_of_json(line: Vec<u8>, at in any::<u64>(), kernel: bool) {
            let log = if kernel { "kernel" } else { "a" };
            let message = encode(log, &line, at, &Tags::new());
            prop_assert!(message.ends_with(b"\n"));
            prop_assert!(!message[..message.len() - 1].contains(&b'\n'));
            let value: Value = serde_json::from_slice(&message).unwrap();
            prop_assert!(value["msg"].is_string());
        }
    }
}
