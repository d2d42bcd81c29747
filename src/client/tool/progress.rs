//! A bar on the terminal while a run lasts; nothing where standard error is no terminal.

use std::io::IsTerminal as _;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use super::plan::{Plan, Until};

/// The bar. Its methods do nothing when there is no terminal.
#[derive(Debug)]
pub(crate) struct Progress {
    bar: Option<ProgressBar>,
    timed: bool,
}

impl Progress {
    /// A bar for one run.
    pub(crate) fn new(plan: &Plan, label: &str) -> Self {
        let timed = matches!(plan.until, Until::Elapsed(_));
        if !std::io::stderr().is_terminal() {
            return Self { bar: None, timed };
        }
        let (length, unit) = match plan.until {
            Until::Iterations(n) => (n * plan.concurrency as u64, "{pos}/{len} iterations"),
            Until::Elapsed(time) => (time.as_secs(), "{pos}/{len} s"),
        };
        let bar = ProgressBar::new(length).with_message(label.to_owned());
        let template = format!("{{msg}} {{bar:30}} {unit}");
        if let Ok(style) = ProgressStyle::with_template(&template) {
            bar.set_style(style);
        }
        Self { bar: Some(bar), timed }
    }

    /// One iteration has ended, this long after the start.
    pub(crate) fn step(&self, elapsed: Duration) {
        match &self.bar {
            Some(bar) if self.timed => bar.set_position(elapsed.as_secs()),
            Some(bar) => bar.inc(1),
            None => {}
        }
    }

    /// Prints without the bar in between.
    pub(crate) fn suspend<T>(&self, print: impl FnOnce() -> T) -> T {
        match &self.bar {
            Some(bar) => bar.suspend(print),
            None => print(),
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
