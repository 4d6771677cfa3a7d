//! Chooses the servers to trust: a majority whose time intervals overlap (RFC 5905, section 11.2.1, without the
//! clustering for permanent clients).

use super::ask::Answer;
use super::sntp::Sample;

/// Margin added to a server's error, in nanoseconds. It covers asymmetric routes and the different ways to smear leap
/// seconds. Two margins are the smallest step.
const LEEWAY: i64 = 200_000_000;
/// Upper limit of a server's error in nanoseconds (RFC 5905: MAXDIST). A larger error would agree with any time.
const MOST: i64 = 1_000_000_000;

/// An answer and its server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Voice {
    /// Name of the server in the config.
    pub name: String,
    /// Answer of the server.
    pub answer: Answer,
}

/// Result of combining the answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// No server answered.
    Silence,
    /// One server answered, possibly under several names.
    Alone(Voice),
    /// More than half of the servers agree, and at least two.
    Agreed {
        /// The agreeing server with the smallest error.
        best: Voice,
        /// The other servers that agree.
        others: Vec<Voice>,
        /// The servers that disagree.
        against: Vec<Voice>,
    },
    /// No majority agrees.
    Divided(Vec<Voice>),
}

/// Combines the answers; only the first answer of each address counts.
#[must_use]
pub fn hear(voices: &[Voice]) -> Verdict {
    let voices = distinct(voices);
    let [first, rest @ ..] = voices.as_slice() else {
        return Verdict::Silence;
    };
    if rest.is_empty() {
        return Verdict::Alone(first.clone());
    }
    let agreeing = largest(&voices);
    if agreeing.len() < 2 || agreeing.len() * 2 <= voices.len() {
        return Verdict::Divided(voices);
    }
    let against = voices
        .iter()
        .filter(|voice| !agreeing.contains(voice))
        .cloned();
    let against = against.collect();
    // Of equally good servers, the first in the config wins.
    let best = agreeing
        .iter()
        .min_by_key(|voice| error(voice.answer.sample));
    let Some(best) = best.cloned() else {
        return Verdict::Divided(voices);
    };
    let others = agreeing.into_iter().filter(|voice| *voice != best);
    Verdict::Agreed {
        others: others.collect(),
        best,
        against,
    }
}

/// Whether the majority is certain, no matter what the remaining servers answer. `asked` counts all servers.
#[must_use]
pub fn is_settled(voices: &[Voice], asked: usize) -> bool {
    let agreeing = largest(&distinct(voices)).len();
    agreeing >= 2 && agreeing * 2 > asked
}

fn distinct(voices: &[Voice]) -> Vec<Voice> {
    let mut found: Vec<Voice> = Vec::new();
    for voice in voices {
        let is_same = |other: &Voice| match (voice.answer.from, other.answer.from) {
            (None, None) => voice.name == other.name,
            (one, other) => one == other,
        };
        if !found.iter().any(is_same) {
            found.push(voice.clone());
        }
    }
    found
}

/// The largest group of servers whose intervals share a moment. The start of some interval is such a moment.
fn largest(voices: &[Voice]) -> Vec<Voice> {
    let at = |moment: i64| {
        let has = |voice: &&Voice| {
            let (from, to) = interval(voice.answer.sample);
            (from..=to).contains(&moment)
        };
        voices.iter().filter(has).cloned().collect::<Vec<Voice>>()
    };
    let mut found = Vec::new();
    for voice in voices {
        let here = at(interval(voice.answer.sample).0);
        if here.len() > found.len() {
            found = here;
        }
    }
    found
}

/// Error of a measurement in nanoseconds: half the round trip plus the root distance.
fn error(sample: Sample) -> i64 {
    (sample.delay / 2).saturating_add(sample.distance)
}

/// Interval of the possible correction, in nanoseconds.
fn interval(sample: Sample) -> (i64, i64) {
    let half = error(sample).clamp(0, MOST) + LEEWAY;
    (
        sample.offset.saturating_sub(half),
        sample.offset.saturating_add(half),
    )
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use proptest::prelude::{any, prop_assert, proptest};

    use super::*;

    const MILLISECOND: i64 = 1_000_000;

    /// A server at 192.0.2.`host` with this offset and delay in milliseconds.
    fn voice(host: u8, offset: i64, delay: i64) -> Voice {
        Voice {
            name: format!("server-{host}"),
            answer: Answer {
                sample: Sample {
                    offset: offset * MILLISECOND,
                    delay: delay * MILLISECOND,
                    distance: 0,
                },
                from: Some(IpAddr::V4(Ipv4Addr::new(192, 0, 2, host))),
            },
        }
    }

    fn names(voices: &[Voice]) -> Vec<&str> {
        voices.iter().map(|voice| &*voice.name).collect()
    }

    #[test]
    fn overlapping_majority_is_followed_and_a_falseticker_is_not() {
        let year = 365 * 24 * 3_600_000;
        let voices = [voice(1, year, 1), voice(2, 5, 40), voice(3, -5, 20)];
        let Verdict::Agreed {
            best,
            others,
            against,
        } = hear(&voices)
        else {
            panic!("{:?}", hear(&voices));
        };
        assert_eq!(best.name, "server-3");
        assert_eq!(names(&others), ["server-2"]);
        assert_eq!(names(&against), ["server-1"]);
    }

    #[test]
    fn single_server_and_two_contradicting_servers_do_not_agree() {
        assert_eq!(hear(&[]), Verdict::Silence);
        assert_eq!(hear(&[voice(1, 0, 1)]), Verdict::Alone(voice(1, 0, 1)));
        let two = [voice(1, 0, 1), voice(2, 10_000, 1)];
        assert_eq!(hear(&two), Verdict::Divided(two.to_vec()));
        // Two of four are no majority.
        let four = [two.to_vec(), vec![voice(3, 1, 1), voice(4, 50_000, 1)]].concat();
        assert!(matches!(hear(&four), Verdict::Divided(_)));
    }

    #[test]
    fn several_names_of_one_address_count_as_one_server() {
        let mut twin = voice(1, 3, 1);
        twin.name = "twin".to_owned();
        assert_eq!(
            hear(&[voice(1, 0, 1), twin.clone()]),
            Verdict::Alone(voice(1, 0, 1))
        );
        assert!(!is_settled(&[voice(1, 0, 1), twin], 2));
        // Devices have no address.
        let mut devices = [voice(1, 0, 0), voice(2, 0, 0)];
        for device in &mut devices {
            device.answer.from = None;
        }
        assert!(matches!(hear(&devices), Verdict::Agreed { .. }));
    }

    #[test]
    fn server_with_a_large_error_bound_confirms_no_other_server() {
        // This server admits an error of 16 s.
        let mut vague = voice(1, 0, 0);
        vague.answer.sample.distance = 16_000 * MILLISECOND;
        assert!(matches!(
            hear(&[vague.clone(), voice(2, 5_000, 1)]),
            Verdict::Divided(_)
        ));
        assert!(
            matches!(hear(&[vague, voice(2, 900, 1)]), Verdict::Agreed { best, .. } if best.name == "server-2")
        );
    }

    #[test]
    fn outstanding_answers_are_not_awaited_once_a_majority_agrees() {
        let two = [voice(1, 0, 1), voice(2, 1, 1)];
        assert!(is_settled(&two, 2) && is_settled(&two, 3));
        assert!(!is_settled(&two, 4) && !is_settled(&two[..1], 1));
    }

    proptest! {
        #[test]
        fn hostile_samples_never_make_a_minority_win(
            said in proptest::collection::vec((any::<i64>(), any::<i64>(), any::<i64>()), 0..12)
        ) {
            let voices: Vec<Voice> = (1..).zip(&said).map(|(host, (offset, delay, distance))| {
                let mut voice = voice(host, 0, 0);
                voice.answer.sample = Sample { offset: *offset, delay: *delay, distance: *distance };
                voice
            }).collect();
            if let Verdict::Agreed { others, against, .. } = hear(&voices) {
                prop_assert!(others.len() + 1 > against.len());
                prop_assert!(others.len() + 1 + against.len() == voices.len());
            }
        }
    }
}
