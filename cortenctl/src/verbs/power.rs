//! `reboot` and `shutdown`.

use corten_api::machine::reboot_request::Mode;
use corten_api::machine::{RebootRequest, RebootResponse, ShutdownRequest, ShutdownResponse};

use crate::answers::{Answers, ask};
use crate::cli::RebootMode;
use crate::connect::Route;
use crate::failure::Failure;
use crate::table::printable;

pub(crate) async fn reboot(routes: Vec<Route>, mode: RebootMode) -> Result<(), Failure> {
    let mode = match mode {
        RebootMode::Default => Mode::Default,
        RebootMode::Powercycle => Mode::Powercycle,
        RebootMode::Force => Mode::Force,
    };
    let body = RebootRequest { mode: mode.into() };
    let messages = |reply: RebootResponse| reply.messages;
    let answers = ask(routes, body, messages, |mut client, request| async move {
        client.reboot(request).await
    })
    .await;
    told(answers, "reboots")
}

pub(crate) async fn shutdown(routes: Vec<Route>, force: bool) -> Result<(), Failure> {
    let body = ShutdownRequest { force };
    let messages = |reply: ShutdownResponse| reply.messages;
    let answers = ask(routes, body, messages, |mut client, request| async move {
        client.shutdown(request).await
    })
    .await;
    told(answers, "shuts down")
}

/// There is no data to print, so what happens goes to stderr.
fn told<M>(answers: Answers<M>, what: &str) -> Result<(), Failure> {
    for (node, _) in &answers.good {
        eprintln!("{}: {what}", printable(node));
    }
    answers.finish()
}
