//! Many clients want the same name over the network; exactly one gets it.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a test fails by panicking, and says what it skipped or counted"
)]

mod service;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use exacat_client::{Client, ClientSettings, Credentials, Target};
use exacat_model::operation::{Existing, NewFile, Registered};
use exacat_model::{Answer, ErrorKind, Guid, Kind, Lfn, Operation, Result};
use service::Service;
use tokio::sync::Barrier;

/// Creators that want each name.
const CREATORS: usize = 64;
/// Wanted names.
const NAMES: usize = 10_000;
/// Names in one request.
const NAMES_TOGETHER: usize = 250;
/// Names wanted by every kind of operation.
const NAMES_IN_EVERY_WAY: usize = 512;
/// Time limit of the test, on a slow machine too.
const LIMIT: Duration = Duration::from_secs(300);

fn lfn(text: &str) -> Lfn {
    Lfn::parse(text).unwrap()
}

/// GUID that a creator gives its file of that name: shows the winner.
fn guid(creator: usize, name: usize) -> Guid {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&(creator as u64 + 1).to_be_bytes());
    bytes[8..].copy_from_slice(&(name as u64 + 1).to_be_bytes());
    Guid(bytes)
}

async fn clients(service: &Service) -> Vec<Client> {
    let target = Target::parse(service.local_url()).unwrap();
    let settings = ClientSettings { deadline: Duration::from_secs(120), ..ClientSettings::default() };
    let mut clients = Vec::new();
    for _ in 0..CREATORS {
        clients.push(Client::connect(target.clone(), Credentials::local(), settings.clone()).await.unwrap());
    }
    clients
}

/// Lets a creator ask for all names, in batches that overlap those of the others in another order
/// each.
async fn want_all(
    client: Client,
    creator: usize,
    together: Arc<Barrier>,
) -> Vec<(usize, Result<Registered>)> {
    let mut answers = Vec::with_capacity(NAMES);
    for batch in 0..NAMES / NAMES_TOGETHER {
        let mut names: Vec<usize> = (batch * NAMES_TOGETHER..(batch + 1) * NAMES_TOGETHER).collect();
        names.rotate_left(creator * NAMES_TOGETHER / CREATORS);
        if creator % 2 == 1 {
            names.reverse();
        }
        let files = names
            .iter()
            .map(|name| NewFile {
                guid: Some(guid(creator, *name)),
                size: Some(creator as u64),
                ..NewFile::named(lfn(&format!("/won/{name}")))
            })
            .collect();
        together.wait().await;
        let register = Operation::Register { files, parents: false, existing: Existing::Refuse };
        match client.call(register).await.unwrap() {
            Answer::Registered(each) => answers.extend(names.into_iter().zip(each)),
            other => panic!("{other:?}"),
        }
    }
    answers
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_64_creators_of_a_name_one_wins() {
    let service = Service::start();
    let clients = clients(&service).await;
    clients[0].call(Operation::Mkdir { lfns: vec![lfn("/won")], parents: false, mode: None }).await.unwrap();
    let together = Arc::new(Barrier::new(CREATORS));
    let tasks: Vec<_> = clients
        .iter()
        .enumerate()
        .map(|(creator, client)| tokio::spawn(want_all(client.clone(), creator, Arc::clone(&together))))
        .collect();
    let mut winner: HashMap<usize, usize> = HashMap::new();
    let mut losers = 0;
    for (creator, task) in tasks.into_iter().enumerate() {
        for (name, answer) in tokio::time::timeout(LIMIT, task).await.unwrap().unwrap() {
            match answer {
                Ok(Registered::Created(made)) => {
                    assert_eq!(made, guid(creator, name));
                    let other = winner.insert(name, creator);
                    assert_eq!(other, None, "/won/{name} was given to {creator} too");
                }
                Ok(other) => panic!("{other:?}"),
                Err(error) if error.kind == ErrorKind::Exists => losers += 1,
                Err(error) => panic!("/won/{name}: {error}"),
            }
        }
    }
    assert_eq!((winner.len(), losers), (NAMES, NAMES * (CREATORS - 1)));
    // The creator with the success is the owner of the name, and the losers' content is nowhere.
    for names in (0..NAMES).collect::<Vec<_>>().chunks(1000) {
        let lfns = names.iter().map(|name| lfn(&format!("/won/{name}"))).collect();
        let answer = clients[0].call(Operation::Stat { lfns, follow: false }).await.unwrap();
        let Answer::Stats(stats) = answer else { panic!("{answer:?}") };
        for (name, stat) in names.iter().zip(stats) {
            let file = stat.unwrap();
            assert_eq!(file.entry.guid(), Some(guid(winner[name], *name)), "/won/{name}");
            assert_eq!(file.entry.size(), Some(winner[name] as u64));
        }
    }
    let lost =
        (0..CREATORS).filter(|creator| winner[&0] != *creator).map(|creator| guid(creator, 0)).collect();
    let Answer::Lfns(nowhere) = clients[0].call(Operation::Lfns { guids: lost }).await.unwrap() else {
        panic!()
    };
    assert!(nowhere.iter().all(|found| found.as_ref().is_err_and(|error| error.kind == ErrorKind::NotFound)));
    let winners: std::collections::HashSet<usize> = winner.values().copied().collect();
    assert!(winners.len() > 1, "one creator won all: they did not meet");
    let usage = &service.json1("du /won")["usage"];
    assert_eq!(usage["files"], NAMES);
    let sizes: u64 = winner.values().map(|creator| *creator as u64).sum();
    assert_eq!(usage["bytes"], sizes);
    assert_eq!(service.json1("fsck")["findings_total"], 0);
}

/// Directory with the targets of unbroken links.
const LINKED: &str = "/linked";

/// Returns the operation by which a creator wants a name: its number chooses the kind.
fn way(creator: usize, name: usize) -> Operation {
    let wanted = lfn(&format!("/won/{name}"));
    match kind_of_way(creator, name) {
        Some(Kind::Directory) => Operation::Mkdir { lfns: vec![wanted], parents: false, mode: None },
        Some(Kind::Link) => {
            let target = if links_lead_somewhere(name) { LINKED } else { "/nowhere" };
            Operation::Link { lfn: wanted, target: lfn(target) }
        }
        Some(Kind::Collection) => Operation::CollectionCreate { lfn: wanted, tags: Vec::new() },
        Some(Kind::File) => Operation::Move { from: lfn(&format!("/own/{creator}/{name}")), to: wanted },
        None => {
            let file = NewFile { guid: Some(guid(creator, name)), ..NewFile::named(wanted) };
            Operation::Register { files: vec![file], parents: false, existing: Existing::Refuse }
        }
    }
}

/// Kind of the entry that an operation makes; a file by a move; none for a file that is registered.
fn kind_of_way(creator: usize, name: usize) -> Option<Kind> {
    match creator % 5 {
        0 if name % 3 != 1 => Some(Kind::Directory),
        1 if !name.is_multiple_of(3) => Some(Kind::File),
        2 => Some(Kind::Link),
        3 => Some(Kind::Collection),
        _ => None,
    }
}

fn links_lead_somewhere(name: usize) -> bool {
    name % 4 == 1
}

/// Returns the place where one mover can win inside of the name, if there is one. A move to a
/// directory, or to a link to one, moves into it under the file's own name. All movers have a file
/// of that name, so one of them can win there too.
fn place_inside(winner: Option<Kind>, name: usize) -> Option<String> {
    match winner {
        Some(Kind::Directory) => Some(format!("/won/{name}/{name}")),
        Some(Kind::Link) if links_lead_somewhere(name) => Some(format!("{LINKED}/{name}")),
        _ => None,
    }
}

fn won(answer: &Result<Answer>) -> bool {
    let refused = |error: &exacat_model::Error| {
        assert_eq!(error.kind, ErrorKind::Exists, "{error}");
        false
    };
    match answer {
        Ok(Answer::EachDone(each)) => each[0].as_ref().map_or_else(refused, |()| true),
        Ok(Answer::Registered(each)) => each[0].as_ref().map_or_else(refused, |_| true),
        Ok(Answer::Done { .. }) => true,
        Ok(other) => panic!("{other:?}"),
        Err(error) => refused(error),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_they_make_and_however() {
    let service = Service::start();
    let clients = clients(&service).await;
    let both = vec![lfn("/won"), lfn(LINKED)];
    clients[0].call(Operation::Mkdir { lfns: both, parents: false, mode: None }).await.unwrap();
    let together = Arc::new(Barrier::new(CREATORS));
    let tasks: Vec<_> = clients
        .iter()
        .enumerate()
        .map(|(creator, client)| {
            let (client, together) = (client.clone(), Arc::clone(&together));
            tokio::spawn(async move {
                if creator % 5 == 1 {
                    let own = (0..NAMES_IN_EVERY_WAY).map(|name| NewFile {
                        guid: Some(guid(creator, name)),
                        ..NewFile::named(lfn(&format!("/own/{creator}/{name}")))
                    });
                    let files = own.collect();
                    let register = Operation::Register { files, parents: true, existing: Existing::Refuse };
                    client.call(register).await.unwrap();
                }
                together.wait().await;
                let ways = (0..NAMES_IN_EVERY_WAY).map(|name| way(creator, name)).collect();
                let answers = client.call_batch(ways).await.unwrap();
                answers.iter().map(won).collect::<Vec<bool>>()
            })
        })
        .collect();
    let mut winners: Vec<Vec<usize>> = vec![Vec::new(); NAMES_IN_EVERY_WAY];
    for (creator, task) in tasks.into_iter().enumerate() {
        for (name, won) in tokio::time::timeout(LIMIT, task).await.unwrap().unwrap().into_iter().enumerate() {
            if won {
                winners[name].push(creator);
            }
        }
    }
    let stats = async |lfns: Vec<Lfn>| match clients[0].call(Operation::Stat { lfns, follow: false }).await {
        Ok(Answer::Stats(stats)) => stats,
        other => panic!("{other:?}"),
    };
    let standing = stats((0..NAMES_IN_EVERY_WAY).map(|name| lfn(&format!("/won/{name}"))).collect()).await;
    let mut inside = 0;
    for (name, (winners, stat)) in winners.iter().zip(standing).enumerate() {
        let stat = stat.unwrap();
        // Successful, but not the owner of the name: they moved into it.
        let (here, within): (Vec<usize>, Vec<usize>) = winners.iter().partition(|winner| {
            let made = kind_of_way(**winner, name);
            made != Some(Kind::File) || stat.entry.guid() == Some(guid(**winner, name))
        });
        assert_eq!(here.len(), 1, "/won/{name}: {winners:?}");
        let way = kind_of_way(here[0], name);
        let kind = way.unwrap_or(Kind::File);
        assert_eq!(stat.entry.kind(), kind, "/won/{name}");
        if kind == Kind::File {
            assert_eq!(stat.entry.guid(), Some(guid(here[0], name)), "/won/{name}");
        }
        match (place_inside(way, name), &within[..]) {
            (_, []) => {}
            (Some(place), [mover]) => {
                let moved = stats(vec![lfn(&place)]).await.remove(0).unwrap();
                assert_eq!(moved.entry.guid(), Some(guid(*mover, name)), "{place}");
                inside += 1;
            }
            (place, movers) => panic!("/won/{name} of {here:?}: {movers:?} moved, to {place:?}"),
        }
    }
    println!(
        "{inside} of {NAMES_IN_EVERY_WAY} names were won by a directory, or a link to one, that a file moved into"
    );
    // Every file is where its mover left it, or at the place of its successful move.
    let files = service.json1("du /own")["usage"]["files"].as_u64().unwrap();
    let movers = (0..CREATORS).filter(|creator| creator % 5 == 1).count();
    let moved: usize = (0..NAMES_IN_EVERY_WAY)
        .map(|name| winners[name].iter().filter(|one| kind_of_way(**one, name) == Some(Kind::File)).count())
        .sum();
    assert_eq!(files as usize, movers * NAMES_IN_EVERY_WAY - moved);
    assert_eq!(service.json1("fsck")["findings_total"], 0);
}
