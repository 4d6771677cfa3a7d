//! The methods that the kubelet calls: two of the bus, the property with the longest delay, and `Inhibit` of logind's
//! manager (org.freedesktop.login1(5)).

use std::io::PipeWriter;

use crate::LONGEST_DELAY;
use crate::inhibitors::{Inhibitors, TakeError};
use crate::message::{Body, Call, signal};

const BUS: (&str, &str) = ("/org/freedesktop/DBus", "org.freedesktop.DBus");
const MANAGER: (&str, &str) = ("/org/freedesktop/login1", "org.freedesktop.login1.Manager");
const PROPERTIES: &str = "org.freedesktop.DBus.Properties";
const DELAY: &str = "InhibitDelayMaxUSec";
/// The one name of a client. No client sees another one.
const NAME: &str = ":1.0";

const UNKNOWN_METHOD: &str = "org.freedesktop.DBus.Error.UnknownMethod";
const UNKNOWN_PROPERTY: &str = "org.freedesktop.DBus.Error.UnknownProperty";
const INVALID_ARGUMENTS: &str = "org.freedesktop.DBus.Error.InvalidArgs";
const NOT_SUPPORTED: &str = "org.freedesktop.DBus.Error.NotSupported";
const LIMITS_EXCEEDED: &str = "org.freedesktop.DBus.Error.LimitsExceeded";
const IN_PROGRESS: &str = "org.freedesktop.login1.OperationInProgress";

/// Answer to a call.
#[derive(Debug)]
pub(crate) enum Answer {
    /// The content of a reply.
    Reply(Body<'static>),
    /// An empty reply; the client wants signals from now on.
    Subscribed,
    /// An inhibitor.
    Inhibitor(PipeWriter),
    /// The name of an error, and the reason.
    Refused(&'static str, String),
}

/// Carries out a call of a client, which gets descriptors only if it accepts them.
pub(crate) fn answer(call: &Call<'_>, inhibitors: &Inhibitors, passes_descriptors: bool) -> Answer {
    let (bus, manager) = (BUS.0, MANAGER.0);
    match (call.path, call.interface, call.member) {
        (path, interface, "Hello") if (path, interface) == BUS => Answer::Reply(Body::Text(NAME)),
        (path, interface, "AddMatch") if (path, interface) == BUS => match call.strings::<1>() {
            // There is one signal, so each rule means that one.
            Some(_) => Answer::Subscribed,
            None => arguments("one rule"),
        },
        (path, PROPERTIES, "Get") if path == manager => match call.strings() {
            Some([interface, DELAY]) if interface == MANAGER.1 => {
                Answer::Reply(Body::Number(delay()))
            }
            Some(_) => refused(
                UNKNOWN_PROPERTY,
                format!("only {DELAY} of {} is known", MANAGER.1),
            ),
            None => arguments("an interface and a property"),
        },
        (path, interface, "Inhibit") if (path, interface) == MANAGER => {
            inhibit(call, inhibitors, passes_descriptors)
        }
        _ => refused(
            UNKNOWN_METHOD,
            format!("only the methods that a kubelet needs are known, of {bus} and {manager}"),
        ),
    }
}

/// The announcement of the end.
pub(crate) fn prepare_for_shutdown(serial: u32) -> Vec<u8> {
    let (path, interface) = MANAGER;
    signal(
        serial,
        path,
        (interface, "PrepareForShutdown"),
        Body::Flag(true),
    )
}

fn inhibit(call: &Call<'_>, inhibitors: &Inhibitors, passes_descriptors: bool) -> Answer {
    let Some([what, _who, _why, mode]) = call.strings() else {
        return arguments("what to inhibit, who, why, and the mode");
    };
    if !what.split(':').any(|one| one == "shutdown") || mode != "delay" {
        return arguments("shutdown, who, why, and the mode delay");
    }
    if !passes_descriptors {
        return refused(
            NOT_SUPPORTED,
            "the client accepts no descriptors".to_owned(),
        );
    }
    match inhibitors.take() {
        Ok(pipe) => Answer::Inhibitor(pipe),
        Err(error) => {
            let name = match error {
                TakeError::Late => IN_PROGRESS,
                TakeError::Full | TakeError::Pipe(_) => LIMITS_EXCEEDED,
            };
            refused(name, error.to_string())
        }
    }
}

fn delay() -> u64 {
    u64::try_from(LONGEST_DELAY.as_micros()).unwrap_or(u64::MAX)
}

fn arguments(expected: &str) -> Answer {
    refused(
        INVALID_ARGUMENTS,
        format!("the arguments must be {expected}"),
    )
}

fn refused(name: &'static str, why: String) -> Answer {
    Answer::Refused(name, why)
}
