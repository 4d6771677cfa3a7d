//! Removes secrets that a text contains by accident.

use std::sync::LazyLock;

use corten_api::parameters;
use regex_lite::Regex;

/// The replacement of a secret.
const HIDDEN: &str = parameters::HIDDEN;

/// Patterns of secrets; the groups before and after the secret are kept.
static SECRETS: LazyLock<Vec<Regex>> = LazyLock::new(|| {
    let patterns = [
        // Complete private keys; a truncated one hides the rest of the text.
        r"(?s)(-----BEGIN [A-Z ]*PRIVATE KEY-----).*?(-----END [A-Z ]*PRIVATE KEY-----|\z)",
        // Private keys as base64 of PEM, which begins with "LS0tLS1CRUdJTi".
        r"()LS0tLS1CRUdJTi[A-Za-z0-9+/=]{40,}()",
        // Credentials in URLs.
        r"(://)[^/@\s]+(@)",
        // Bearer tokens, and Kubernetes' and trustd's tokens.
        r"((?i:bearer)\s+)[A-Za-z0-9._~+/=-]{8,}()",
        r"\b()[a-z0-9]{6}\.[a-z0-9]{16}()\b",
        // Fields with a telling name: quoted, in nested quotes, and bare.
        r#"((?i:password|passwd|secret|token)["']?\s*[=:]\s*")(?:[^"\\\n]|\\.)+("?)"#,
        r#"((?i:password|passwd|secret|token)["']?\s*[=:]\s*')[^'\n]+('?)"#,
        r#"((?i:password|passwd|secret|token)\\"\s*[=:]\s*\\")[^"\\\n]+()"#,
        r#"((?i:password|passwd|secret|token)["']?\s*[=:]\s*)[^\s"',}]+()"#,
    ];
    patterns
        .iter()
        .filter_map(|pattern| Regex::new(pattern).ok())
        .collect()
});

/// The text with its secrets replaced.
pub(super) fn redact(text: &str) -> String {
    let mut text = parameters::hide(text);
    for secret in SECRETS.iter() {
        let replacement = format!("${{1}}{HIDDEN}${{2}}");
        text = secret.replace_all(&text, replacement.as_str()).into_owned();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_redaction_pattern_compiles() {
        assert_eq!(SECRETS.len(), 9);
    }

    #[test]
    fn secrets_are_replaced_and_other_text_stays() {
        for (text, expected) in [
            (
                "a -----BEGIN EC PRIVATE KEY-----\nAAAA\nBBBB\n-----END EC PRIVATE KEY----- b",
                "a -----BEGIN EC PRIVATE KEY-----******-----END EC PRIVATE KEY----- b",
            ),
            (
                "get https://u:pw@host/x failed",
                "get https://******@host/x failed",
            ),
            (
                "Authorization: Bearer abcdefgh.ijk x",
                "Authorization: Bearer ****** x",
            ),
            (
                "token abcdef.0123456789abcdef refused",
                "token ****** refused",
            ),
            (
                "corten.config=https://c?token=abc x=1",
                "corten.config=https://c?****** x=1",
            ),
            (
                "cmdline: quiet corten.config.inline=KLUv/QRY+A== x=1",
                "cmdline: quiet corten.config.inline=****** x=1",
            ),
            (
                r#"{"password": "hunter2", "a": 1}"#,
                r#"{"password": "******", "a": 1}"#,
            ),
            (
                r#"{"password": "two \"words\"", "a": 1}"#,
                r#"{"password": "******", "a": 1}"#,
            ),
            ("password='a,b' x=1", "password='******' x=1"),
            ("token: \"cut off here\nb", "token: \"******\nb"),
            (
                r#"{"msg":"{\"secret\":\"two words\"}","a":1}"#,
                r#"{"msg":"{\"secret\":\"******\"}","a":1}"#,
            ),
            (
                "a -----BEGIN PRIVATE KEY-----\nAAAA\nBB",
                "a -----BEGIN PRIVATE KEY-----******",
            ),
            (
                "kubelet is healthy at https://10.0.0.1:6443",
                "kubelet is healthy at https://10.0.0.1:6443",
            ),
        ] {
            assert_eq!(redact(text), expected);
        }
        let encoded = format!("key: LS0tLS1CRUdJTi{}", "A".repeat(60));
        assert_eq!(redact(&encoded), "key: ******");
    }
}
