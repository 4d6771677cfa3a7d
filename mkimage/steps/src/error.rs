//! The error of a build: one message that names the failed operation, and a remedy.

use std::fmt;

/// The result type of the whole builder.
pub type Result<T> = anyhow::Result<T>;

/// A failure together with its remedy; `main` prints both.
#[derive(Debug)]
pub struct Failure {
    message: String,
    remedy: String,
}

impl Failure {
    /// A failure that names the operation and the user's remedy.
    #[expect(
        clippy::new_ret_no_self,
        reason = "a failure only ever travels as an anyhow error"
    )]
    pub fn new(message: impl Into<String>, remedy: impl Into<String>) -> anyhow::Error {
        anyhow::Error::new(Self {
            message: message.into(),
            remedy: remedy.into(),
        })
    }

    /// The remedy, one sentence.
    pub fn remedy(&self) -> &str {
        &self.remedy
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}

/// Adds a message and a remedy to an error on its way up.
pub trait Remedy<T> {
    /// Wraps the error, keeping it as the source.
    fn or_fail(self, message: impl Into<String>, remedy: impl Into<String>) -> Result<T>;
}

impl<T, E: Into<anyhow::Error>> Remedy<T> for std::result::Result<T, E> {
    fn or_fail(self, message: impl Into<String>, remedy: impl Into<String>) -> Result<T> {
        self.map_err(|error| {
            error.into().context(Failure {
                message: message.into(),
                remedy: remedy.into(),
            })
        })
    }
}
