//! `logs` and `dmesg`: prints logs unchanged.

use std::io::{self, IsTerminal as _};

use corten_api::common::Data;
use corten_api::machine::{DmesgRequest, LogsRequest};
use corten_api::metadata::PREVIOUS_BOOT;
use corten_client::clients::Machine;
use corten_client::connect::{Route, count};
use corten_client::failure::Failure;
use corten_client::stream::follow;
use tonic::Request;
use tonic::metadata::MetadataValue;

use crate::cli::{Dmesg, Logs};
use crate::lines::Lines;
use crate::verbs::containers::namespace;

pub(crate) async fn logs(routes: Vec<Route>, args: &Logs) -> Result<(), Failure> {
    let mut lines = printer(&routes, args.follow)?;
    let (namespace, driver) = namespace(args.kubernetes);
    let body = LogsRequest {
        namespace,
        driver: driver.into(),
        id: args.id.clone(),
        follow: args.follow,
        tail_lines: args.tail,
    };
    let call = |mut client: Machine, request| async move {
        client.logs(of_boot(request, args.previous)).await
    };
    let done = follow(routes, body, call, |node, data: Data| {
        Ok(lines.push(node, &data.bytes, &mut io::stdout().lock())?)
    })
    .await;
    lines.finish(&mut io::stdout().lock())?;
    done
}

pub(crate) async fn dmesg(routes: Vec<Route>, args: &Dmesg) -> Result<(), Failure> {
    let mut lines = printer(&routes, args.follow)?;
    let body = DmesgRequest {
        follow: args.follow,
        tail: args.tail,
    };
    let call = |mut client: Machine, request| async move {
        client.dmesg(of_boot(request, args.previous)).await
    };
    follow(routes, body, call, |node, Data { bytes, .. }| {
        let mut out = io::stdout().lock();
        lines.push(node, &bytes, &mut out)?;
        // A frame is a line, with or without a newline.
        if !bytes.is_empty() && !bytes.ends_with(b"\n") {
            lines.push(node, b"\n", &mut out)?;
        }
        Ok(())
    })
    .await
}

/// The request for the current boot, or the previous one when `previous`.
fn of_boot<B>(mut request: Request<B>, previous: bool) -> Request<B> {
    if previous {
        let yes = MetadataValue::from_static("true");
        request.metadata_mut().insert(PREVIOUS_BOOT, yes);
    }
    request
}

fn printer(routes: &[Route], follow: bool) -> Result<Lines, Failure> {
    if follow && routes.len() > 1 {
        return Err(Failure::usage(
            "with --insecure only one node can be followed",
        ));
    }
    Ok(Lines::new(count(routes) > 1, io::stdout().is_terminal()))
}
