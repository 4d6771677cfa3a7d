use corten_corpus::{hostile, sample, samples};
use corten_types::network_names::{ClientIdentifier, Dhcp};
use proptest::prelude::{prop_assert, proptest};

use super::*;

const MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
const SERVER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const OWN: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 50);

fn identity() -> Identity {
    Identity::new(&Asking::default(), MAC)
}

fn read(bytes: &[u8]) -> Option<Answer> {
    Answer::read(bytes, &identity())
}

/// An acknowledgement with these options behind those that every answer has.
fn ack(options: &[&[u8]]) -> Vec<u8> {
    let mut bytes = sample("dhcpv4", "ack");
    bytes.truncate(240);
    bytes.extend_from_slice(&[53, 1, 5, 54, 4, 10, 0, 0, 1]);
    bytes.extend(options.concat());
    bytes
}

fn lease(options: &[&[u8]]) -> Lease {
    read(&ack(options)).unwrap().lease
}

fn route(network: &str, router: [u8; 4]) -> (Prefix, Ipv4Addr) {
    let (address, length) = network.split_once('/').unwrap();
    let network = Prefix {
        address: address.parse().unwrap(),
        length: length.parse().unwrap(),
    };
    (network, router.into())
}

#[test]
fn every_requested_option_of_an_answer_is_read() {
    let answer = read(&sample("dhcpv4", "offer")).unwrap();
    assert_eq!((answer.kind, answer.xid), (Kind::Offer, 0x1122_3344));
    let answer = read(&sample("dhcpv4", "ack")).unwrap();
    assert_eq!((answer.kind, answer.is_rapid), (Kind::Ack, false));
    let wanted = Lease {
        mask: Some(Ipv4Addr::new(255, 255, 255, 0)),
        routers: vec![SERVER],
        routes: Some(vec![
            route("10.9.0.0/16", [10, 0, 0, 2]),
            route("0.0.0.0/0", [10, 0, 0, 1]),
        ]),
        name_servers: vec![Ipv4Addr::new(10, 0, 0, 3), Ipv4Addr::new(10, 0, 0, 4)],
        time_servers: vec![Ipv4Addr::new(10, 0, 0, 9)],
        hostname: Some("n1".to_owned()),
        domain: Some("example.com".to_owned()),
        search: vec!["nodes.example.com".to_owned(), "example.com".to_owned()],
        mtu: Some(1400),
        time: Some(3600),
        renew: Some(1800),
        rebind: Some(3150),
        ..Lease::new(OWN, SERVER)
    };
    assert_eq!(answer.lease, wanted);
    let refusal = read(&sample("dhcpv4", "nak")).unwrap();
    assert_eq!((refusal.kind, refusal.lease.server), (Kind::Nak, SERVER));
}

#[test]
fn answers_to_other_clients_are_ignored() {
    let whole = sample("dhcpv4", "ack");
    let other = |mac, client: Option<&[u8]>| Identity {
        mac,
        client: client.map(<[u8]>::to_owned),
    };
    assert_eq!(Answer::read(&whole, &other([2, 0, 0, 0, 0, 2], None)), None);
    let echoed = ack(&[&[61, 3, 1, 2, 3]]);
    assert!(Answer::read(&echoed, &other(MAC, Some(&[1, 2, 3]))).is_some());
    assert!(Answer::read(&echoed, &other(MAC, None)).is_some());
    assert_eq!(read(&echoed), None);
    for (at, byte) in [(0, 1), (2, 255), (2, 5), (236, 0)] {
        let mut broken = whole.clone();
        broken[at] = byte;
        assert_eq!(read(&broken), None, "{at}");
    }
    let anonymous = |server: &[u8]| {
        let mut bytes = ack(&[]);
        bytes.truncate(243);
        bytes.extend_from_slice(server);
        read(&bytes)
    };
    assert_eq!(anonymous(&[]), None);
    assert_eq!(anonymous(&[54, 4, 0, 0, 0, 0]), None);
    assert_eq!(anonymous(&[54, 3, 10, 0, 0]), None);
    assert!(anonymous(&[54, 4, 10, 0, 0, 1]).is_some());
}

#[test]
fn unreadable_options_cost_no_other_option() {
    let found = lease(&[
        &[12, 2, 0xff, 0xfe],
        &[
            151, 0, 81, 1, 0, 26, 1, 5, 51, 3, 0, 0, 1, 6, 5, 10, 0, 0, 3, 9,
        ],
        &[15, 4, b'a', b'.', b'b', 0],
        &[58, 4, 0, 0, 0, 9],
        &[3, 200, 1],
    ]);
    assert_eq!(
        (found.hostname, found.domain.as_deref()),
        (None, Some("a.b"))
    );
    assert_eq!((found.mtu, found.time, found.renew), (None, None, Some(9)));
    assert_eq!(found.name_servers, [Ipv4Addr::new(10, 0, 0, 3)]);
    assert!(found.routers.is_empty());
}

#[test]
fn options_are_found_in_other_fields_and_in_parts() {
    let mut bytes = ack(&[&[
        52, 1, 3, 6, 4, 10, 0, 0, 3, 15, 2, b'a', b'.', 6, 4, 10, 0, 0, 4, 255,
    ]]);
    bytes[108..115].copy_from_slice(&[15, 1, b'b', 26, 2, 5, 120]);
    bytes[44..50].copy_from_slice(&[12, 2, b'n', b'1', 255, 12]);
    let found = read(&bytes).unwrap().lease;
    assert_eq!(
        found.name_servers,
        [Ipv4Addr::new(10, 0, 0, 3), Ipv4Addr::new(10, 0, 0, 4)]
    );
    assert_eq!(
        (found.domain.as_deref(), found.mtu),
        (Some("a.b"), Some(1400))
    );
    assert_eq!(found.hostname.as_deref(), Some("n1"));
}

#[test]
fn classless_routes_of_both_codes_and_classful_routes_are_read() {
    let new: &[u8] = &[121, 8, 24, 192, 168, 7, 10, 0, 0, 2];
    let old: &[u8] = &[249, 7, 16, 10, 9, 10, 0, 0, 3];
    let by_old = Some(vec![route("10.9.0.0/16", [10, 0, 0, 3])]);
    assert_eq!(
        lease(&[old, new]).routes,
        Some(vec![route("192.168.7.0/24", [10, 0, 0, 2])])
    );
    assert_eq!(lease(&[old]).routes, by_old);
    // Malformed routes do not displace the others.
    for broken in [
        &[121, 0][..],
        &[121, 1, 0],
        &[121, 10, 40, 10, 9, 0, 0, 1, 10, 0, 0, 2],
    ] {
        assert_eq!(lease(&[broken]).routes, None);
        assert_eq!(lease(&[broken, old]).routes, by_old);
    }
    let found = lease(&[
        &[33, 40, 10, 0, 0, 0, 10, 0, 0, 2, 172, 16, 0, 0, 10, 0, 0, 2],
        &[
            192, 168, 7, 9, 10, 0, 0, 2, 0, 0, 0, 0, 10, 0, 0, 2, 192, 168, 7, 0, 0, 0, 0, 0,
        ],
    ]);
    let by = [10, 0, 0, 2];
    let wanted = [
        route("10.0.0.0/8", by),
        route("172.16.0.0/16", by),
        route("192.168.7.9/32", by),
    ];
    assert_eq!(found.old_routes, wanted);
}

#[test]
fn requests_name_the_client_as_the_config_says() {
    let asking = |client_identifier| Asking {
        duid: vec![0, 4, 7],
        iaid: 0x0102_0304,
        dhcp: Dhcp {
            client_identifier: ClientIdentifier {
                client_identifier,
                duid: String::new(),
            },
            ..Dhcp::default()
        },
        ..Asking::default()
    };
    let client = |kind| Identity::new(&asking(kind), MAC).client;
    assert_eq!(client("none"), None);
    assert_eq!(client("mac"), Some(vec![1, 2, 0, 0, 0, 0, 1]));
    assert_eq!(client("duid"), Some(vec![255, 1, 2, 3, 4, 0, 4, 7]));
}

#[test]
fn requests_have_the_form_of_the_rfc() {
    let question = Question {
        seconds: 7,
        requested: Some(OWN),
        ..Question::new(MessageType::Discover, 0x1122_3344)
    };
    let bytes = question.clone().bytes(&identity());
    assert_eq!(
        bytes[..12],
        [1, 1, 6, 0, 0x11, 0x22, 0x33, 0x44, 0, 7, 0, 0]
    );
    assert_eq!((&bytes[28..34], bytes.len()), (&MAC[..], MIN_PACKET_SIZE));
    let options = |bytes: &[u8]| Options::of(&Borrowed::new(bytes).unwrap(), bytes);
    let found = options(&bytes);
    assert_eq!(found.get(OptionCode::MessageType), [1]);
    assert_eq!(
        found.get(OptionCode::ClientIdentifier),
        [1, 2, 0, 0, 0, 0, 1]
    );
    assert_eq!(found.address(OptionCode::RequestedIpAddress), Some(OWN));
    assert!(found.0.contains_key(&80) && !found.0.contains_key(&54));
    assert!(!found.0.contains_key(&12));
    let named = Question {
        name: Some("n1".to_owned()),
        ..question.clone()
    };
    let found_name = options(&named.bytes(&identity()));
    assert_eq!(found_name.get(OptionCode::Hostname), b"n1");
    let wanted = found.get(OptionCode::ParameterRequestList);
    for code in [1, 3, 6, 12, 15, 26, 33, 42, 51, 58, 59, 119, 121, 249] {
        assert!(wanted.contains(&code), "{code}");
    }
    let place = |code| wanted.iter().position(|found| *found == code);
    assert!(place(121) < place(3));
    let decline = Question {
        kind: MessageType::Decline,
        server: Some(SERVER),
        ..question
    };
    let found = options(&decline.bytes(&identity())).0;
    assert_eq!(found.into_keys().collect::<Vec<_>>(), [50, 53, 54, 61]);
}

#[test]
fn every_sample_is_an_answer() {
    for sample in samples("dhcpv4") {
        assert!(read(&sample.bytes).is_some(), "{}", sample.name);
    }
}

proptest! {
    #[test]
    fn hostile_messages_are_for_this_client_or_ignored(bytes in hostile("dhcpv4"), cut in 0_usize..400) {
        if let Some(answer) = read(&bytes) {
            prop_assert!(bytes[28..].starts_with(&MAC));
            prop_assert!(is_of_one(answer.lease.server.into()));
            let routes = answer.lease.routes.into_iter().flatten().chain(answer.lease.old_routes);
            for (network, _) in routes {
                prop_assert!(network.length <= 32);
            }
        }
        read(bytes.get(..cut).unwrap_or_default());
    }
}
