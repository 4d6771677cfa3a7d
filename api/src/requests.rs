//! How much a method's caller sends.
//!
//! A request is in the receiver's memory while it comes, for as long as its caller takes. So only few methods may have
//! long ones; apid counts what it hands on, and machined holds every request against the same table.

use crate::MAX_MESSAGE;

/// The longest request of a method that is not listed here, in bytes.
pub const SMALL: usize = 64 * 1024;
/// The longest part of a request that comes in parts, in bytes: the largest message other gRPC servers take unless they
/// are told otherwise.
pub const PART: usize = 4 * 1024 * 1024;
/// What stands before a message: whether it is compressed, and its length (gRPC over HTTP/2, "Length-Prefixed-Message").
pub const HEAD: usize = 5;

/// How a method's request comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Request {
    /// One message of at most [`SMALL`] bytes.
    Small,
    /// One message of at most [`MAX_MESSAGE`] bytes.
    Large,
    /// Messages of at most [`PART`] bytes, without end.
    Parts,
}

use Request::{Large, Parts, Small};

/// The methods whose requests are not small.
const NOT_SMALL: &[(&str, Request)] = &[
    ("/machine.MachineService/ApplyConfiguration", Large),
    ("/machine.MachineService/MetaWrite", Large),
    ("/machine.MachineService/EtcdRecover", Parts),
    ("/machine.ImageService/Import", Parts),
    ("/machine.DebugService/ContainerRun", Parts),
];

impl Request {
    /// That of the method at `path`.
    #[must_use]
    pub fn of(path: &str) -> Request {
        let listed = NOT_SMALL.iter().find(|(known, _)| *known == path);
        listed.map_or(Small, |(_, request)| *request)
    }

    /// How many bytes it has at most, its frame's head included; `None`: without end.
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
