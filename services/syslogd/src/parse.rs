//! Parses messages of `/dev/log`, in the formats that programs use in practice. No I/O. Never rejects a message.
//!
//! It knows RFC 5424 (version 1), and RFC 3164 with or without a host name (the C library omits it). Any other message,
//! and one with a malformed header, is free-form text, with its leading tag if there is one.

use std::borrow::Cow;

/// Length limit of a tag. RFC 3164 says 32, but container names are longer.
const MAX_TAG: usize = 128;

/// Facility `user`, severity `notice`: the priority of a message without one (RFC 3164 §4.3.3).
const DEFAULT_PRIORITY: u8 = 13;

/// The names of the facilities 0-23 (RFC 5424 table 1, as the C library spells them).
pub const FACILITIES: [&str; 24] = [
    "kern", "user", "mail", "daemon", "auth", "syslog", "lpr", "news", "uucp", "cron", "authpriv",
    "ftp", "ntp", "audit", "alert", "clock", "local0", "local1", "local2", "local3", "local4",
    "local5", "local6", "local7",
];

/// The names of the severities 0-7 (RFC 5424 table 2).
pub const SEVERITIES: [&str; 8] = [
    "emerg", "alert", "crit", "err", "warning", "notice", "info", "debug",
];

/// One message from `/dev/log`. Strings are the sender's bytes as UTF-8; invalid bytes become U+FFFD.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Message<'a> {
    /// Facility × 8 + severity, 0-191.
    pub priority: u8,
    /// The time stamp as sent: RFC 3339 or `Oct 11 22:14:15`.
    pub timestamp: Option<Cow<'a, str>>,
    /// The host name as sent.
    pub hostname: Option<Cow<'a, str>>,
    /// Name of the program.
    pub tag: Option<Cow<'a, str>>,
    /// The process id as sent; RFC 5424 allows text.
    pub pid: Option<Cow<'a, str>>,
    /// RFC 5424 MSGID.
    pub message_id: Option<Cow<'a, str>>,
    /// RFC 5424 structured data, undecoded.
    pub structured_data: Option<Cow<'a, str>>,
    /// The text, without trailing line ends and NULs.
    pub content: Cow<'a, str>,
}

impl Message<'_> {
    /// The facility's name.
    #[must_use]
    pub fn facility(&self) -> &'static str {
        facility(self.priority.into())
    }

    /// The severity's name.
    #[must_use]
    pub fn severity(&self) -> &'static str {
        severity(self.priority.into())
    }
}

/// Name of a priority's facility; `user` for an unknown one.
#[must_use]
pub fn facility(priority: u16) -> &'static str {
    let known = FACILITIES.get(usize::from(priority >> 3));
    known.copied().unwrap_or("user")
}

/// Name of a priority's severity.
#[must_use]
pub fn severity(priority: u16) -> &'static str {
    let known = SEVERITIES.get(usize::from(priority & 7));
    known.copied().unwrap_or("notice")
}

/// Parses one datagram. Never fails; see the module header.
#[must_use]
pub fn parse(datagram: &[u8]) -> Message<'_> {
    let datagram = trim_end(datagram);
    let (priority, rest) = match take_priority(datagram) {
        Some((priority, rest)) => (priority, rest),
        None => (DEFAULT_PRIORITY, datagram),
    };
    if let Some(message) = rest.strip_prefix(b"1 ").and_then(|r| rfc5424(priority, r)) {
        return message;
    }
    rfc3164(priority, rest)
}

/// Parses `<N>`: one to three digits, at most 191.
fn take_priority(bytes: &[u8]) -> Option<(u8, &[u8])> {
    let inner = bytes.strip_prefix(b"<")?;
    let end = inner.iter().take(4).position(|b| *b == b'>')?;
    let (digits, rest) = inner.split_at_checked(end)?;
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let value: u8 = std::str::from_utf8(digits).ok()?.parse().ok()?;
    (value <= 191).then_some((value, rest.strip_prefix(b">").unwrap_or(rest)))
}

/// Parses RFC 5424 §6 after `<PRI>1 `; `None` if a header field is malformed.
fn rfc5424(priority: u8, rest: &[u8]) -> Option<Message<'_>> {
    let (timestamp, rest) = word(rest)?;
    if timestamp != b"-" && !looks_like_rfc3339(timestamp) {
        return None;
    }
    let (hostname, rest) = word(rest)?;
    let (tag, rest) = word(rest)?;
    let (pid, rest) = word(rest)?;
    // MSGID is the last word before the structured data, which may end the message.
    let (message_id, rest) = word(rest)?;
    let (data, text) = structured_data(rest)?;
    let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
    Some(Message {
        priority,
        timestamp: optional(timestamp),
        hostname: optional(hostname),
        tag: optional(tag),
        pid: optional(pid),
        message_id: optional(message_id),
        structured_data: optional(data),
        content: text_of(text),
    })
}

/// Splits `-` or `[...][...]` from the text after it. Within a quoted value `\"`, `\\` and `\]` are escapes (RFC 5424
/// §6.3.3).
fn structured_data(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = if bytes.starts_with(b"-") {
        1
    } else {
        elements_end(bytes)?
    };
    let (data, text) = bytes.split_at_checked(end)?;
    match text.split_first() {
        None => Some((data, text)),
        Some((b' ', text)) => Some((data, text)),
        Some(_) => None,
    }
}

fn elements_end(bytes: &[u8]) -> Option<usize> {
    let (mut inside, mut quoted, mut escaped) = (false, false, false);
    let mut end = 0;
    for (index, byte) in bytes.iter().enumerate() {
        match (inside, quoted, byte) {
            (false, _, b'[') => inside = true,
            (false, _, _) => break,
            (true, true, _) if escaped => escaped = false,
            (true, true, b'\\') => escaped = true,
            (true, true, b'"') => quoted = false,
            (true, false, b'"') => quoted = true,
            (true, false, b']') => {
                inside = false;
                end = index + 1;
            }
            _ => {}
        }
    }
    (!inside && end > 0).then_some(end)
}

/// Parses RFC 3164 and free form, after `<PRI>`.
fn rfc3164(priority: u8, rest: &[u8]) -> Message<'_> {
    let mut message = Message {
        priority,
        ..Message::default()
    };
    let (timestamp, body) = take_timestamp(rest);
    message.timestamp = timestamp.map(text_of);
    if let Some((tag, pid, text)) = take_tag(body) {
        message.tag = Some(text_of(tag));
        message.pid = pid.map(text_of);
        message.content = text_of(text);
        return message;
    }
    // A host name is possible only between a time stamp and a tag.
    if timestamp.is_some()
        && let Some((host, after)) = word(body)
        && let Some((tag, pid, text)) = take_tag(after)
    {
        message.hostname = Some(text_of(host));
        message.tag = Some(text_of(tag));
        message.pid = pid.map(text_of);
        message.content = text_of(text);
        return message;
    }
    message.content = text_of(body);
    message
}

/// Parses `Oct 11 22:14:15 ` (day padded with a space or a zero) or an RFC 3339 word.
fn take_timestamp(bytes: &[u8]) -> (Option<&[u8]>, &[u8]) {
    const PATTERN: &[u8; 15] = b"aaa d0 00:00:00";
    if let Some((stamp, rest)) = bytes.split_at_checked(PATTERN.len())
        && stamp.iter().zip(PATTERN).all(|(byte, kind)| match kind {
            b'a' => byte.is_ascii_alphabetic(),
            b'd' => byte.is_ascii_digit() || *byte == b' ',
            b'0' => byte.is_ascii_digit(),
            other => byte == other,
        })
        && matches!(rest.first(), None | Some(b' '))
    {
        return (Some(stamp), rest.strip_prefix(b" ").unwrap_or(rest));
    }
    match word(bytes) {
        Some((stamp, rest)) if looks_like_rfc3339(stamp) => (Some(stamp), rest),
        _ => (None, bytes),
    }
}

/// `2003-10-11T22:14:15` with any suffix.
fn looks_like_rfc3339(word: &[u8]) -> bool {
    const PATTERN: &[u8; 19] = b"0000-00-00T00:00:00";
    word.len() >= PATTERN.len()
        && word.iter().zip(PATTERN).all(|(byte, kind)| match kind {
            b'0' => byte.is_ascii_digit(),
            other => byte == other,
        })
}

/// Tag, pid, and the text after them.
type Tagged<'a> = (&'a [u8], Option<&'a [u8]>, &'a [u8]);

/// Parses `tag: text` or `tag[pid]: text`.
fn take_tag(bytes: &[u8]) -> Option<Tagged<'_>> {
    let end = bytes
        .iter()
        .take(MAX_TAG + 1)
        .position(|b| !is_tag_byte(*b))?;
    let (tag, rest) = bytes.split_at_checked(end)?;
    if tag.is_empty() {
        return None;
    }
    let (pid, rest) = match rest.strip_prefix(b"[") {
        None => (None, rest),
        Some(inner) => {
            let close = inner.iter().take(MAX_TAG).position(|b| *b == b']')?;
            let (pid, rest) = inner.split_at_checked(close)?;
            (Some(pid), rest.strip_prefix(b"]")?)
        }
    };
    let text = rest.strip_prefix(b":")?;
    // `12:30 lunch` and `http://…` have no tag.
    let text = match text.split_first() {
        None => text,
        Some((b' ', text)) => text,
        Some(_) => return None,
    };
    Some((tag, pid.filter(|p| !p.is_empty()), text))
}

fn is_tag_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"._/-@+()".contains(&byte)
}

/// Splits at the first space.
fn word(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = bytes.iter().position(|b| *b == b' ')?;
    let (word, rest) = bytes.split_at_checked(end)?;
    (!word.is_empty()).then(|| (word, rest.strip_prefix(b" ").unwrap_or(rest)))
}

/// RFC 5424's NILVALUE `-` is `None`.
fn optional(bytes: &[u8]) -> Option<Cow<'_, str>> {
    (bytes != b"-").then(|| text_of(bytes))
}

fn text_of(bytes: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(bytes)
}

fn trim_end(bytes: &[u8]) -> &[u8] {
    let kept = bytes
        .iter()
        .rposition(|b| !matches!(b, b'\n' | b'\r' | 0))
        .map_or(0, |i| i + 1);
    bytes.get(..kept).unwrap_or(bytes)
}

#[cfg(test)]
mod tests {
    use super::{Message, parse};
    use corten_corpus::{hostile, samples};
    use proptest::prelude::{any, prop_assert, proptest};

    fn tag<'a>(message: &'a Message<'_>) -> &'a str {
        message.tag.as_deref().unwrap_or("")
    }

    #[test]
    fn c_library_form_has_no_host() {
        let m = parse(b"<86>Oct  1 22:14:15 sshd[411]: Accepted publickey\n\0");
        assert_eq!((m.facility(), m.severity()), ("authpriv", "info"));
        assert_eq!(m.timestamp.as_deref(), Some("Oct  1 22:14:15"));
        assert_eq!((tag(&m), m.pid.as_deref()), ("sshd", Some("411")));
        assert_eq!(
            (m.hostname.as_deref(), &*m.content),
            (None, "Accepted publickey")
        );
    }

    #[test]
    fn rfc3164_example_with_host_parses() {
        let m = parse(b"<34>Oct 11 22:14:15 mymachine su: 'su root' failed for lonvick");
        assert_eq!(m.hostname.as_deref(), Some("mymachine"));
        assert_eq!(tag(&m), "su");
        assert_eq!(m.content, "'su root' failed for lonvick");
        let iso = parse(b"<34>2025-10-11T22:14:15.003Z node iscsid[9]: connected");
        assert_eq!(iso.hostname.as_deref(), Some("node"));
        assert_eq!(iso.timestamp.as_deref(), Some("2025-10-11T22:14:15.003Z"));
    }

    #[test]
    fn rfc5424_examples_parse() {
        let m = parse(
            b"<165>1 2003-10-11T22:14:15.003Z mymachine.example.com evntslog - ID47 \
              [a@1 x=\"3\" y=\"q\\\"]\"][b@1] \xef\xbb\xbfAn application event",
        );
        assert_eq!(
            (m.facility(), m.severity(), tag(&m)),
            ("local4", "notice", "evntslog")
        );
        assert_eq!(m.pid, None);
        assert_eq!(m.message_id.as_deref(), Some("ID47"));
        assert_eq!(
            m.structured_data.as_deref(),
            Some("[a@1 x=\"3\" y=\"q\\\"]\"][b@1]")
        );
        assert_eq!(m.content, "An application event");
        let bare = parse(b"<14>1 - - app 7 - -");
        assert_eq!(
            (tag(&bare), bare.pid.as_deref(), &*bare.content),
            ("app", Some("7"), "")
        );
    }

    #[test]
    fn free_form_message_is_kept_unchanged() {
        assert_eq!(parse(b"hello world").content, "hello world");
        assert_eq!(parse(b"hello world").priority, 13);
        let m = parse(b"<11>kubelet: oops");
        assert_eq!((tag(&m), &*m.content), ("kubelet", "oops"));
        for text in [
            "12:30 lunch",
            "<192>high",
            "<>x",
            "<1",
            "<1>1 not a header",
            "http://x y",
            "",
        ] {
            let m = parse(text.as_bytes());
            assert!(text.ends_with(&*m.content), "{text:?} became {m:?}");
            assert_eq!(m.tag, None, "{text:?}");
        }
        assert_eq!(parse(b"<13>bad \xff byte").content, "bad \u{fffd} byte");
    }

    #[test]
    fn corpus_samples_have_content() {
        for sample in samples("syslog") {
            let message = parse(&sample.bytes);
            let is_bare = ["bare", "plain"].contains(&&*sample.name);
            assert!(!message.content.is_empty(), "{}", sample.name);
            assert_eq!(
                message.tag.is_none(),
                is_bare,
                "{}: {message:?}",
                sample.name
            );
        }
    }

    proptest! {
        #[test]
        fn hostile_bytes_never_panic_and_never_grow(bytes in hostile("syslog"), prefix in any::<u8>()) {
            let _ = parse(&bytes);
            for head in ["", "<13>", "<13>1 - - - - - ", "<13>1 2003-10-11T22:14:15Z h a p m [", "<13>Oct 11 22:14:15 "] {
                let mut datagram = head.as_bytes().to_vec();
                datagram.push(prefix);
                datagram.extend_from_slice(&bytes);
                let message = parse(&datagram);
                prop_assert!(message.priority <= 191);
                // A byte becomes at most the three bytes of U+FFFD.
                prop_assert!(message.content.len() <= datagram.len() * 3);
            }
        }

        #[test]
        fn sent_text_is_in_the_message(text in "[a-z]{1,8}( [a-z]{1,8}){0,5}", pid in 1u32..99999) {
            let sent = format!("<30>Jan  2 03:04:05 prog[{pid}]: {text}");
            let message = parse(sent.as_bytes());
            prop_assert!(message.content == text.as_str());
            prop_assert!(message.pid.as_deref() == Some(pid.to_string().as_str()));
        }
    }
}
