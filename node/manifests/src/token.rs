//! Bootstrap token, with which new nodes join a cluster.

use std::fmt;

/// A token such as `abcdef.0123456789abcdef` (Kubernetes, "Authenticating with Bootstrap Tokens").
#[derive(Clone, PartialEq, Eq)]
pub struct BootstrapToken {
    pub(crate) id: String,
    pub(crate) secret: String,
}

/// An invalid bootstrap token. The message omits the text, because it is a secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the token must be 6 and 16 lower-case letters and digits with a dot in between")]
pub struct TokenError;

impl BootstrapToken {
    /// Parses a token.
    ///
    /// # Errors
    /// [`TokenError`] if the format is wrong.
    pub fn parse(text: &str) -> Result<BootstrapToken, TokenError> {
        let good = |part: &str, length: usize| {
            let letter = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
            part.len() == length && part.chars().all(letter)
        };
        let (id, secret) = text.split_once('.').ok_or(TokenError)?;
        if !good(id, 6) || !good(secret, 16) {
            return Err(TokenError);
        }
        Ok(BootstrapToken {
            id: id.to_owned(),
            secret: secret.to_owned(),
        })
    }

    /// The public part.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The secret part.
    #[must_use]
    pub fn secret(&self) -> &str {
        &self.secret
    }
}

impl fmt::Debug for BootstrapToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BootstrapToken({})", self.id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn malformed_bootstrap_token_is_refused() {
        BootstrapToken::parse("abcdef.0123456789abcdef").unwrap();
        for bad in [
            "",
            "abcdef",
            "abcdef.",
            "abcde.0123456789abcdef",
            "ABCDEF.0123456789abcdef",
            "abcdef.0123456789abcdef0",
            "abc/ef.0123456789abcdef",
        ] {
            assert_eq!(BootstrapToken::parse(bad), Err(TokenError), "{bad}");
        }
    }

    #[test]
    fn a_secret_is_not_in_debug_output() {
        let token = BootstrapToken::parse("abcdef.0123456789abcdef").unwrap();
        assert_eq!(format!("{token:?}"), "BootstrapToken(abcdef)");
    }
}
