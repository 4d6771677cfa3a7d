//! Errors in the format of the spec.

use http::StatusCode;
use oci_spec::distribution::{ErrorCode, ErrorInfoBuilder, ErrorResponseBuilder};

/// A status, an error code of the spec, and a message for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) status: StatusCode,
    pub(crate) code: ErrorCode,
    pub(crate) message: String,
}

impl Refusal {
    /// The request is malformed.
    pub(crate) fn bad(code: ErrorCode, message: impl Into<String>) -> Refusal {
        Refusal {
            status: StatusCode::BAD_REQUEST,
            code,
            message: message.into(),
        }
    }

    /// The cache lacks the object; the client then asks the next registry.
    pub(crate) fn unknown(code: ErrorCode, message: impl Into<String>) -> Refusal {
        Refusal {
            status: StatusCode::NOT_FOUND,
            code,
            message: message.into(),
        }
    }

    /// The body of the answer: `{"errors":[{"code":...,"message":...}]}`.
    pub(crate) fn json(&self) -> Vec<u8> {
        let info = ErrorInfoBuilder::default()
            .code(self.code.clone())
            .message(self.message.clone())
            .build();
        let response =
            info.and_then(|info| ErrorResponseBuilder::default().errors(vec![info]).build());
        // Both builders have all fields, and strings always serialize.
        response
            .ok()
            .and_then(|response| serde_json::to_vec(&response).ok())
            .unwrap_or_default()
    }
}
