//! `exacat reference`: writes the pages of docs/reference that are made from the program.

mod json;

use std::fmt::Write;
use std::path::Path;

use clap::{Arg, Command, CommandFactory};
use exacat_model::ErrorKind;
use exacat_server::faces::errors::{errno, http_status, xrootd};
use exacat_store::MetricKind;

use crate::args::{Cli, ReferenceArgs};
use crate::failure::{
    Failure, KIND_LOCAL, STATUS_INTERRUPTED, STATUS_LOCAL, STATUS_REJECTED, STATUS_TERMINATED, status_of,
};

/// Columns of help texts.
const HELP_COLUMNS: usize = 80;
/// Columns of paragraphs.
const PAGE_COLUMNS: usize = 100;
/// First line of every page.
const NOTE: &str = "<!-- Made by `make reference` from the program; changes are lost. -->\n\n";

/// `exacat reference`
pub(crate) async fn reference(args: &ReferenceArgs) -> Result<u8, Failure> {
    std::fs::create_dir_all(&args.directory).map_err(|error| local(&args.directory, &error))?;
    let pages = [
        ("cli.md", commands_page()),
        ("configuration.md", configuration_page()),
        ("metrics.md", metrics_page()),
        ("waits.md", exacat_server::reference::states_page()),
        ("errors.md", errors_page()),
        ("json.md", json::page()?),
    ];
    for (name, text) in pages {
        let path = args.directory.join(name);
        let text = format!("{NOTE}{}\n", text.trim_end());
        std::fs::write(&path, text).map_err(|error| local(&path, &error))?;
    }
    Ok(0)
}

fn local(path: &Path, error: &std::io::Error) -> Failure {
    Failure::local(format!("{}: {error}", path.display()))
}

/// Returns the command line with the names and global options of all commands in place.
fn whole() -> Command {
    let mut command = Cli::command();
    command.build();
    command
}

/// Calls `visit` for each visible command that can be run, with its words.
fn for_each_command(command: &Command, words: &str, visit: &mut impl FnMut(&str, &Command)) {
    for child in command.get_subcommands() {
        if child.is_hide_set() || child.get_name() == "help" {
            continue;
        }
        let words = format!("{words} {}", child.get_name());
        // A command whose subcommands are optional does something by itself.
        if !child.is_subcommand_required_set() {
            visit(&words, child);
        }
        for_each_command(child, &words, visit);
    }
}

fn is_of_all_commands(arg: &Arg) -> bool {
    arg.is_global_set() || matches!(arg.get_id().as_str(), "help" | "version")
}

fn commands_page() -> String {
    let help = |command: &Command| {
        let command = command.clone().term_width(HELP_COLUMNS).mut_args(|arg| arg.hide_env_values(true));
        command.clone().render_long_help().to_string()
    };
    let block = |text: &str| {
        let lines: Vec<&str> = text.trim_end().lines().map(str::trim_end).collect();
        format!("```text\n{}\n```\n", lines.join("\n"))
    };
    let command = whole();
    let mut page = String::from(
        "# Command line\n\nThe texts are those of `exacat --help` and `exacat COMMAND --help`. The first block has \
         the\noptions of all commands; the others leave them out.\n\n",
    );
    page.push_str(&block(&help(&command)));
    for_each_command(&command, "exacat", &mut |words, command| {
        let own = command.clone().mut_args(|arg| {
            let hidden = arg.is_hide_set() || is_of_all_commands(&arg);
            arg.hide(hidden)
        });
        let _ = write!(page, "\n## {words}\n\n{}", block(&help(&own)));
    });
    page
}

/// Returns text for a cell of a table. Its paragraphs become sentences.
fn cell(text: &str) -> String {
    let paragraphs: Vec<String> =
        text.split("\n\n").map(|text| text.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    let mut cell = String::new();
    for paragraph in &paragraphs {
        if !cell.is_empty() {
            cell.push_str(if cell.ends_with(['.', ':', ';']) { " " } else { ". " });
        }
        cell.push_str(paragraph);
    }
    cell.replace('|', "\\|")
}

/// Returns text in lines of at most `PAGE_COLUMNS`.
fn paragraph(text: &str) -> String {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        if lines.last().is_some_and(|line| line.len() + 1 + word.len() > PAGE_COLUMNS) {
            lines.push(String::new());
        }
        if let Some(line) = lines.last_mut() {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    lines.join("\n")
}

fn option_of(arg: &Arg) -> String {
    let name = match (arg.get_long(), arg.get_short()) {
        (Some(long), _) => format!("--{long}"),
        (None, Some(short)) => format!("-{short}"),
        (None, None) => String::new(),
    };
    let takes_value = arg.get_action().takes_values();
    let values: Vec<String> = match arg.get_value_names() {
        Some(names) if takes_value => names.iter().map(ToString::to_string).collect(),
        _ => Vec::new(),
    };
    [vec![name], values].concat().join(" ").trim().to_owned()
}

fn meaning_of(arg: &Arg) -> String {
    let text = arg.get_long_help().or_else(|| arg.get_help()).map(ToString::to_string).unwrap_or_default();
    let values: Vec<String> =
        arg.get_possible_values().iter().map(|value| value.get_name().to_owned()).collect();
    // A flag has the values true and false.
    if arg.get_action().takes_values() && !values.is_empty() {
        return cell(&format!("{text} ({})", values.join(", ")));
    }
    cell(&text)
}

fn env_of(arg: &Arg) -> Option<String> {
    arg.get_env().map(|name| name.to_string_lossy().into_owned())
}

fn configuration_page() -> String {
    let command = whole();
    let mut page = String::from(
        "# Configuration\n\nAn option has precedence over its variable. Values of an option that may be given \
         several times\nare separated by spaces in its variable.\n",
    );
    let Some(serve) = command.find_subcommand("serve") else { return page };
    let own: Vec<&Arg> =
        serve.get_arguments().filter(|arg| !is_of_all_commands(arg) && !arg.is_hide_set()).collect();
    let mut headings: Vec<&str> = Vec::new();
    for arg in &own {
        let heading = arg.get_help_heading().unwrap_or("General");
        if !headings.contains(&heading) {
            headings.push(heading);
        }
    }
    page.push_str("\n## Options of exacat serve\n");
    for heading in headings {
        let _ =
            write!(page, "\n### {heading}\n\n| option | variable | default | meaning |\n|---|---|---|---|\n");
        for arg in own.iter().filter(|arg| arg.get_help_heading().unwrap_or("General") == heading) {
            let defaults: Vec<String> =
                arg.get_default_values().iter().map(|value| value.to_string_lossy().into_owned()).collect();
            let default = if arg.get_action().takes_values() { defaults.join(" ") } else { String::new() };
            let variable = env_of(arg).map(|name| format!("`{name}`")).unwrap_or_default();
            let default = if default.is_empty() { default } else { format!("`{default}`") };
            let option = option_of(arg).replace('|', "\\|");
            let _ = writeln!(page, "| `{option}` | {variable} | {default} | {} |", meaning_of(arg));
        }
    }
    page.push_str(
        "\n## Variables of the other commands\n\n| variable | option | commands | meaning |\n|---|---|---|---|\n",
    );
    let mut variables: Vec<(String, String, Vec<String>, String)> = vec![(
        "EXACAT_TOKEN".to_owned(),
        String::new(),
        vec!["all".to_owned()],
        "The token to present; `--token-file` names a file with it".to_owned(),
    )];
    let mut note = |arg: &Arg, words: &str| {
        let Some(name) = env_of(arg) else { return };
        match variables.iter_mut().find(|(known, ..)| *known == name) {
            Some((.., commands, _)) => commands.push(words.to_owned()),
            None => variables.push((name, option_of(arg), vec![words.to_owned()], meaning_of(arg))),
        }
    };
    command.get_arguments().for_each(|arg| note(arg, "all"));
    for_each_command(&command, "", &mut |words, child| {
        let is_serve = child.get_name() == "serve";
        child
            .get_arguments()
            .filter(|arg| !is_serve && !is_of_all_commands(arg))
            .for_each(|arg| note(arg, words.trim()));
    });
    for (name, option, commands, meaning) in variables {
        let option = if option.is_empty() { option } else { format!("`{}`", option.replace('|', "\\|")) };
        let _ = writeln!(page, "| `{name}` | {option} | {} | {meaning} |", commands.join(", "));
    }
    page
}

fn metrics_page() -> String {
    let mut page = String::from(
        "# Metrics\n\nThe server answers `GET /metrics` on the address of `--http`: OpenMetrics for a client that asks for \
         it\nby `Accept`, otherwise the text format 0.0.4. Names end in the base unit. Histograms of times have\nthe same \
         buckets, and so have those of sizes. `exacat status` has many of these metrics as whole\nnumbers, under the name \
         in the last column; `{}` is the value of the first label.\n",
    );
    for (of, metrics) in exacat_server::reference::metrics() {
        let _ = write!(
            page,
            "\n## Metrics of {of}\n\n| metric | type | labels | meaning | in `exacat status` |\n|---|---|---|---|---|\n"
        );
        for metric in metrics {
            let kind = match metric.kind {
                MetricKind::Counter => "counter",
                MetricKind::Gauge => "gauge",
                MetricKind::Histogram => "histogram",
            };
            let ends = if metric.kind == MetricKind::Histogram {
                "_count`, `_sum`, `_p50`, `_p99`, `_p999`, `_max"
            } else {
                ""
            };
            let status = match metric.status {
                "" => String::new(),
                status => format!("`{status}{ends}`"),
            };
            let (name, labels) = (metric.full_name(), metric.labels.join(", "));
            let _ = writeln!(page, "| `{name}` | {kind} | {labels} | {} | {status} |", cell(metric.help));
        }
    }
    page
}

fn errors_page() -> String {
    let mut page = String::from(
        "# Errors\n\nThe kind is the interface; the text of an error may change. Kinds marked *retry* may succeed when \
         the\nclient sends the same request again, with the same operation id.\n\n\
         | kind | meaning | exit status | HTTP | native | errno | XRootD | retry |\n|---|---|---|---|---|---|---|---|\n",
    );
    for kind in ErrorKind::ALL {
        let _ = writeln!(
            page,
            "| `{}` | {} | {} | {} | {} | {} | {} | {} |",
            kind.name(),
            cell(kind.meaning()),
            status_of(kind),
            http_status(kind),
            kind as u8,
            errno(kind).0,
            xrootd(kind).map_or("wait".to_owned(), |number| number.to_string()),
            if kind.is_retryable() { "retry" } else { "" },
        );
    }
    let _ = write!(
        page,
        "\n## Other exit statuses\n\n| status | meaning |\n|---|---|\n\
         | 0 | The command did everything. |\n\
         | {STATUS_LOCAL} | Wrong use, or an error of this machine; its kind in JSON is `{KIND_LOCAL}`. |\n\
         | {STATUS_REJECTED} | Rows of a listing were rejected. |\n\
         | 31 to 38 | A condition stopped or failed a replay: see [Test a cache](../operating/replay.md). |\n\
         | {STATUS_INTERRUPTED} | Interrupted (SIGINT). |\n\
         | {STATUS_TERMINATED} | Terminated (SIGTERM). |\n",
    );
    page
}
