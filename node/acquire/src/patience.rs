//! Retries a search for a config source, such as a volume whose device appears late.

use std::time::Duration;

use corten_base::console;
use tokio::task::spawn_blocking;
use tokio::time::sleep;

/// Pauses between attempts, 31 s in total. A BMC's virtual CD or a USB disk behind two hubs takes up to 20 s to appear.
/// A longer search would delay the API through which the operator repairs a machine without the volume.
const PAUSES: [Duration; 5] = [
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(4),
    Duration::from_secs(8),
    Duration::from_secs(16),
];

/// Runs `find` until it finds the source, for half a minute at most. The console reports the reason for each retry and
/// names the source as `shown`. `find` makes one attempt, on a thread where it may block.
///
/// # Errors
/// Those of the last attempt.
pub async fn look<T: Send + 'static>(
    shown: &str,
    find: impl Fn() -> Result<Option<T>, String> + Clone + Send + 'static,
) -> Result<Option<T>, String> {
    look_after(&PAUSES, shown, find, console::say).await
}

async fn look_after<T: Send + 'static>(
    pauses: &[Duration],
    shown: &str,
    find: impl Fn() -> Result<Option<T>, String> + Clone + Send + 'static,
    say: impl Fn(&str),
) -> Result<Option<T>, String> {
    let look_once = || {
        let found = spawn_blocking(find.clone());
        async move {
            let found = found.await;
            found.unwrap_or_else(|_| Err("reading it failed".to_owned()))
        }
    };
    for pause in pauses {
        let why = match look_once().await {
            Ok(Some(found)) => return Ok(Some(found)),
            Ok(None) => format!("there is no {shown} yet"),
            Err(why) => format!("{shown}: {why}"),
        };
        say(&format!("{why}; looking again in {} s", pause.as_secs()));
        sleep(*pause).await;
    }
    look_once().await
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    const AT_ONCE: [Duration; 2] = [Duration::ZERO; 2];

    /// Plays the results `looks` one after the other. Returns the final result and the console's lines.
    async fn looked(
        looks: &'static [Result<Option<u8>, &str>],
    ) -> (Result<Option<u8>, String>, Vec<String>) {
        let next = Arc::new(AtomicUsize::new(0));
        let said = RefCell::new(Vec::new());
        let count = Arc::clone(&next);
        let find = move || looks[count.fetch_add(1, Ordering::Relaxed)].map_err(str::to_owned);
        let say = |text: &str| said.borrow_mut().push(text.to_owned());
        let found = look_after(&AT_ONCE, "file on volume V", find, say).await;
        assert_eq!(next.load(Ordering::Relaxed), looks.len());
        (found, said.into_inner())
    }

    #[tokio::test]
    async fn late_volume_is_found_and_a_missing_volume_times_out() {
        let (found, said) = looked(&[Ok(Some(1))]).await;
        assert_eq!((found, said.len()), (Ok(Some(1)), 0));
        let (found, said) = looked(&[Ok(None), Err("no medium"), Ok(Some(2))]).await;
        assert_eq!(found, Ok(Some(2)));
        assert_eq!(
            said,
            [
                "there is no file on volume V yet; looking again in 0 s",
                "file on volume V: no medium; looking again in 0 s"
            ]
        );
        let (found, said) = looked(&[Ok(None), Ok(None), Ok(None)]).await;
        assert_eq!((found, said.len()), (Ok(None), 2));
        let (found, _) = looked(&[Ok(None), Ok(None), Err("broken")]).await;
        assert_eq!(found, Err("broken".to_owned()));
    }

    #[tokio::test]
    async fn panicking_volume_search_is_a_failure() {
        let find = || -> Result<Option<u8>, String> { panic!("no disk") };
        let found = look_after(&[], "file on volume V", find, |_| {}).await;
        assert_eq!(found, Err("reading it failed".to_owned()));
    }
}
