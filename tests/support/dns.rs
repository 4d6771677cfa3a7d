//! A client of name servers that answer over TCP.

use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::time::Duration;

use hickory_resolver::proto::op::{Message, Query};
use hickory_resolver::proto::rr::{Name, RData, RecordType};

/// Timeout of an answer over the network.
const ANSWER: Duration = Duration::from_secs(10);

/// The address that the name server at the other end has for a name (RFC 1035, section 4.2.2).
///
/// # Errors
/// The connection fails, or the answer has no address.
///
/// # Panics
/// The name is no domain name.
pub fn resolve(mut stream: TcpStream, name: &str) -> Result<Ipv4Addr, String> {
    let failed = |error: io::Error| format!("{name}: {error}");
    let mut query = Message::query();
    query.metadata.recursion_desired = true;
    let name_of_query = Name::from_ascii(name).expect("a name");
    query.add_query(Query::query(name_of_query, RecordType::A));
    let query = query.to_vec().expect("a message");
    stream.set_read_timeout(Some(ANSWER)).map_err(failed)?;
    let length = u16::try_from(query.len()).expect("a short message");
    let bytes = [&length.to_be_bytes()[..], &query].concat();
    stream.write_all(&bytes).map_err(failed)?;
    let mut length = [0; 2];
    stream.read_exact(&mut length).map_err(failed)?;
    let mut answer = vec![0; u16::from_be_bytes(length).into()];
    stream.read_exact(&mut answer).map_err(failed)?;
    let answer = Message::from_vec(&answer).map_err(|error| error.to_string())?;
    let mut addresses = answer
        .answers
        .iter()
        .filter_map(|record| match &record.data {
            RData::A(address) => Some(address.0),
            _ => None,
        });
    addresses.next_back().ok_or_else(|| format!("{answer:?}"))
}
