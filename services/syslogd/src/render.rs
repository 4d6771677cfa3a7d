//! Formats messages of `/dev/log`, and the daemon's own, as lines of a log. No I/O.

use crate::parse::Message;
use serde::Serialize;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// One `/dev/log` message as a JSON object. `time` is the time of arrival, because two of the three formats have a time
/// stamp without year or zone.
#[derive(Serialize)]
struct Json<'a> {
    time: String,
    severity: &'static str,
    facility: &'static str,
    priority: u8,
    #[serde(skip_serializing_if = "Option::is_none")]
    tag: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pid: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hostname: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    timestamp: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    structured_data: Option<&'a str>,
    content: &'a str,
}

/// A message as one line of JSON, line feed included.
#[must_use]
pub fn message(message: &Message<'_>, now: OffsetDateTime) -> Vec<u8> {
    let json = Json {
        time: timestamp(now),
        severity: message.severity(),
        facility: message.facility(),
        priority: message.priority,
        tag: message.tag.as_deref(),
        pid: message.pid.as_deref(),
        hostname: message.hostname.as_deref(),
        timestamp: message.timestamp.as_deref(),
        message_id: message.message_id.as_deref(),
        structured_data: message.structured_data.as_deref(),
        content: &message.content,
    };
    // Strings and numbers always serialize.
    let mut line = serde_json::to_vec(&json).unwrap_or_default();
    line.push(b'\n');
    line
}

/// A message of this daemon in the same format.
#[must_use]
pub fn own(priority: u8, text: &str, now: OffsetDateTime) -> Vec<u8> {
    let spoken = Message {
        priority,
        tag: Some("syslogd".into()),
        content: text.into(),
        ..Message::default()
    };
    message(&spoken, now)
}

fn timestamp(at: OffsetDateTime) -> String {
    // Formatting fails only for years beyond 9999.
    at.format(&Rfc3339).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use corten_corpus::hostile;
    use proptest::prelude::{prop_assert, prop_assert_eq, proptest};
    use time::macros::datetime;

    proptest! {
        #[test]
        fn hostile_datagrams_become_one_line_of_json(datagram in hostile("syslog"), known in 0usize..4) {
            let head = ["", "<13>", "<13>1 - - - - - ", "<13>Oct 11 22:14:15 a[1]: "][known];
            let datagram = [head.as_bytes(), &datagram].concat();
            let line = super::message(&crate::parse::parse(&datagram), datetime!(2025-01-02 03:04:05 UTC));
            prop_assert_eq!(line.iter().filter(|byte| **byte == b'\n').count(), 1);
            prop_assert!(line.ends_with(b"\n"));
            let value: serde_json::Value = serde_json::from_slice(&line).unwrap();
            prop_assert!(value["content"].is_string());
        }
    }

    #[test]
    fn a_message_is_one_json_object() {
        let parsed = crate::parse::parse(b"<30>Oct 11 22:14:15 iscsid[7]: a \"quoted\"\nline");
        let line = super::message(&parsed, datetime!(2025-01-02 03:04:05.5 UTC));
        assert_eq!(
            std::str::from_utf8(&line).unwrap(),
            "{\"time\":\"2025-01-02T03:04:05.5Z\",\"severity\":\"info\",\"facility\":\"daemon\",\
             \"priority\":30,\"tag\":\"iscsid\",\"pid\":\"7\",\"timestamp\":\"Oct 11 22:14:15\",\
             \"content\":\"a \\\"quoted\\\"\\nline\"}\n"
        );
    }
}
