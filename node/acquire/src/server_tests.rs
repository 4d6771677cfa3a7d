use std::cell::{Cell, RefCell};

use corten_base::cmdline::Cmdline;

use super::*;
use crate::testing::Scripted;

const DEVICE: (&str, &str) = (
    "200 OK",
    r#"{"device_code":"D3VICE","user_code":"WDJB-MJHT","verification_uri":"https://id.example/device","expires_in":600}"#,
);
const PENDING: (&str, &str) = ("400 Bad Request", r#"{"error":"authorization_pending"}"#);
const TOKEN: (&str, &str) = (
    "200 OK",
    r#"{"access_token":"T0KEN","token_type":"Bearer"}"#,
);
const PARAMETERS: &str =
    "corten.config.oauth.client_id=me corten.config.oauth.client_secret=S3CRET";

fn asking(scripted: &Scripted, path: &str, parameters: &str) -> Server {
    let url = format!("{}{path}", scripted.origin);
    let oauth = OAuth::read(&Cmdline::parse(parameters), &url).unwrap();
    Server::new(&url, oauth)
}

/// Asks once; returns the result, the console's lines, and the time that it took.
async fn ask(server: &mut Server) -> (Result<Vec<u8>, String>, Vec<String>, Duration) {
    let said = RefCell::new(Vec::new());
    let begun = Instant::now();
    let say = |text: &str| said.borrow_mut().push(text.to_owned());
    let answer = server.ask_with(Facts::default, &say).await;
    let said = said.into_inner();
    for line in said.iter().chain(answer.as_ref().err()) {
        for secret in ["S3CRET", "D3VICE", "T0KEN"] {
            assert!(!line.contains(secret), "{line}");
        }
    }
    (answer, said, begun.elapsed())
}

#[tokio::test(start_paused = true)]
async fn config_is_fetched_with_the_token_that_a_person_grants() {
    let busy = ("503 Busy", "");
    let slow = ("400 Bad Request", r#"{"error":"slow_down"}"#);
    let scripted = Scripted::new(&[DEVICE, PENDING, slow, busy, TOKEN, ("200 OK", "config")]);
    let mut server = asking(&scripted, "/c", PARAMETERS);
    let (answer, said, took) = ask(&mut server).await;
    assert_eq!(answer.unwrap(), b"config");
    // Two polls after 5 s each, one after 10 s, one after twice that.
    assert_eq!(took.as_secs(), 5 + 5 + 10 + 20);
    assert_eq!(
        said.first().map(String::as_str),
        Some(
            "to let this machine get its config, visit https://id.example/device and enter the code WDJB-MJHT within 600 s"
        )
    );
    for _ in 0..5 {
        scripted.asked();
    }
    let fetch = scripted.asked().to_lowercase();
    assert!(fetch.contains("authorization: bearer t0ken"), "{fetch}");
}

#[tokio::test(start_paused = true)]
async fn unentered_code_expires_and_the_console_repeats_it_meanwhile() {
    let polls = [PENDING; 119];
    let scripted = Scripted::new(&[&[DEVICE][..], &polls].concat());
    let mut server = asking(&scripted, "/c", PARAMETERS);
    let (answer, said, took) = ask(&mut server).await;
    let why = answer.unwrap_err();
    assert_eq!(
        why,
        "the authorization failed: the code expired before a person entered it"
    );
    assert_eq!(took.as_secs(), 595);
    assert_eq!(said.len(), 10, "{said:?}");
}

#[tokio::test(start_paused = true)]
async fn denied_token_is_replaced_and_another_failure_keeps_it() {
    let scripted = Scripted::new(&[
        DEVICE,
        TOKEN,
        ("503 Busy", ""),
        ("401 Unauthorized", ""),
        DEVICE,
        ("400 Bad Request", r#"{"error":"access_denied"}"#),
        DEVICE,
        TOKEN,
        ("200 OK", "config"),
    ]);
    let mut server = asking(&scripted, "/c", PARAMETERS);
    for expected in ["503", "401", "access_denied"] {
        let (answer, _, _) = ask(&mut server).await;
        let why = answer.unwrap_err();
        assert!(why.contains(expected), "{why}");
    }
    let (answer, _, _) = ask(&mut server).await;
    assert_eq!(answer.unwrap(), b"config");
}

#[tokio::test(start_paused = true)]
async fn token_does_not_follow_a_redirect() {
    let other = Scripted::new(&[("200 OK", "config")]);
    let redirect = format!("302 Found\r\nlocation: {}/moved", other.origin);
    let scripted = Scripted::new(&[DEVICE, TOKEN, (&redirect, "")]);
    let mut server = asking(&scripted, "/c", PARAMETERS);
    let (answer, _, _) = ask(&mut server).await;
    assert_eq!(answer.unwrap(), b"config");
    let asked = other.asked();
    assert!(asked.starts_with("GET /moved"), "{asked}");
    assert!(!asked.contains("T0KEN"), "{asked}");
}

#[tokio::test(start_paused = true)]
async fn server_without_an_authorization_gets_no_token() {
    let scripted = Scripted::new(&[("200 OK", "config")]);
    let mut server = asking(&scripted, "/c", "");
    let (answer, said, took) = ask(&mut server).await;
    assert_eq!(answer.unwrap(), b"config");
    assert_eq!((said.len(), took), (0, Duration::ZERO));
    let asked = scripted.asked().to_lowercase();
    assert!(!asked.contains("authorization"), "{asked}");
}

#[tokio::test(start_paused = true)]
async fn facts_in_the_url_are_awaited_and_not_for_ever() {
    let scripted = Scripted::new(&[("200 OK", "config"), ("200 OK", "config")]);
    let said = RefCell::new(Vec::new());
    let say = |text: &str| said.borrow_mut().push(text.to_owned());
    let looks = Cell::new(0);
    let facts = || {
        looks.set(looks.get() + 1);
        let code = if looks.get() > 3 { "xyz" } else { "" };
        Facts {
            code: code.to_owned(),
            ..Facts::default()
        }
    };
    let mut server = asking(&scripted, "/c?u=${uuid}&c=${Code}", "");
    let begun = Instant::now();
    server.ask_with(facts, &say).await.unwrap();
    assert_eq!(begun.elapsed().as_secs(), 3);
    assert!(scripted.asked().starts_with("GET /c?u=&c=xyz "));
    assert_eq!(said.take(), ["waiting for code of this machine"]);
    let mut server = asking(&scripted, "/c?h=${hostname}", "");
    let begun = Instant::now();
    server.ask_with(Facts::default, &say).await.unwrap();
    assert_eq!(begun.elapsed(), FACTS_PATIENCE);
    assert!(scripted.asked().starts_with("GET /c?h= "));
    let expected = "asking for the machine config without hostname";
    assert_eq!(said.take().last().map(String::as_str), Some(expected));
}
