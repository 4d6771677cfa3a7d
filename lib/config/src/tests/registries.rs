//! Settings of image registries: two forms, one result.

use corten_values::Secret;

use super::invalid::are_refused;
use super::{crt, doc, document, good, key, problems, with};
use crate::registries::rules::is_registry;
use crate::registries::{Mirror, RegistryAuth, RegistryMirrors, of_host};

const PEM: &str = "-----BEGIN CERTIFICATE-----\\nAAAA\\n-----END CERTIFICATE-----\\n";

fn old(registries: &str) -> String {
    good().replace("registries: {}", &format!("registries: {registries}"))
}

fn mirror(url: &str, override_path: bool) -> Mirror {
    Mirror {
        url: url.to_owned(),
        override_path,
    }
}

#[test]
fn fields_and_documents_give_one_view() {
    let text = old(
        "{mirrors: {docker.io: {endpoints: ['https://a', 'http://b/v2/x', 'https://a'], overridePath: true, \
          skipFallback: true}, gcr.io: {}}, config: {a: {auth: {auth: dTpw}}, b: {tls: {insecureSkipVerify: true}}}}",
    ) + &doc(
        "RegistryMirrorConfig",
        "name: '*'\nendpoints: [{url: 'https://c:5000/x', overridePath: true}, {url: 'http://d'}, {url: 'http://d'}]",
    ) + &doc(
        "RegistryAuthConfig",
        "name: c:5000\nusername: u\npassword: p",
    ) + &doc(
        "RegistryTLSConfig",
        &format!("name: '[fd00::1]:5000'\nca: \"{PEM}\""),
    );
    let found = document(&text).registries();
    let docker = RegistryMirrors {
        endpoints: vec![mirror("https://a", true), mirror("http://b/v2/x", true)],
        skip_fallback: true,
    };
    let any = RegistryMirrors {
        endpoints: vec![mirror("https://c:5000/x", true), mirror("http://d", false)],
        skip_fallback: false,
    };
    // Empty entries are left out.
    let mirrors: Vec<_> = found.mirrors.into_iter().collect();
    let expected = [("*".to_owned(), any), ("docker.io".to_owned(), docker)];
    assert_eq!(mirrors, expected);
    let auths: Vec<_> = found.auths.into_iter().collect();
    let encoded = RegistryAuth {
        auth: Secret::new("dTpw"),
        ..RegistryAuth::default()
    };
    let plain = RegistryAuth {
        username: "u".to_owned(),
        password: Secret::new("p"),
        ..RegistryAuth::default()
    };
    let expected = [("a".to_owned(), encoded), ("c:5000".to_owned(), plain)];
    assert_eq!(auths, expected);
    let names: Vec<&String> = found.tls.keys().collect();
    assert_eq!(names, ["[fd00::1]:5000", "b"]);
    let ca = found.tls["[fd00::1]:5000"].ca.as_deref();
    assert_eq!(ca, Some(&*PEM.replace("\\n", "\n")));
    assert!(found.tls["b"].insecure_skip_verify);
    assert_eq!(of_host(&found.tls, "x"), None);
}

#[test]
fn client_identity_is_equal_in_both_forms() {
    let pair = format!("{{crt: {}, key: {}}}", crt(), key());
    let old = old(&format!(
        "{{config: {{a: {{tls: {{clientIdentity: {pair}}}}}}}}}"
    ));
    let old = document(&old).registries();
    let pem = "-----BEGIN ED25519 PRIVATE KEY-----\\nc2VjcmV0LWtleS1ib2R5\\n-----END ED25519 PRIVATE KEY-----\\n";
    let fields = format!("name: a\nclientIdentity: {{cert: \"{PEM}\", key: \"{pem}\"}}");
    let new = document(&with("RegistryTLSConfig", &fields)).registries();
    assert!(old.tls["a"].client_identity.is_some());
    assert_eq!(old, new);
}

#[test]
fn registry_setting_given_in_both_forms_is_refused() {
    let text =
        old("{mirrors: {a: {endpoints: ['https://x']}}, config: {a: {auth: {identityToken: t}}}}")
            + &doc(
                "RegistryMirrorConfig",
                "name: a\nendpoints: [{url: 'https://y'}]",
            )
            + &doc("RegistryAuthConfig", "name: a\nidentityToken: t")
            + &doc("RegistryTLSConfig", "name: a\ninsecureSkipVerify: true")
            + &doc(
                "RegistryMirrorConfig",
                "name: b\nendpoints: [{url: 'https://y'}]",
            );
    let found = problems(&text);
    assert_eq!(found.len(), 2, "{found:?}");
    for (problem, why) in found.iter().zip([
        "RegistryMirrorConfig a excludes machine.registries.mirrors.a (line 18)",
        "RegistryAuthConfig a excludes machine.registries.config.a.auth (line 18)",
    ]) {
        assert!(problem.ends_with(why), "{problem}");
    }
}

#[test]
fn every_problem_of_the_v1alpha1_registries_is_reported_with_its_field() {
    let found = problems(&old(
        "{mirrors: {'a/b': {endpoints: ['https://x']}, c: {endpoints: ['ftp://x', 'https://x']}, \
          d: {skipFallback: true}, e: null}, config: {'*': {tls: {insecureSkipVerify: true}}, \
          f: {auth: {username: u, identityToken: hunter2}}, g: {tls: {ca: eA==, clientIdentity: {crt: eA==}}}}}",
    ));
    let all = found.join("\n");
    for why in [
        "machine.registries.mirrors.a/b must be named by a host",
        "machine.registries.mirrors.c.endpoints[0] must begin with http:// or https://",
        "machine.registries.mirrors.d.skipFallback needs endpoints",
        "machine.registries.mirrors.e must not be null",
        "machine.registries.config.* must name one registry; `*` is for mirrors",
        "machine.registries.config.f.auth.identityToken excludes username",
        "machine.registries.config.g.tls.ca must be base64 of a PEM CERTIFICATE",
        "machine.registries.config.g.tls.clientIdentity.key is required",
    ] {
        assert!(all.contains(why), "{why}: {all}");
    }
    assert!(!all.contains("hunter2"), "{all}");
}

#[test]
fn registry_names_are_host_names_with_an_optional_port() {
    for name in [
        "docker.io",
        "localhost:5000",
        "10.0.0.1",
        "[fd00::1]",
        "[::1]:1",
        "X",
    ] {
        assert!(is_registry(name), "{name}");
    }
    for name in [
        "",
        "*",
        ":5000",
        "a:",
        "a:0",
        "a:65536",
        "a:+1",
        "a:1:2",
        "a/b",
        "..",
        ".a",
        "a b",
        "a_b",
        "fd00::1",
        "[fd00::1",
        "[a]",
        "[::1]x",
        "https://a",
        "a\n",
        "é",
    ] {
        assert!(!is_registry(name), "{name}");
    }
    assert!(is_registry(&"a.".repeat(100)[..199]) && !is_registry(&"a.".repeat(101)[..201]));
}

/// A kind, the fields of a document, and the expected problem.
const INVALID: &[(&str, &str, &str)] = &[
    (
        "TrustedRootsConfig",
        "name: a\ncertificates: x",
        "certificates must be PEM certificates",
    ),
    (
        "TrustedRootsConfig",
        "name: a\ncertificates: \"-----BEGIN CERTIFICATE-----\\nA\\n-----END CERTIFICATE-----\\n-----BEGIN PRIVATE KEY-----\"",
        "certificates must be PEM certificates",
    ),
    (
        "RegistryMirrorConfig",
        "name: a/b\nendpoints: [{url: 'https://a'}]",
        "name must be a host, optionally with a port, or `*`",
    ),
    (
        "RegistryMirrorConfig",
        "name: a\nendpoints: [{url: 'ftp://a'}]",
        "endpoints[0].url must begin with http:// or https://",
    ),
    (
        "RegistryMirrorConfig",
        "name: a\nendpoints: [{url: 'https://u:p@a'}]",
        "endpoints[0].url must not hold a user or password: a RegistryAuthConfig",
    ),
    (
        "RegistryMirrorConfig",
        "name: a\nendpoints: [{url: 'https://a:b'}]",
        "endpoints[0].url must name a host",
    ),
    (
        "RegistryMirrorConfig",
        "name: a\nendpoints: [{url: 'https://a/v2?x=1'}]",
        "endpoints[0].url must end with its path",
    ),
    (
        "RegistryMirrorConfig",
        "name: a\nendpoints: [{url: 'https://a'}, {url: 'https://a', overridePath: true}]",
        "endpoints has one url twice, with overridePath and without",
    ),
    (
        "RegistryMirrorConfig",
        "name: a\nendpoints: [{overridePath: true}]",
        "endpoints[0].url is required",
    ),
    (
        "RegistryMirrorConfig",
        "name: a\nskipFallback: true",
        "skipFallback needs endpoints",
    ),
    (
        "RegistryAuthConfig",
        "name: '*'\nidentityToken: t",
        "name must name one registry",
    ),
    (
        "RegistryAuthConfig",
        "name: a",
        "needs username and password, auth or identityToken",
    ),
    (
        "RegistryAuthConfig",
        "name: a\npassword: p",
        "password needs username",
    ),
    (
        "RegistryAuthConfig",
        "name: a\nusername: u\npassword: p\nauth: dTpw",
        "auth excludes username",
    ),
    (
        "RegistryAuthConfig",
        "name: a\nauth: dTpw\nidentityToken: t",
        "identityToken excludes auth",
    ),
    (
        "RegistryAuthConfig",
        "name: a\nauth: dXA=",
        "auth must be base64 of user:password",
    ),
    (
        "RegistryTLSConfig",
        "name: https://a",
        "name must be a host, optionally with a port",
    ),
    (
        "RegistryTLSConfig",
        "name: a\nca: x",
        "ca must be PEM certificates",
    ),
    (
        "RegistryTLSConfig",
        "name: a\nclientIdentity: {key: x}",
        "clientIdentity.cert is required",
    ),
];

#[test]
fn every_problem_of_a_registry_document_is_reported_with_its_field() {
    are_refused(INVALID);
}
