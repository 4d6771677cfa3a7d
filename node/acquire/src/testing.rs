//! A small web server for tests.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};

/// A server that gives its answers in order, one a connection, and then hangs up.
pub(crate) struct Scripted {
    /// Address with `http://`.
    pub origin: String,
    requests: Receiver<String>,
}

impl Scripted {
    /// Starts it. An answer is a status with its headers, and a body.
    pub fn new(answers: &[(&str, &str)]) -> Scripted {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let origin = format!("http://{}", listener.local_addr().unwrap());
        let (sender, requests) = channel();
        let answers: Vec<String> = answers
            .iter()
            .map(|(head, body)| {
                let length = body.len();
                format!(
                    "HTTP/1.1 {head}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
                )
            })
            .collect();
        std::thread::spawn(move || {
            for answer in answers {
                let (mut stream, _) = listener.accept().unwrap();
                sender.send(request(&stream)).unwrap();
                // A client may refuse a large answer before its end.
                let _ended = stream.write_all(answer.as_bytes());
            }
        });
        Scripted { origin, requests }
    }

    /// The next request: its head in lower case up to the body, then the body.
    pub fn asked(&self) -> String {
        self.requests.recv().unwrap()
    }
}

fn request(stream: &TcpStream) -> String {
    let mut reader = BufReader::new(stream);
    let (mut head, mut length) = (String::new(), 0);
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        if line.trim().is_empty() {
            break;
        }
        if let Some((_, value)) = line.to_lowercase().split_once("content-length:") {
            length = value.trim().parse().unwrap();
        }
        head.push_str(&line);
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    format!("{head}\r\n{}", String::from_utf8(body).unwrap())
}
