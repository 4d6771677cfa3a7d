//! The handshake in front of the messages (D-Bus specification, "Authentication Protocol"), the server's side, with the
//! mechanism EXTERNAL alone.

/// Progress of a handshake.
#[derive(Debug, Default)]
pub(crate) struct Auth {
    stage: Stage,
    /// Whether the client accepts descriptors.
    pub(crate) passes_descriptors: bool,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Stage {
    #[default]
    Asked,
    /// The client owes the name of its user.
    Challenged,
    Accepted,
}

/// Answer to a line of the client.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// A line, without its end.
    Line(String),
    /// The messages begin; there is no answer.
    Begin,
    /// The connection must end.
    Refused,
}

impl Auth {
    /// Answers a line. The kernel has named the client's user already, so the client's own claim changes nothing.
    pub(crate) fn answer(&mut self, line: &str, guid: &str) -> Answer {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let accepted = || Answer::Line(format!("OK {guid}"));
        let (stage, answer) = match (self.stage, words.as_slice()) {
            (Stage::Asked, ["AUTH", "EXTERNAL"]) => {
                (Stage::Challenged, Answer::Line("DATA".to_owned()))
            }
            (Stage::Asked, ["AUTH", "EXTERNAL", _]) | (Stage::Challenged, ["DATA", ..]) => {
                (Stage::Accepted, accepted())
            }
            (Stage::Asked, ["AUTH", ..]) | (_, ["CANCEL"]) => {
                (Stage::Asked, Answer::Line("REJECTED EXTERNAL".to_owned()))
            }
            (Stage::Accepted, ["NEGOTIATE_UNIX_FD"]) => {
                self.passes_descriptors = true;
                (Stage::Accepted, Answer::Line("AGREE_UNIX_FD".to_owned()))
            }
            (Stage::Accepted, ["BEGIN"]) => (Stage::Accepted, Answer::Begin),
            (stage, ["BEGIN"]) => (stage, Answer::Refused),
            (stage, _) => (stage, Answer::Line("ERROR".to_owned())),
        };
        self.stage = stage;
        answer
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::proptest;

    use super::*;

    fn handshake(lines: &[&str]) -> (Auth, Vec<String>) {
        let mut auth = Auth::default();
        let answers = lines.iter().map(|line| match auth.answer(line, "7f") {
            Answer::Line(line) => line,
            other => format!("{other:?}"),
        });
        let answers = answers.collect();
        (auth, answers)
    }

    #[test]
    fn client_may_name_its_user_at_once_or_when_asked() {
        let ends = ["NEGOTIATE_UNIX_FD", "BEGIN"];
        let agreed = ["OK 7f", "AGREE_UNIX_FD", "Begin"];
        for (begins, answered) in [
            // godbus 5.1 and older, of which the first line asks for the mechanisms.
            (
                &["AUTH", "AUTH EXTERNAL 30"][..],
                &["REJECTED EXTERNAL"][..],
            ),
            // godbus 5.2 and newer.
            (
                &["AUTH", "AUTH EXTERNAL", "DATA"],
                &["REJECTED EXTERNAL", "DATA"],
            ),
            (
                &["AUTH ANONYMOUS 6d", "AUTH EXTERNAL 30"],
                &["REJECTED EXTERNAL"],
            ),
        ] {
            let (auth, answers) = handshake(&[begins, &ends].concat());
            assert_eq!(answers, [answered, &agreed].concat());
            assert!(auth.passes_descriptors);
        }
    }

    #[test]
    fn messages_begin_only_after_the_client_is_accepted() {
        for lines in [
            &["BEGIN"][..],
            &["AUTH", "BEGIN"],
            &["AUTH EXTERNAL", "BEGIN"],
        ] {
            let (_, answers) = handshake(lines);
            assert_eq!(answers.last().map(String::as_str), Some("Refused"));
        }
        let early = [
            "NEGOTIATE_UNIX_FD",
            "DATA",
            "AUTH EXTERNAL",
            "AUTH EXTERNAL",
        ];
        let (auth, answers) = handshake(&early);
        assert_eq!(answers, ["ERROR", "ERROR", "DATA", "ERROR"]);
        assert!(!auth.passes_descriptors);
    }

    proptest! {
        #[test]
        fn hostile_lines_without_a_mechanism_never_begin(line in "(AUTH|DATA|BEGIN|[A-Z_]{0,8})( (EXTERNAL|[^\r\n]{0,10})){0,2}") {
            let mut auth = Auth::default();
            for line in [line.as_str(), "NEGOTIATE_UNIX_FD", "BEGIN"] {
                let answer = auth.answer(line, "7f");
                let may = auth.stage == Stage::Accepted;
                assert!(answer != Answer::Begin || may);
            }
            assert_eq!(auth.stage == Stage::Accepted, line.split_ascii_whitespace().take(2).eq(["AUTH", "EXTERNAL"]) && line.split_ascii_whitespace().count() == 3);
        }
    }
}
