//! `dashboard`: nodes at a glance, drawn anew every few seconds.
//!
//! `sample` asks the nodes, `state` keeps what they said and what is chosen, and
//! `draw` is a pure function of that.

mod draw;
mod sample;
mod state;

use std::io::{self, IsTerminal as _};
use std::time::Duration;

use crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use ratatui::DefaultTerminal;
use tokio::sync::mpsc;
use tokio::time::sleep;

use crate::cli::Dashboard;
use crate::connect::Route;
use crate::failure::Failure;

use state::{Key, State};

pub(crate) async fn run(routes: Vec<Route>, args: &Dashboard) -> Result<(), Failure> {
    if !io::stdout().is_terminal() {
        return Err(Failure::usage(
            "a dashboard needs a terminal; `memory`, `processes` and `logs` print to files",
        ));
    }
    // Puts the terminal back in order when the program panics, too.
    let mut terminal = ratatui::try_init()?;
    let result = show(&mut terminal, routes, args.update_interval).await;
    ratatui::restore();
    result
}

async fn show(
    terminal: &mut DefaultTerminal,
    routes: Vec<Route>,
    interval: Duration,
) -> Result<(), Failure> {
    let mut keys = keys();
    let mut state = State::new(&routes);
    let ask = async |delay, chosen| {
        sleep(delay).await;
        sample::sample(routes.clone(), chosen).await
    };
    let mut asking = Box::pin(ask(Duration::ZERO, state.chosen()));
    loop {
        terminal.draw(|frame| draw::draw(frame, &state))?;
        tokio::select! {
            key = keys.recv() => match key {
                Some(Key::Quit) | None => return Ok(()),
                Some(key) => state.press(key),
            },
            sampled = &mut asking => {
                state.take(sampled?);
                asking = Box::pin(ask(interval, state.chosen()));
            }
        }
    }
}

/// Keys, read by a thread of their own: nodes may be slow, keys must not.
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
        // Drawn anew at once.
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
