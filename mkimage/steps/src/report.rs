//! The messages of a running build, for a person or a script.

use std::io::IsTerminal as _;
use std::time::{Duration, Instant};

use crate::error::Result;
use indicatif::{ProgressBar, ProgressStyle};

/// How progress is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// A progress bar on a terminal, plain lines elsewhere.
    Text,
    /// One JSON object a line on standard output.
    Json,
}

/// Prints a result on standard output; a closed pipe (`| head`) is no error.
pub fn print(text: &str) -> Result<()> {
    use std::io::Write as _;
    let mut stdout = std::io::stdout().lock();
    match stdout
        .write_all(text.as_bytes())
        .and_then(|()| stdout.flush())
    {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}

/// Prints a warning: on standard error, and as an object for a script.
pub fn warn(format: Format, text: &str) {
    eprintln!("WARNING: {text}");
    if format == Format::Json {
        println!("{}", serde_json::json!({"warning": text}));
    }
}

/// Prints the progress of a recipe; results go to standard output, progress to standard error.
#[derive(Debug)]
pub struct Reporter {
    format: Format,
    bar: Option<ProgressBar>,
}

impl Reporter {
    /// A reporter for a recipe of `steps` steps.
    pub fn new(format: Format, steps: usize) -> Self {
        let terminal = format == Format::Text && std::io::stderr().is_terminal();
        let bar = terminal.then(|| {
            let bar = ProgressBar::new(steps as u64);
            if let Ok(style) = ProgressStyle::with_template("{bar:20} {pos}/{len} {msg} {elapsed}")
            {
                bar.set_style(style);
            }
            bar.enable_steady_tick(Duration::from_millis(200));
            bar
        });
        Self { format, bar }
    }

    /// Reports the begin of a step.
    pub fn begin(&self, step: &str) -> Instant {
        match (&self.bar, self.format) {
            (Some(bar), _) => bar.set_message(step.to_owned()),
            (None, Format::Text) => eprintln!("{step} …"),
            (None, Format::Json) => {}
        }
        Instant::now()
    }

    /// Reports the end of a step; `cached` when it was not run.
    pub fn end(&self, step: &str, cached: bool, since: Instant) {
        let seconds = since.elapsed().as_secs_f64();
        if let Some(bar) = &self.bar {
            bar.inc(1);
        }
        match self.format {
            Format::Json => println!(
                "{}",
                serde_json::json!({"step": step, "cached": cached, "seconds": seconds})
            ),
            Format::Text if self.bar.is_none() && !cached => {
                eprintln!("{step} done in {seconds:.1} s");
            }
            Format::Text => {}
        }
    }

    /// Reports a finished output.
    pub fn output(&self, path: &std::path::Path) {
        match self.format {
            Format::Json => println!("{}", serde_json::json!({"output": path})),
            Format::Text => {
                let print = || println!("{}", path.display());
                match &self.bar {
                    Some(bar) => bar.suspend(print),
                    None => print(),
                }
            }
        }
    }
}
