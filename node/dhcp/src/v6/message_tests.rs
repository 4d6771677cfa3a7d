use std::slice;

use corten_corpus::{hostile, sample};
use proptest::prelude::*;

use super::*;

/// DUIDs of the client and the server in the samples.
static DUID: [u8; 10] = [0, 3, 0, 1, 2, 0, 0, 0, 0, 1];
static SERVER: [u8; 14] = [0, 1, 0, 1, 0x2f, 0, 0, 0, 2, 0, 0, 0, 0, 9];

fn identity() -> Identity {
    Identity {
        duid: DUID.to_vec(),
        iaid: 1,
    }
}

fn read(bytes: &[u8]) -> Option<Answer> {
    Answer::read(bytes, &identity())
}

fn own() -> Ipv6Addr {
    "fd00::50".parse().unwrap()
}

#[test]
fn requests_name_machine_link_and_address() {
    let question = Question {
        kind: REQUEST,
        id: [0x11, 0x22, 0x33],
        server: Some(&SERVER),
        address: Some(own()),
        since: Duration::from_secs(2),
    };
    let message = question.bytes(&identity());
    assert_eq!(message[..4], [REQUEST, 0x11, 0x22, 0x33]);
    assert_eq!(value(&message[4..], CLIENT_ID), Some(&DUID[..]));
    assert_eq!(value(&message[4..], SERVER_ID), Some(&SERVER[..]));
    assert_eq!(value(&message[4..], ELAPSED_TIME), Some(&[0, 200][..]));
    assert_eq!(value(&message[4..], OPTION_REQUEST), Some(&WANTED[..]));
    let binding = value(&message[4..], IA_NA).unwrap();
    assert_eq!(binding[..12], [0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0]);
    let address = value(&binding[12..], IA_ADDRESS).unwrap();
    assert_eq!(address[..2], [0xfd, 0]);
    assert_eq!((address[15], address.len()), (0x50, 24));
    let anything = Question {
        server: None,
        address: None,
        since: Duration::from_secs(3600),
        ..question
    };
    let message = anything.bytes(&identity());
    assert_eq!(value(&message[4..], SERVER_ID), None);
    assert_eq!(value(&message[4..], ELAPSED_TIME), Some(&[255, 255][..]));
    assert_eq!(value(&message[4..], IA_NA).map(<[u8]>::len), Some(12));
}

#[test]
fn lease_is_read_with_all_its_settings() {
    let reply = sample("dhcpv6", "reply");
    let answer = read(&reply).unwrap();
    assert_eq!((answer.kind, answer.id), (REPLY, [0x11, 0x22, 0x33]));
    let wanted = Lease {
        address: own(),
        server: SERVER.to_vec(),
        renew: 1800,
        rebind: 2880,
        preferred: 3600,
        valid: 7200,
        name_servers: vec!["fd00::3".parse().unwrap(), "fd00::4".parse().unwrap()],
        search: vec!["example.com".to_owned()],
        time_servers: vec!["fd00::9".to_owned(), "time.example".to_owned()],
    };
    assert_eq!(answer.lease, Some(wanted));
    let offer = read(&sample("dhcpv6", "advertise")).unwrap();
    assert_eq!(
        (offer.kind, offer.lease.unwrap().address),
        (ADVERTISE, own())
    );
    let other = |duid: &[u8], iaid| {
        let duid = duid.to_vec();
        Answer::read(&reply, &Identity { duid, iaid })
    };
    assert_eq!(other(&SERVER, 1), None);
    assert_eq!(other(&DUID, 2).unwrap().lease, None);
    let mut request = reply.clone();
    request[0] = REQUEST;
    assert_eq!(read(&request), None);
}

/// A reply whose IA_NA holds the `inner` options.
fn reply(renew: u32, rebind: u32, inner: &[(u16, Vec<u8>)], outer: &[(u16, Vec<u8>)]) -> Vec<u8> {
    let mut message = vec![REPLY, 0x11, 0x22, 0x33];
    option(&mut message, CLIENT_ID, &DUID);
    option(&mut message, SERVER_ID, &SERVER);
    let mut binding: Vec<u8> = [1, renew, rebind]
        .into_iter()
        .flat_map(u32::to_be_bytes)
        .collect();
    for (code, value) in inner {
        option(&mut binding, *code, value);
    }
    option(&mut message, IA_NA, &binding);
    for (code, value) in outer {
        option(&mut message, *code, value);
    }
    message
}

fn given(address: &str, preferred: u32, valid: u32) -> (u16, Vec<u8>) {
    let address: Ipv6Addr = address.parse().unwrap();
    let times = [preferred, valid].into_iter().flat_map(u32::to_be_bytes);
    let value = address.octets().into_iter().chain(times).collect();
    (IA_ADDRESS, value)
}

#[test]
fn answer_without_a_usable_address_gives_no_lease() {
    let good = given("fd00::50", 60, 120);
    let one = slice::from_ref(&good);
    let no_addresses = (STATUS, vec![0, 2]);
    let read = |message: &[u8]| read(message).unwrap().lease.map(|lease| lease.address);
    assert_eq!(read(&reply(1, 2, one, &[])), Some(own()));
    let useless = [
        given("::", 60, 120),
        given("ff02::1", 60, 120),
        good.clone(),
    ];
    assert_eq!(read(&reply(0, 0, &useless, &[])), Some(own()));
    for message in [
        reply(1, 2, &[], &[]),
        reply(2, 1, one, &[]),
        reply(1, 2, &[given("fd00::50", 0, 0)], &[]),
        reply(1, 2, &[given("fd00::50", 121, 120)], &[]),
        reply(1, 2, &[good.clone(), no_addresses.clone()], &[]),
        reply(1, 2, one, &[no_addresses]),
        reply(1, 2, one, &[(STATUS, vec![0])]),
        sample("dhcpv6", "no-address"),
        sample("dhcpv6", "prefix"),
    ] {
        assert_eq!(read(&message), None, "{message:?}");
    }
}

#[test]
fn addresses_without_a_lifetime_are_withdrawn() {
    let both = [given("fd00::50", 0, 0), given("fd00::60", 60, 120)];
    let answer = read(&reply(1, 2, &both, &[])).unwrap();
    assert_eq!(answer.withdrawn, [own()]);
    assert_eq!(
        answer.lease.unwrap().address,
        "fd00::60".parse::<Ipv6Addr>().unwrap()
    );
}

proptest! {
    #[test]
    fn hostile_answers_give_a_valid_lease_or_none(bytes in hostile("dhcpv6")) {
        if let Some(answer) = read(&bytes) {
            prop_assert!((1..=LONGEST_DUID).contains(&answer.server.len()));
            if let Some(lease) = answer.lease {
                prop_assert!(is_of_one(lease.address.into()));
                prop_assert!((1..=lease.valid).contains(&lease.preferred));
                prop_assert!(lease.rebind == 0 || lease.renew <= lease.rebind);
            }
        }
    }
}
