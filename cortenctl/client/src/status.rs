//! Calls that fail: their timeout, and the meaning of their status.

use std::time::Duration;

use tonic::{Code, Status};

use crate::tls;

/// Timeout of a unary call on a node.
pub const DEADLINE: Duration = Duration::from_secs(60);

/// The meaning of a failed call, and the remedy.
pub fn explain(status: &Status, roles: &[String]) -> String {
    // The source of an error made on this side; the text of the node is not searched.
    let below = std::error::Error::source(status);
    if let Some(text) = below.and_then(tls::refusal_below) {
        return text;
    }
    let said = status.message();
    match status.code() {
        Code::PermissionDenied if roles.is_empty() => {
            format!("permission denied: {said}")
        }
        Code::PermissionDenied => format!(
            "permission denied: {said}; the client certificate has the roles {}",
            roles.join(", ")
        ),
        Code::Unimplemented => format!("this node does not offer the call (Unimplemented): {said}"),
        Code::DeadlineExceeded => {
            format!("no answer within {} s: {said}", DEADLINE.as_secs())
        }
        // Made on this side: the source explains more than the status.
        Code::Unknown | Code::Unavailable | Code::Cancelled => match below {
            Some(source) => format!("the connection failed: {}", tls::chain(source)),
            None => format!("{said} ({:?})", status.code()),
        },
        code => format!("{said} ({code:?})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permission_error_names_the_roles_of_the_client() {
        let status = Status::permission_denied("not authorized");
        let text = explain(&status, &["os:reader".to_owned()]);
        assert_eq!(
            text,
            "permission denied: not authorized; the client certificate has the roles os:reader"
        );
    }
}
