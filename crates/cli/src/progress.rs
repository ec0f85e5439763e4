//! How far a long piece of work is, on standard error: rate and time left.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use exacat_exchange::Progress;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::args::Global;
use crate::failure::say;
use crate::output::human;

/// Steps of the bar.
const STEPS: u64 = 10_000;
/// Between two lines where there is no terminal.
const LINE_EVERY: Duration = Duration::from_secs(5);

/// Shows progress: as a bar on a terminal, as lines if asked for, else not at all.
pub struct Bar {
    bar: ProgressBar,
    what: &'static str,
    lines: bool,
    last_line: Option<Instant>,
}

impl Bar {
    /// Counting `what`.
    pub fn new(global: &Global, what: &'static str) -> Self {
        let terminal = std::io::stderr().is_terminal();
        let bar = if terminal && !global.quiet {
            ProgressBar::with_draw_target(Some(STEPS), ProgressDrawTarget::stderr_with_hz(10))
        } else {
            ProgressBar::hidden()
        };
        bar.set_style(style("{bar:30} {percent:>3}%  {msg}"));
        Bar { bar, what, lines: global.progress && !terminal, last_line: None }
    }

    /// Shows a moment of it.
    pub fn show(&mut self, progress: &Progress) {
        if self.lines {
            let due = self.last_line.is_none_or(|last| last.elapsed() >= LINE_EVERY);
            if due {
                self.last_line = Some(Instant::now());
                let part = progress.fraction().map(|part| format!("{:.0} %, ", part * 100.0));
                say(&format!("exacat: {}{}", part.unwrap_or_default(), self.text(progress)));
            }
            return;
        }
        if self.bar.is_hidden() {
            return;
        }
        match progress.fraction() {
            Some(part) => self.bar.set_position((part * STEPS as f64) as u64),
            None => self.bar.set_style(style("{spinner} {msg}")),
        }
        self.bar.set_message(self.text(progress));
    }

    fn text(&self, progress: &Progress) -> String {
        let mut text = format!("{} {}, {:.0}/s", progress.rows, self.what, progress.rows_per_second());
        if progress.rejected > 0 {
            text.push_str(&format!(", {} rejected", progress.rejected));
        }
        if progress.second_pass {
            text.push_str(", second reading");
        }
        if let Some(left) = progress.left() {
            let ms = u64::try_from(left.as_millis()).unwrap_or(u64::MAX);
            text.push_str(&format!(", {} left", human::duration(ms)));
        }
        text
    }

    /// Takes it off the screen.
    pub fn end(&self) {
        self.bar.finish_and_clear();
    }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}
