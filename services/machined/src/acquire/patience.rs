//! Looking for a volume whose device appears late.

use std::time::Duration;

use tokio::time::sleep;

/// Between the looks, 31 s together: a BMC's virtual CD and a USB disk behind two hubs take up to twenty. For
/// longer a machine without the volume would not serve the operator who is to mend that.
pub const PAUSES: [Duration; 5] = [
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(4),
    Duration::from_secs(8),
    Duration::from_secs(16),
];

/// Looks for what `shown` names until it is found, with these pauses; `say` hears why it is looked for again.
///
/// # Errors
/// Those of the last look.
pub async fn look<T, F>(
    shown: &str,
    pauses: &[Duration],
    mut find: impl FnMut() -> F,
    say: impl Fn(&str),
) -> Result<Option<T>, String>
where
    F: Future<Output = Result<Option<T>, String>>,
{
    for pause in pauses {
        let why = match find().await {
            Ok(Some(found)) => return Ok(Some(found)),
            Ok(None) => format!("there is no {shown} yet"),
            Err(why) => format!("{shown}: {why}"),
        };
        say(&format!("{why}; looking again in {} s", pause.as_secs()));
        sleep(*pause).await;
    }
    find().await
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};

    use super::*;

    const AT_ONCE: [Duration; 2] = [Duration::ZERO; 2];

    /// What is found when the looks find this one after the other, and what was said.
    async fn looked(
        looks: &[Result<Option<u8>, &str>],
    ) -> (Result<Option<u8>, String>, Vec<String>) {
        let next = Cell::new(0);
        let said = RefCell::new(Vec::new());
        let find = || {
            let number = next.replace(next.get() + 1);
            std::future::ready(looks[number].map_err(str::to_owned))
        };
        let say = |text: &str| said.borrow_mut().push(text.to_owned());
        let found = look("file on volume V", &AT_ONCE, find, say).await;
        assert_eq!(next.get(), looks.len());
        (found, said.into_inner())
    }

    #[tokio::test]
    async fn a_late_volume_is_found_and_a_missing_one_is_given_up() {
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
}
