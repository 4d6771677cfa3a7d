//! Ends a verb by a signal without leaving its temporary files, which hold secrets.

use std::time::Duration;

use corten_client::failure::Failure;
use corten_client::interrupts::Interrupts;
use signal_hook::low_level::emulate_default_handler;
use tokio::sync::oneshot;
use tokio::time::sleep;

/// Time for a verb that blocks its thread, for instance on a pager. After it the process ends without a cleanup.
const GRACE: Duration = Duration::from_secs(1);

/// Runs a verb to its end, or until a signal. Then it drops the verb, which removes its files, and the signal ends the
/// process, so that a shell sees why.
pub(crate) async fn or_interrupted(
    verb: impl Future<Output = Result<(), Failure>>,
) -> Result<(), Failure> {
    let (tell, told) = oneshot::channel();
    let mut interrupts = Interrupts::take()?;
    tokio::spawn(async move {
        let number = interrupts.next().await;
        tell.send(number).ok();
        sleep(GRACE).await;
        emulate_default_handler(number).ok();
    });
    let number = tokio::select! {
        done = verb => return done,
        Ok(number) = told => number,
    };
    emulate_default_handler(number)?;
    Err(Failure::call("interrupted"))
}
