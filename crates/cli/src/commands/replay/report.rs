//! `replay report`: the report of a run.

use std::io::Write as _;
use std::path::Path;

use exacat_exchange::Error;
use exacat_replay::report::{compare, html, text};

use super::at::remote;
use crate::args::ReplayReportArgs;
use crate::commands::exchange::{failure, of_output, open_output};
use crate::failure::Failure;
use crate::output::{Out, Style};

/// `exacat replay report`
pub(super) async fn report(args: ReplayReportArgs, style: Style) -> Result<u8, Failure> {
    let remote = remote(&args.at)?;
    let report = remote.report(&args.run).await?;
    let mut out = Out::new(style);
    if let Some(file) = &args.html {
        write(file, &html::page(&report)).await?;
    }
    if let Some(other) = &args.compare {
        let compared = compare::compare(&remote.report(other).await?, &report);
        match style.json {
            true => out.json(&compared)?,
            false => out.text(&compared.text())?,
        }
    } else if style.json {
        out.json(&report)?;
    } else if !style.quiet {
        out.text(&text::text(&report))?;
    }
    out.flush()?;
    Ok(report.exit_code)
}

async fn write(path: &Path, page: &str) -> Result<(), Failure> {
    let output = open_output(path).await?;
    let mut file = output.writer().map_err(failure)?;
    file.write_all(page.as_bytes()).map_err(|error| of_output(Error::file("write", path, error), path))?;
    drop(file);
    output.finish().map_err(|error| of_output(error, path))
}
