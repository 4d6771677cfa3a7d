//! Size limits of requests.
//!
//! A request occupies the receiver's memory for as long as its caller takes to send it. So only few methods may have
//! long ones. apid counts the bytes that it forwards, and machined checks every request against the same table.

use crate::MAX_MESSAGE;

/// Longest request of a method without an entry, in bytes.
pub const SMALL: usize = 64 * 1024;
/// Longest message of a streamed request, in bytes: the default limit of other gRPC servers.
pub const PART: usize = 4 * 1024 * 1024;
/// Length of a message's header: the compression flag and the length (gRPC over HTTP/2, "Length-Prefixed-Message").
pub const HEAD: usize = 5;

/// Form and limit of a method's request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Request {
    /// One message of at most [`SMALL`] bytes.
    Small,
    /// One message of at most [`MAX_MESSAGE`] bytes.
    Large,
    /// A stream of messages of at most [`PART`] bytes each.
    Parts,
}

use Request::{Large, Parts, Small};

/// The methods with larger requests.
const NOT_SMALL: &[(&str, Request)] = &[
    ("/machine.MachineService/ApplyConfiguration", Large),
    ("/machine.MachineService/MetaWrite", Large),
    ("/machine.MachineService/EtcdRecover", Parts),
    ("/machine.ImageService/Import", Parts),
    ("/machine.DebugService/ContainerRun", Parts),
];

impl Request {
    /// The form and limit of the method at `path`.
    #[must_use]
    pub fn of(path: &str) -> Request {
        let listed = NOT_SMALL.iter().find(|(known, _)| *known == path);
        listed.map_or(Small, |(_, request)| *request)
    }

    /// Maximum length with its header in bytes; `None`: unlimited.
    #[must_use]
    pub fn most(self) -> Option<usize> {
        match self {
            Small => Some(SMALL + HEAD),
            Large => Some(MAX_MESSAGE + HEAD),
            Parts => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::roles::is_listed;

    #[test]
    fn exactly_the_client_streaming_methods_accept_requests_in_parts() {
        let streams = crate::contract::methods().into_iter();
        let streams = streams.filter(|method| method.takes_stream);
        let mut streams: Vec<_> = streams.map(|method| method.path).collect();
        streams.sort();
        let parts = NOT_SMALL.iter().filter(|(_, request)| *request == Parts);
        let mut parts: Vec<_> = parts.map(|(path, _)| *path).collect();
        parts.sort_unstable();
        assert_eq!(parts, streams);
        assert!(NOT_SMALL.iter().all(|(path, _)| is_listed(path)));
    }

    #[test]
    fn methods_of_the_reader_role_take_small_requests() {
        use crate::roles::{METHODS, Role, allows};
        for method in METHODS {
            if allows(method.path, &[Role::Reader], false) {
                assert_eq!(Request::of(method.path), Small, "{}", method.path);
            }
        }
    }
}
