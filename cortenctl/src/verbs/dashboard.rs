//! `dashboard`: an overview of nodes, redrawn every few seconds.
//!
//! `sample` calls the nodes, `state` keeps their answers and the user's selection, and `draw` is a
//! pure function of the state.

mod draw;
mod facts;
mod sample;
mod state;

use std::io::{self, IsTerminal as _};
use std::time::Duration;

use corten_client::connect;
use corten_client::connect::{Route, routes};
use corten_client::failure::Failure;
use corten_client::flags::Global;
use crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use ratatui::DefaultTerminal;
use tokio::sync::mpsc;
use tokio::time::sleep;

use crate::cli::Dashboard;

use sample::Sample;
use state::{Key, State};

pub(crate) async fn run(global: &Global, args: &Dashboard) -> Result<(), Failure> {
    if !io::stdout().is_terminal() {
        return Err(Failure::usage(
            "a dashboard needs a terminal; `memory`, `processes` and `logs` print to files",
        ));
    }
    let opened = routes(global).await?;
    // Restores the terminal on a panic, too.
    let mut terminal = ratatui::try_init()?;
    let result = show(&mut terminal, global, opened, args.update_interval).await;
    ratatui::restore();
    result
}

async fn show(
    terminal: &mut DefaultTerminal,
    global: &Global,
    mut opened: Vec<Route>,
    interval: Duration,
) -> Result<(), Failure> {
    let mut keys = keys();
    let mut state = State::new(&opened);
    let ask = async |delay, ways, chosen| {
        sleep(delay).await;
        look(ways, chosen, async || routes(global).await).await
    };
    let mut asking = Box::pin(ask(Duration::ZERO, opened.clone(), state.chosen()));
    loop {
        terminal.draw(|frame| draw::draw(frame, &state))?;
        tokio::select! {
            key = keys.recv() => match key {
                Some(Key::Quit) | None => return Ok(()),
                Some(key) => {
                    let before = state.chosen();
                    state.press(key);
                    // The log of the newly selected node is not shown yet.
                    if state.chosen() != before {
                        asking = Box::pin(ask(Duration::ZERO, opened.clone(), state.chosen()));
                    }
                }
            },
            looked = &mut asking => {
                let (ways, sample) = looked?;
                opened = ways;
                state.take(sample);
                state.follow(&opened);
                asking = Box::pin(ask(interval, opened.clone(), state.chosen()));
            }
        }
    }
}

/// Calls the nodes. If none answers, the next call uses new connections if they can be opened.
async fn look(
    ways: Vec<Route>,
    chosen: String,
    open: impl AsyncFn() -> Result<Vec<Route>, Failure>,
) -> Result<(Vec<Route>, Sample), Failure> {
    let sample = sample::sample(ways.clone(), chosen).await?;
    if !sample.versions.good.is_empty() {
        return Ok((ways, sample));
    }
    Ok((connect::reopened(ways, open).await?, sample))
}

/// Keys, read by a thread of their own, so that slow nodes do not delay them.
fn keys() -> mpsc::Receiver<Key> {
    let (sender, receiver) = mpsc::channel(16);
    std::thread::spawn(move || {
        while let Ok(event) = event::read() {
            let Some(key) = meaning(&event) else { continue };
            if sender.blocking_send(key).is_err() {
                break;
            }
        }
    });
    receiver
}

fn meaning(event: &Event) -> Option<Key> {
    let key = match event {
        // A resize redraws at once.
        Event::Resize(_, _) => return Some(Key::Redraw),
        Event::Key(key) if key.kind != KeyEventKind::Release => key,
        _ => return None,
    };
    let interrupt = key.modifiers.contains(KeyModifiers::CONTROL) && key.code == KeyCode::Char('c');
    Some(match key.code {
        _ if interrupt => Key::Quit,
        KeyCode::Char('q') | KeyCode::Esc => Key::Quit,
        KeyCode::Left | KeyCode::Char('h') => Key::Before,
        KeyCode::Right | KeyCode::Char('l') => Key::Next,
        KeyCode::Char('s') => Key::Sort,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lost(name: &str) -> Vec<Route> {
        vec![Route {
            name: name.to_owned(),
            session: Err("the connection to the node was lost".to_owned()),
        }]
    }

    #[tokio::test]
    async fn lost_session_is_reopened() {
        let open = async || Ok(lost("new"));
        let (ways, sample) = look(lost("old"), "old".to_owned(), open).await.unwrap();
        assert_eq!(ways[0].name, "new");
        assert_eq!(sample.versions.failed[0].0, "old");
        let nowhere = async || Err(Failure::call("no endpoint answers"));
        let (ways, _) = look(lost("old"), "old".to_owned(), nowhere).await.unwrap();
        assert_eq!(ways[0].name, "old");
    }
}
