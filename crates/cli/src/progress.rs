//! Progress of long work on standard error: rate and time left.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use exacat_exchange::Progress;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::args::Global;
use crate::failure::say;
use crate::output::human;

/// Template of the bar.
const BAR: &str = "{bar:30} {percent:>3}%  {msg}";
/// Steps of the bar.
const STEPS: u64 = 10_000;
/// Interval of lines where there is no terminal.
const LINE_EVERY: Duration = Duration::from_secs(5);

/// Progress display: a bar on a terminal, lines on request, otherwise nothing.
pub(crate) struct Bar {
    bar: ProgressBar,
    what: &'static str,
    lines: bool,
    last_line: Option<Instant>,
}

impl Bar {
    /// Makes the display; it counts `what`.
    pub(crate) fn new(global: &Global, what: &'static str) -> Self {
        let terminal = std::io::stderr().is_terminal();
        let bar = if terminal && !global.quiet {
            ProgressBar::with_draw_target(Some(STEPS), ProgressDrawTarget::stderr_with_hz(10))
        } else {
            ProgressBar::hidden()
        };
        bar.set_style(style(BAR));
        Bar { bar, what, lines: global.progress && !terminal, last_line: None }
    }

    /// Shows the present progress.
    pub(crate) fn show(&mut self, progress: &Progress) {
        if self.is_due() {
            self.show_part(progress.fraction(), self.text(progress));
        }
    }

    /// Shows the number of bytes done, and of all bytes.
    pub(crate) fn show_bytes(&mut self, done: u64, all: u64) {
        if self.is_due() {
            let text = format!("{} of {}", human::size(u128::from(done)), human::size(u128::from(all)));
            self.show_part((all > 0).then(|| done as f64 / all as f64), text);
        }
    }

    /// Shows the present step, where the duration is unknown.
    pub(crate) fn show_text(&mut self, text: &str) {
        if self.is_due() {
            self.show_part(None, text.to_owned());
        }
    }

    /// Says whether an update would be visible.
    fn is_due(&self) -> bool {
        match self.lines {
            true => self.last_line.is_none_or(|last| last.elapsed() >= LINE_EVERY),
            false => !self.bar.is_hidden(),
        }
    }

    fn show_part(&mut self, part: Option<f64>, text: String) {
        if self.lines {
            self.last_line = Some(Instant::now());
            let part = part.map(|part| format!("{:.0} %, ", part * 100.0));
            say(&format!("exacat: {}{text}", part.unwrap_or_default()));
            return;
        }
        match part {
            Some(part) => {
                self.bar.set_style(style(BAR));
                self.bar.set_position((part * STEPS as f64) as u64);
            }
            None => self.bar.set_style(style("{spinner} {msg}")),
        }
        self.bar.set_message(text);
    }

    fn text(&self, progress: &Progress) -> String {
        let mut text = format!("{} {}, {:.0}/s", progress.rows, self.what, progress.rows_per_second());
        if progress.rejected > 0 {
            text.push_str(&format!(", {} rejected", progress.rejected));
        }
        if progress.loading {
            text.push_str(", all read, being loaded");
            return text;
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

    /// Removes the bar from the screen.
    pub(crate) fn end(&self) {
        self.bar.finish_and_clear();
    }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}
