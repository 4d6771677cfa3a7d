//! A metadata service of a cloud, as a server on this machine.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddrV4, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use qemu::{Machine, Service};

/// The guest's network, which holds the addresses of the metadata services. Its first lease is
/// 168.0.2.15, and this host is 168.0.2.2.
pub const NETWORK: &str = "168.0.0.0/7";

/// Size limit of a request's body in bytes.
const LONGEST: u64 = 1 << 20;

/// The answers of a service.
#[derive(Debug, Clone, Default)]
pub struct Script {
    answers: Vec<(String, Vec<u8>)>,
    header: Option<(String, String)>,
    failures: usize,
}

impl Script {
    /// A service that answers every request with 404.
    #[must_use]
    pub fn new() -> Script {
        Script::default()
    }

    /// Adds the answer to a request, such as `GET /latest/user-data`.
    #[must_use]
    pub fn answer(mut self, request: &str, body: impl Into<Vec<u8>>) -> Script {
        self.answers.push((request.to_owned(), body.into()));
        self
    }

    /// Requires a header of each `GET`; without it the answer is 401.
    #[must_use]
    pub fn needs(mut self, name: &str, value: &str) -> Script {
        self.header = Some((name.to_owned(), value.to_owned()));
        self
    }

    /// Answers the first requests with 503.
    #[must_use]
    pub fn failing(mut self, first: usize) -> Script {
        self.failures = first;
        self
    }

    /// Serves until the test ends.
    ///
    /// # Panics
    /// No port is free.
    #[must_use]
    pub fn serve(self) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("its address").port();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let requests = Arc::clone(&asked);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                // A client may end a connection early; it then asks again.
                let _ended = self.exchange(stream, &requests);
            }
        });
        Server { port, asked }
    }

    fn exchange(&self, mut stream: TcpStream, asked: &Mutex<Vec<String>>) -> std::io::Result<()> {
        let mut reader = BufReader::new(stream.try_clone()?);
        let mut lines = Vec::new();
        loop {
            let mut line = String::new();
            reader.read_line(&mut line)?;
            match line.trim_end() {
                "" => break,
                line => lines.push(line.to_owned()),
            }
        }
        let value = |name: &str| {
            let fields = lines.iter().filter_map(|line| line.split_once(':'));
            let mut found = fields.filter(|(other, _)| other.eq_ignore_ascii_case(name));
            found.next().map(|(_, value)| value.trim())
        };
        // With an unread body, the answer would end in a reset of the connection.
        let length = value("content-length").and_then(|length| length.parse().ok());
        let mut body = Vec::new();
        reader
            .take(LONGEST.min(length.unwrap_or(0)))
            .read_to_end(&mut body)?;
        let line = lines.first().map_or("", |line| line.as_str());
        let request = line.trim_end_matches(" HTTP/1.1").to_owned();
        let is_known = self
            .header
            .as_ref()
            .is_none_or(|(name, expected)| value(name) == Some(expected));
        let number = {
            let mut asked = asked.lock().unwrap_or_else(PoisonError::into_inner);
            asked.push(request.clone());
            asked.len()
        };
        let mut answers = self.answers.iter();
        let (status, answer) = match answers.find(|(known, _)| *known == request) {
            _ if number <= self.failures => ("503 Service Unavailable", &[] as &[u8]),
            _ if request.starts_with("GET ") && !is_known => ("401 Unauthorized", &[] as &[u8]),
            Some((_, body)) => ("200 OK", body.as_slice()),
            None => ("404 Not Found", &[] as &[u8]),
        };
        let length = answer.len();
        let head =
            format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n");
        stream.write_all(&[head.as_bytes(), answer].concat())
    }
}

/// A running service.
#[derive(Debug)]
pub struct Server {
    port: u16,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Server {
    /// Port on this host.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The requests so far, such as `GET /latest/user-data`.
    #[must_use]
    pub fn asked(&self) -> Vec<String> {
        let asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        asked.clone()
    }

    /// Gives the service an address in the network of a machine.
    ///
    /// # Panics
    /// The address is none with a port.
    pub fn at(&self, address: &str, machine: Machine) -> Machine {
        let guest: SocketAddrV4 = address.parse().expect("an address with a port");
        let service = Service {
            guest,
            local: self.port,
        };
        machine.subnet(NETWORK).service(service)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(server: &Server, text: &str) -> String {
        let mut stream = TcpStream::connect(("127.0.0.1", server.port())).expect("a connection");
        stream.write_all(text.as_bytes()).expect("a request");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        answer
    }

    #[test]
    fn service_answers_known_requests_with_the_header_after_its_failures() {
        let server = Script::new()
            .answer("GET /a", "first")
            .answer("POST /b", "second")
            .needs("Metadata", "true")
            .failing(1)
            .serve();
        for (request, expected) in [
            ("GET /a HTTP/1.1\r\nmetadata: true\r\n\r\n", "503"),
            ("GET /a HTTP/1.1\r\nmetadata: true\r\n\r\n", "first"),
            ("GET /a HTTP/1.1\r\n\r\n", "401"),
            ("GET /c HTTP/1.1\r\nMetadata: true\r\n\r\n", "404"),
            ("POST /b HTTP/1.1\r\ncontent-length: 2\r\n\r\nok", "second"),
        ] {
            let answer = ask(&server, request);
            assert!(answer.contains(expected), "{request}: {answer}");
        }
        assert_eq!(server.asked().len(), 5);
        assert_eq!(server.asked()[4], "POST /b");
    }
}
