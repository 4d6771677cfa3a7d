use proptest::prelude::{any, prop_assert, proptest};

use super::*;
use crate::testing::Scripted;

const CONFIG: &str = "https://u:p@boot.example:8443/c?uuid=";

fn client(parameters: &str) -> Result<Option<OAuth>, String> {
    OAuth::read(&Cmdline::parse(parameters), CONFIG)
}

fn posted(status: u16, body: &str) -> Posted {
    Posted {
        status,
        body: body.into(),
    }
}

#[test]
fn authorization_server_is_read_from_the_parameters() {
    assert_eq!(client("quiet").unwrap(), None);
    let least = client("talos.config.oauth.client_id=me").unwrap().unwrap();
    assert_eq!(
        least.device_auth_url,
        "https://u:p@boot.example:8443/device/code"
    );
    assert_eq!(least.token_url, "https://u:p@boot.example:8443/token");
    let whole = client(
        "corten.config.oauth.client_id=me corten.config.oauth.client_secret=S corten.config.oauth.audience=a \
         corten.config.oauth.scope=one talos.config.oauth.scope=two corten.config.oauth.extra_variable=uuid \
         corten.config.oauth.extra_variable=code corten.config.oauth.device_auth_url=https://id.example/d \
         corten.config.oauth.token_url=http://id.example/t",
    );
    let expected = OAuth {
        client_id: "me".to_owned(),
        client_secret: Secret::new("S"),
        audience: "a".to_owned(),
        scope: "one two".to_owned(),
        variables: vec!["uuid".to_owned(), "code".to_owned()],
        device_auth_url: "https://id.example/d".to_owned(),
        token_url: "http://id.example/t".to_owned(),
    };
    assert_eq!(whole.unwrap(), Some(expected));
}

#[test]
fn wrong_authorization_parameters_are_named_without_their_value() {
    for (parameters, expected) in [
        (
            "corten.config.oauth.client_secret=S3CRET",
            "corten.config.oauth.client_secret has no effect without corten.config.oauth.client_id",
        ),
        (
            "corten.config.oauth.client_id=me corten.config.oauth.extra_variable=S3CRET",
            "corten.config.oauth.extra_variable must be one of uuid, serial, mac, hostname, code",
        ),
        (
            "corten.config.oauth.client_id=me corten.config.oauth.token_url=id.example?S3CRET",
            "corten.config.oauth.token_url must be an http:// or https:// URL",
        ),
    ] {
        let told = client(parameters).unwrap_err();
        assert!(told.starts_with(expected), "{told}");
        assert!(!told.contains("S3CRET"), "{told}");
    }
}

#[test]
fn requests_have_the_fields_of_the_device_flow() {
    let device = r#"{"device_code":"D/1","user_code":"WDJB-MJHT","verification_uri":"https://id.example/device",
        "verification_uri_complete":"https://id.example/device?c=WDJB-MJHT","expires_in":"1800","interval":7}"#;
    let server = Scripted::new(&[
        ("200 OK", device),
        ("200 OK", r#"{"access_token":"T.1","token_type":"bearer"}"#),
    ]);
    let parameters = "corten.config.oauth.client_id=me corten.config.oauth.client_secret=S \
                      corten.config.oauth.audience=a corten.config.oauth.scope=one corten.config.oauth.scope=two \
                      corten.config.oauth.extra_variable=serial";
    let config = format!("{}/c", server.origin);
    let client = OAuth::read(&Cmdline::parse(parameters), &config);
    let client = client.unwrap().unwrap();
    let facts = Facts {
        serial: "A B".to_owned(),
        ..Facts::default()
    };
    let grant = client.start(&facts).unwrap();
    let asked = server.asked();
    assert!(asked.starts_with("POST /device/code HTTP/1.1"), "{asked}");
    assert!(
        asked.ends_with("\r\nclient_id=me&client_secret=S&audience=a&serial=A+B&scope=one+two"),
        "{asked}"
    );
    let expected = Grant {
        device_code: Secret::new("D/1"),
        user_code: "WDJB-MJHT".to_owned(),
        page: "https://id.example/device".to_owned(),
        page_with_code: Some("https://id.example/device?c=WDJB-MJHT".to_owned()),
        interval: Duration::from_secs(7),
        lifetime: Duration::from_secs(1800),
    };
    assert_eq!(grant, expected);
    let answer = client.poll(&grant, &facts);
    assert_eq!(answer, Answer::Token(Secret::new("T.1")));
    let asked = server.asked();
    assert!(asked.starts_with("POST /token HTTP/1.1"), "{asked}");
    let grant_type = "grant_type=urn%3Aietf%3Aparams%3Aoauth%3Agrant-type%3Adevice_code";
    let expected = format!(
        "\r\nclient_id=me&client_secret=S&audience=a&serial=A+B&{grant_type}&device_code=D%2F1"
    );
    assert!(asked.ends_with(&expected), "{asked}");
}

#[test]
fn form_with_credentials_follows_no_redirect_and_takes_no_large_answer() {
    let large = format!("{{\"x\":\"{}\"}}", "a".repeat(65 << 10));
    let server = Scripted::new(&[
        (
            "307 Temporary Redirect\r\nlocation: http://127.0.0.1:1/SECRET",
            "",
        ),
        ("200 OK", &large),
    ]);
    let config = format!("{}/c?SECRET", server.origin);
    let client = OAuth::read(&Cmdline::parse("corten.config.oauth.client_id=me"), &config);
    let client = client.unwrap().unwrap();
    for expected in [
        "the answer is 307, a redirect",
        "the response body is larger",
    ] {
        let told = client.start(&Facts::default()).unwrap_err();
        assert!(told.contains(expected), "{told}");
        assert!(!told.contains("SECRET"), "{told}");
    }
}

const GRANT: &str =
    r#"{"device_code":"d","user_code":"u","verification_uri":"http://a/","interval":0}"#;

#[test]
fn times_of_a_grant_are_bounded() {
    for (more, interval, lifetime) in [
        ("", 5, 900),
        (r#","interval":0,"expires_in":0"#, 1, 1),
        (r#","interval":1e99,"expires_in":-1"#, 5, 900),
        (
            r#","interval":18446744073709551615,"expires_in":"18446744073709551615""#,
            300,
            86400,
        ),
    ] {
        let body = GRANT.replace(r#","interval":0"#, more);
        let found = grant(&posted(200, &body)).unwrap();
        let times = (found.interval.as_secs(), found.lifetime.as_secs());
        assert_eq!(times, (interval, lifetime), "{body}");
    }
}

#[test]
fn unusable_answers_are_named_by_field_and_never_quoted() {
    for (status, body, expected) in [
        (200, "SECRET", "the answer is not JSON"),
        (200, "[]", "device_code must be"),
        (
            200,
            &*GRANT.replace("\"u\"", "\"\\u001b[2JSECRET\""),
            "user_code must be",
        ),
        (
            200,
            &*GRANT.replace("http://a/", "javascript:SECRET"),
            "verification_uri must be",
        ),
        (
            200,
            &*GRANT.replace("http://a/", "http://a/\\nSECRET"),
            "verification_uri must be",
        ),
        (
            400,
            r#"{"error":"invalid_client","error_description":"SECRET"}"#,
            "the answer is 400 with the error invalid_client",
        ),
        (
            401,
            r#"{"error":"SECRET"}"#,
            "the answer is 401 with the error an unknown code",
        ),
        (503, "SECRET", "the answer is 503"),
    ] {
        let told = grant(&posted(status, body)).unwrap_err();
        assert!(told.contains(expected), "{told}");
        assert!(!told.contains("SECRET"), "{told}");
    }
    let odd = GRANT.replace('}', r#","verification_uri_complete":"http://a/ \n"}"#);
    assert_eq!(grant(&posted(200, &odd)).unwrap().page_with_code, None);
}

#[test]
fn answers_of_the_token_endpoint_continue_slow_down_or_end_the_flow() {
    let error = |code: &str| format!("{{\"error\":\"{code}\"}}");
    for (status, body, expected) in [
        (400, error("authorization_pending"), "Pending"),
        (428, error("authorization_pending"), "Pending"),
        // Some servers answer 200 to everything.
        (200, error("authorization_pending"), "Pending"),
        (400, error("slow_down"), "SlowDown"),
        (400, error("access_denied"), "Refused"),
        (200, error("access_denied"), "Refused"),
        (400, error("expired_token"), "Refused"),
        (302, String::new(), "Refused"),
        (404, String::new(), "Refused"),
        (503, error("temporarily_unavailable"), "Unreachable"),
        (429, String::new(), "Unreachable"),
        (200, "SECRET".to_owned(), "Refused"),
        (200, r#"{"access_token":"SECRET\n"}"#.to_owned(), "Refused"),
        (
            200,
            r#"{"access_token":"SECRET","token_type":"mac"}"#.to_owned(),
            "Refused",
        ),
        (200, r#"{"access_token":"SECRET"}"#.to_owned(), "Token"),
    ] {
        let found = format!("{:?}", answer(&posted(status, &body)));
        assert!(found.starts_with(expected), "{status} {body}: {found}");
        assert!(!found.contains("SECRET"), "{found}");
    }
}

proptest! {
    #[test]
    fn hostile_answers_put_only_printable_text_on_the_console(
        status in any::<u16>(), code in any::<String>(), page in any::<String>(), body in any::<Vec<u8>>(),
    ) {
        let value = serde_json::json!({
            "device_code": "d", "user_code": code, "verification_uri": format!("https://{page}"),
        });
        let whole = serde_json::to_vec(&value).unwrap();
        for body in [body, whole] {
            let posted = Posted { status, body };
            let shown = match grant(&posted) {
                Ok(grant) => format!("{} {}", grant.user_code, grant.page),
                Err(why) => why,
            };
            prop_assert!(shown.bytes().all(|byte| byte.is_ascii_graphic() || byte == b' '), "{shown}");
            if let Answer::Refused(why) | Answer::Unreachable(why) = answer(&posted) {
                prop_assert!(why.is_ascii());
            }
        }
    }
}
