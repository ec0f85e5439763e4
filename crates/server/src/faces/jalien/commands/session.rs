//! Commands for the client's identity and current directory.

use std::time::{Duration, Instant};

use exacat_model::answer::UserInfo;
use exacat_model::{AccountName, Answer, Guid, Operation, Role};
use exacat_wire::jalien::{Item, errno, path};

use super::{all, missing, named, options};
use crate::faces::jalien::shell::{Command, Failure, Outcome, Shell, unexpected};

pub(super) const COMMANDS: &[Command] = &[
    Command { name: "pwd", usage: "\nTells the current directory.", run: |s, o| Box::pin(pwd(s, o)) },
    Command { name: "cd", usage: "[DIR]\nGoes to DIR, or home.", run: |s, o| Box::pin(cd(s, o)) },
    Command { name: "commandlist", usage: "\nTells all commands.", run: |s, o| Box::pin(commandlist(s, o)) },
    Command {
        name: "help",
        usage: "[COMMAND]…\nTells how commands are used.",
        run: |s, o| Box::pin(help(s, o)),
    },
    Command {
        name: "whoami",
        usage: "[-v]\nTells who you are; -v all that is known of it.",
        run: |s, o| Box::pin(whoami(s, o)),
    },
    Command {
        name: "user",
        usage: "[ROLE]\nActs as ROLE from now on: an account that yours may become; without, as yourself again.",
        run: |s, o| Box::pin(user(s, o)),
    },
    Command { name: "groups", usage: "[USER]\nTells your groups.", run: |s, o| Box::pin(groups(s, o)) },
    Command { name: "whois", usage: "USER…\nShows users.", run: |s, o| Box::pin(whois(s, o)) },
    Command {
        name: "groupmembers",
        usage: "GROUP\nLists the users of a group.",
        run: |s, o| Box::pin(groupmembers(s, o)),
    },
    Command {
        name: "setSite",
        usage: "[SITE]\nTells from which site files are read and written; without, it is forgotten.",
        run: |s, o| Box::pin(set_site(s, o)),
    },
    Command {
        name: "timing",
        usage: "on|off\nTells how long each command takes.",
        run: |s, o| Box::pin(timing(s, o)),
    },
    Command {
        name: "time",
        usage: "COUNT COMMAND [OPTION]…\nCarries a command out COUNT times, 1000 at most, and tells how long it takes.",
        run: |s, o| Box::pin(time(s, o)),
    },
    Command { name: "version", usage: "\nShows the server's version.", run: |s, o| Box::pin(version(s, o)) },
    Command { name: "echo", usage: "[TEXT]…\nTells it back.", run: |s, o| Box::pin(echo(s, o)) },
    Command { name: "motd", usage: "\nTells the message of the day.", run: |s, o| Box::pin(motd(s, o)) },
    Command {
        name: "guidinfo",
        usage: "GUID…\nShows the time in a GUID itself: when it was made.",
        run: |s, o| Box::pin(guidinfo(s, o)),
    },
    Command {
        name: "uuid",
        usage: "GUID…\nTells when GUIDs were made, as guidinfo does.",
        run: |s, o| Box::pin(uuid(s, o)),
    },
];

/// Most repetitions of a command to measure it.
const REPEATS_MAX: usize = 1000;

async fn pwd(shell: &mut Shell, _given: Vec<String>) -> Outcome {
    let text = path::directory_text(&shell.directory());
    shell.say(Item::new().with("pwd", text.clone()).saying(text)).await
}

async fn cd(shell: &mut Shell, given: Vec<String>) -> Outcome {
    let options = options(&[], &[], given)?;
    match options.rest.first() {
        Some(text) => shell.change_directory(text).await,
        None => {
            let home = shell.home.clone();
            shell.change_directory(home.as_str()).await
        }
    }
}

async fn commandlist(shell: &mut Shell, _given: Vec<String>) -> Outcome {
    let mut names: Vec<&str> = all().map(|command| command.name).collect();
    names.sort_unstable();
    let mut message = Some(names.join("\n"));
    for name in names {
        let item = Item::new().with("commandlist", name);
        let item = match message.take() {
            Some(message) => item.saying(message),
            None => item,
        };
        shell.say(item).await?;
    }
    Ok(())
}

async fn help(shell: &mut Shell, given: Vec<String>) -> Outcome {
    if given.is_empty() {
        let mut names: Vec<&str> = all().map(|command| command.name).collect();
        names.sort_unstable();
        return shell.say(Item::text(names.join("\n"))).await;
    }
    for name in given {
        match named(&name) {
            Some(command) => shell.say(Item::text(command.help())).await?,
            None => {
                shell.fail_later(Failure::new(errno::ENOENT, format!("Command [{name:.100}] not found!")))
            }
        }
    }
    Ok(())
}

/// Returns the catalogue's record of the caller.
async fn myself(shell: &mut Shell) -> Outcome<UserInfo> {
    match shell.ask(Operation::Whoami).await? {
        Answer::Whoami { user: Some(user), .. } => Ok(*user),
        Answer::Whoami { user: None, .. } => Err(Failure::new(errno::EPERM, "nobody")),
        _ => Err(unexpected()),
    }
}

fn joined<T: std::fmt::Display>(names: impl IntoIterator<Item = T>) -> String {
    names.into_iter().map(|name| name.to_string()).collect::<Vec<_>>().join(",")
}

fn roles(user: &UserInfo) -> String {
    let own = user.roles.iter().map(|role: &Role| role.name().to_owned());
    joined(own.chain(user.may_become.iter().map(|name| name.to_string())))
}

async fn whoami(shell: &mut Shell, given: Vec<String>) -> Outcome {
    let options = options(&["v"], &[], given)?;
    let user = myself(shell).await?;
    let base = shell.base.name().map_or_else(String::new, |name| name.to_string());
    let item = Item::new()
        .with("username", base.clone())
        .with("role", user.name.as_str())
        .with("roles", roles(&user));
    if !options.has("v") {
        return shell.say(item.saying(user.name.as_str())).await;
    }
    let expires = shell.shown.expires;
    let home = path::directory_text(&shell.home);
    let text = format!(
        "Username: {base}\nRole: {}\nRoles: {}\nCertificate: {}\nCertificate expires: {expires}\nConnected from: {}\nHome: {home}",
        user.name,
        roles(&user),
        shell.subject(),
        shell.peer.ip(),
    );
    let item = item
        .with("fullname", "")
        .with("email", "")
        .with("certificate_expires", expires.0.to_string())
        .with("certificate_dn", shell.subject())
        .with("connected_from", shell.peer.ip().to_string())
        .with("homedir", home)
        .saying(text);
    shell.say(item).await
}

async fn user(shell: &mut Shell, given: Vec<String>) -> Outcome {
    let options = options(&[], &[], given)?;
    let role = match options.rest.first() {
        None => None,
        Some(text) => {
            let name = AccountName::parse(text)?;
            Some(name).filter(|name| shell.base.name() != Some(name))
        }
    };
    shell.act_as(role).await?;
    let home = shell.home.clone();
    shell.set_directory(home.clone());
    shell.say(Item::new().with("homedir", path::directory_text(&home))).await
}

async fn groups(shell: &mut Shell, given: Vec<String>) -> Outcome {
    let user = match given.first() {
        None => myself(shell).await?,
        Some(name) => account(shell, name).await?,
    };
    let mut members: Vec<String> = vec![user.group.to_string()];
    members.extend(user.groups.iter().map(|name| name.to_string()));
    let text =
        format!("User: {}, main group: {}\nMember of groups: {} ", user.name, user.group, members.join(" "));
    let item = Item::new()
        .with("username", user.name.as_str())
        .with("maingroup", user.group.as_str())
        .with("groups", members.join(","));
    shell.say(item.saying(text)).await
}

async fn accounts(shell: &mut Shell) -> Outcome<Vec<UserInfo>> {
    match shell.ask(Operation::AccountList).await? {
        Answer::Accounts { users, .. } => Ok(users),
        _ => Err(unexpected()),
    }
}

async fn account(shell: &mut Shell, name: &str) -> Outcome<UserInfo> {
    let users = accounts(shell).await?;
    let found = users.into_iter().find(|user| user.name.as_str() == name);
    found.ok_or_else(|| Failure::new(errno::ENOENT, format!("no such user: {name:.100}")))
}

async fn whois(shell: &mut Shell, given: Vec<String>) -> Outcome {
    let options = options(&["a", "s", "f", "d"], &[], given)?;
    if options.rest.is_empty() {
        return Err(missing("whois"));
    }
    for name in &options.rest {
        let found = account(shell, name).await;
        let Some(user) = shell.note(found) else { continue };
        let text = format!(
            "Username: {}\nMain group: {}\nGroups: {}\nRoles: {}",
            user.name,
            user.group,
            joined(&user.groups),
            roles(&user)
        );
        let item = Item::new()
            .with("username", user.name.as_str())
            .with("maingroup", user.group.as_str())
            .with("groups", joined(&user.groups))
            .with("roles", roles(&user));
        shell.say(item.saying(text)).await?;
    }
    Ok(())
}

async fn groupmembers(shell: &mut Shell, given: Vec<String>) -> Outcome {
    let Some(name) = given.first().cloned() else { return Err(missing("groupmembers")) };
    let users = accounts(shell).await?;
    let is_in = |user: &&UserInfo| {
        user.group.as_str() == name || user.groups.iter().any(|group| group.as_str() == name)
    };
    let members = joined(users.iter().filter(is_in).map(|user| &user.name));
    shell.say(Item::new().with("group", name.clone()).with("members", members.clone()).saying(members)).await
}

async fn set_site(shell: &mut Shell, given: Vec<String>) -> Outcome {
    let site = match given.first() {
        None => None,
        Some(text) => Some(AccountName::parse(text)?),
    };
    let text = site.as_ref().map_or_else(|| "no site".to_owned(), |site| format!("site: {site}"));
    shell.set_site(site);
    shell.say(Item::text(text)).await
}

async fn timing(shell: &mut Shell, given: Vec<String>) -> Outcome {
    match given.first().map(String::as_str) {
        Some("on") => shell.timing = true,
        Some("off") => shell.timing = false,
        _ => return Err(missing("timing")),
    }
    Ok(())
}

async fn time(shell: &mut Shell, mut given: Vec<String>) -> Outcome {
    if given.len() < 2 {
        return Err(missing("time"));
    }
    let rest = given.split_off(2);
    let count: usize = given[0].parse().map_err(|_| missing("time"))?;
    if count == 0 || count > REPEATS_MAX {
        return Err(missing("time"));
    }
    let command = named(&given[1])
        .filter(|command| command.name != "time")
        .ok_or_else(|| Failure::new(errno::ENOENT, format!("Command [{:.100}] not found!", given[1])))?;
    let mut times = Vec::with_capacity(count);
    for _ in 0..count {
        let began = Instant::now();
        shell.capture(command, rest.clone()).await?;
        times.push(began.elapsed());
    }
    let ms = |time: Duration| format!("{:.3}", time.as_secs_f64() * 1000.0);
    let total: Duration = times.iter().sum();
    times.sort_unstable();
    let average = total / u32::try_from(count).unwrap_or(1);
    let (least, most) =
        (times.first().copied().unwrap_or_default(), times.last().copied().unwrap_or_default());
    let text = format!(
        "{} x {}: {} ms on average, {} ms at least, {} ms at most",
        count,
        command.name,
        ms(average),
        ms(least),
        ms(most)
    );
    let item = Item::new()
        .with("count", count.to_string())
        .with("average_ms", ms(average))
        .with("min_ms", ms(least))
        .with("max_ms", ms(most));
    shell.say(item.saying(text)).await
}

async fn version(shell: &mut Shell, _given: Vec<String>) -> Outcome {
    let version = env!("CARGO_PKG_VERSION");
    let item = Item::new()
        .with("tag", version)
        .with("git_hash", "")
        .with("compiled_at", "")
        .with("compiled_by", "exacat")
        .saying(format!("exacat {version}"));
    shell.say(item).await
}

async fn echo(shell: &mut Shell, given: Vec<String>) -> Outcome {
    shell.say(Item::text(given.join(" "))).await
}

async fn motd(shell: &mut Shell, _given: Vec<String>) -> Outcome {
    shell.say(Item::text("exacat: `commandlist` tells all commands, COMMAND -h how one is used")).await
}

async fn guidinfo(shell: &mut Shell, given: Vec<String>) -> Outcome {
    guids_told(shell, "guidinfo", given).await
}

async fn uuid(shell: &mut Shell, given: Vec<String>) -> Outcome {
    guids_told(shell, "uuid", given).await
}

async fn guids_told(shell: &mut Shell, command: &str, given: Vec<String>) -> Outcome {
    let options = options(&[], &[], given)?;
    if options.rest.is_empty() {
        return Err(missing(command));
    }
    for text in &options.rest {
        let Some(guid) = shell.note(Guid::parse(text)) else { continue };
        let time = guid.time();
        // Only GUIDs of version 1 name the machine.
        let machine = match guid.version() {
            Some(1) => guid.0[10..].iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(":"),
            _ => String::new(),
        };
        let made = time.map_or_else(|| "not told".to_owned(), |time| time.to_string());
        let item = Item::new()
            .with("guid", guid.to_string())
            .with("mtime", time.map(|time| time.0.to_string()).unwrap_or_default())
            .with("mac", machine.clone())
            .saying(format!("{guid}: made {made}{}{machine}", if machine.is_empty() { "" } else { " by " }));
        shell.say(item).await?;
    }
    Ok(())
}
