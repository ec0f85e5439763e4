//! `sessions`, `slow`: requests in progress, and requests that took long.

use exacat_model::period::RequestShown;
use exacat_model::{Answer, Operation};
use exacat_wire::json;

use crate::args::{SessionsArgs, SessionsCommand};
use crate::context::Context;
use crate::failure::Failure;
use crate::output::human::{self, plural};
use crate::output::{Align, Out, Table};

/// `exacat sessions`
pub(crate) async fn sessions(context: &mut Context, args: SessionsArgs) -> Result<(), Failure> {
    if let Some(SessionsCommand::Kill { id }) = args.command {
        context.call(Operation::SessionKill { id }).await?;
        return context.show_done(&id.to_string());
    }
    let requests = requests(context, Operation::Sessions).await?;
    let out = &mut context.out;
    if out.style.json {
        return requests.iter().try_for_each(|request| out.json(&json::request(request)));
    }
    show(out, &requests, "STATE", |request| request.state.clone())?;
    summary(out, requests.len(), "in progress")
}

/// `exacat slow`
pub(crate) async fn slow(context: &mut Context) -> Result<(), Failure> {
    let requests = requests(context, Operation::SlowRequests).await?;
    let out = &mut context.out;
    if out.style.json {
        return requests.iter().try_for_each(|request| out.json(&json::request(request)));
    }
    show(out, &requests, "MOST TIME IN", most)?;
    summary(out, requests.len(), "that took long since the server started")
}

async fn requests(context: &mut Context, operation: Operation) -> Result<Vec<RequestShown>, Failure> {
    match context.call(operation).await? {
        Answer::Requests(requests) => Ok(requests),
        other => Err(Failure::unexpected(&other)),
    }
}

/// Returns the state that a request was in for most of its life, and its share.
fn most(request: &RequestShown) -> String {
    let longest = request.states.iter().max_by_key(|(_, us)| *us);
    longest.map_or_else(String::new, |(state, us)| {
        format!("{state} {} %", us.saturating_mul(100) / request.life_us.max(1))
    })
}

fn show(
    out: &mut Out,
    requests: &[RequestShown],
    heading: &str,
    state: fn(&RequestShown) -> String,
) -> Result<(), Failure> {
    if requests.is_empty() {
        return Ok(());
    }
    let left = Align::Left;
    let mut table = Table::new([Align::Right, left, left, left, Align::Right, left, left]);
    table.row(["ID", "BEGAN", "OPERATION", "USER", "TIME", heading, "PATH"].map(str::to_owned));
    for request in requests {
        let user = request.user.as_ref().map_or_else(|| "-".to_owned(), ToString::to_string);
        table.row([
            request.id.to_string(),
            human::second(request.began),
            request.operation.clone(),
            user,
            human::microseconds(request.life_us),
            state(request),
            out.name(&request.subject).to_string(),
        ]);
    }
    out.table(&table)
}

fn summary(out: &mut Out, count: usize, what: &str) -> Result<(), Failure> {
    if out.style.quiet {
        return Ok(());
    }
    out.line(format!("{} {what}", plural(count as u64, "request")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn state_of_most_time_is_named_with_its_share() {
        let states = vec![("execute".to_owned(), 10), ("log_sync".to_owned(), 80), ("encode".to_owned(), 10)];
        let request = RequestShown { life_us: 100, states, ..RequestShown::default() };
        assert_eq!(most(&request), "log_sync 80 %");
        assert_eq!(most(&RequestShown::default()), "");
    }
}
