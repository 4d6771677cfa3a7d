//! Questions to etcd are repeated: while it elects a leader, on a slow disk or a busy machine, it answers late.

use std::time::Duration;

use tokio::time::{Instant, sleep};

/// Pause between two questions.
const PAUSE: Duration = Duration::from_secs(2);

/// Asks until the answer is final, and for this time at most. Returns the last answer.
pub(super) async fn patiently<T, F: Future<Output = T>>(
    patience: Duration,
    ask: impl Fn() -> F,
    is_final: impl Fn(&T) -> bool,
) -> T {
    let end = Instant::now() + patience;
    loop {
        let answer = ask().await;
        if is_final(&answer) || Instant::now() >= end {
            return answer;
        }
        sleep(PAUSE).await;
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn late_answer_of_etcd_is_awaited_for_a_bounded_time() {
        let asked = Cell::new(0);
        let ask = || async {
            asked.set(asked.get() + 1);
            sleep(Duration::from_secs(5)).await;
            asked.get()
        };
        let minute = Duration::from_secs(60);
        assert_eq!(patiently(minute, ask, |asked| *asked == 3).await, 3);
        asked.set(0);
        let begun = Instant::now();
        assert_eq!(patiently(minute, ask, |_| false).await, 9);
        assert_eq!(begun.elapsed(), Duration::from_secs(9 * 5 + 8 * 2));
    }
}
