//! `throttle`, `drain`: control of a running server.

use exacat_model::answer::Throttle;
use exacat_model::operation::Owner;
use exacat_model::{Answer, Error, Operation};
use exacat_wire::json;

use crate::args::{DrainArgs, ThrottleCommand};
use crate::context::Context;
use crate::failure::Failure;
use crate::output::{Align, Table};
use crate::parse;

/// `exacat throttle`
pub(crate) async fn throttle(context: &mut Context, command: ThrottleCommand) -> Result<(), Failure> {
    let (text, operation) = match command {
        ThrottleCommand::Ls {} => {
            return match context.call(Operation::ThrottleList).await? {
                Answer::Throttles(all) => show(context, &all),
                other => Err(Failure::unexpected(&other)),
            };
        }
        ThrottleCommand::Set { users, rate } => {
            let items = parse::count(&rate)?;
            let too_many =
                |_| Error::limit("the items a second of a throttle", items as usize, u32::MAX as usize);
            let items_per_second = Some(u32::try_from(items).map_err(too_many)?);
            let owner = owner(&users)?;
            (users, Operation::ThrottleSet { owner, items_per_second })
        }
        ThrottleCommand::Clear { users } => {
            let owner = owner(&users)?;
            (users, Operation::ThrottleSet { owner, items_per_second: None })
        }
    };
    context.call(operation).await.map_err(|error| Failure::about(&text, error))?;
    context.show_done(&text)
}

/// Reads the users that a throttle limits.
fn owner(text: &str) -> Result<Option<Owner>, Failure> {
    if text == json::EVERYBODY { Ok(None) } else { Ok(Some(parse::owner(text)?)) }
}

fn show(context: &mut Context, all: &[Throttle]) -> Result<(), Failure> {
    if context.out.style.json {
        return all.iter().try_for_each(|one| context.out.json(&json::throttle(one)));
    }
    let right = Align::Right;
    let mut table = Table::headed([
        ("USERS", Align::Left),
        ("ITEMS/S", right),
        ("WAITING", right),
        ("DELAYED", right),
        ("REFUSED", right),
    ]);
    for one in all {
        let numbers = [u64::from(one.items_per_second), one.waiting, one.delayed, one.refused];
        let [rate, waiting, delayed, refused] = numbers.map(|number| number.to_string());
        table.row([json::throttled(one.owner.as_ref()), rate, waiting, delayed, refused]);
    }
    context.out.table(&table)
}

/// `exacat drain`
pub(crate) async fn drain(context: &mut Context, args: DrainArgs) -> Result<(), Failure> {
    context.call(Operation::Drain { resume: args.resume }).await?;
    context.show_done(if args.resume { "resumed" } else { "drained" })
}
