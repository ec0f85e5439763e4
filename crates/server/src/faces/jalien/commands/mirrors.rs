//! Commands for existing replicas: register one, and pick PFNs at random.

use exacat_model::operation::{NewReplica, ReplicaEdit};
use exacat_model::{Answer, Cursor, Error, Operation, Pfn, ReplicaState, Se, SeName};
use exacat_wire::jalien::{Item, errno};

use super::replicas::file_of;
use super::{missing, options};
use crate::faces::jalien::shell::{Command, Failure, Outcome, Shell, unexpected};
use crate::faces::jalien::texts;
use crate::randomness;

pub(super) const COMMANDS: &[Command] = &[
    Command {
        name: "addMirror",
        usage: "[-g] LFN|GUID SE [PFN]\nRegisters a replica that is on a storage element already; without PFN, where the storage \
                element keeps files by GUID.",
        run: |s, o| Box::pin(add_mirror(s, o)),
    },
    Command {
        name: "randomPFNs",
        usage: "SE COUNT\nTells PFNs of files on a storage element, chosen at random; 1000 at most. For operators.",
        run: |s, o| Box::pin(random_pfns(s, o)),
    },
];

/// Most PFNs of one answer.
const RANDOM_MAX: usize = 1000;
/// Number of files to choose from: the first ones of the storage element, in the order of the
/// catalogue.
const CHOSEN_AMONG_MAX: u64 = 100_000;

async fn add_mirror(shell: &mut Shell, given: Vec<String>) -> Outcome {
    let options = options(&["g", "c", "U"], &["m"], given)?;
    let (file, se, pfn) = match options.rest.as_slice() {
        [file, se] => (file, se, None),
        [file, se, pfn] => (file, se, Some(Pfn::parse(pfn)?)),
        _ => return Err(missing("addMirror")),
    };
    let file = file_of(shell, file, options.has("g"))?;
    let name = SeName::parse(se)?;
    let put = NewReplica { se: name.clone(), pfn, state: ReplicaState::Available };
    let edits = vec![(file, vec![ReplicaEdit::Put(put)])];
    let Answer::EachDone(done) = shell.ask(Operation::SetReplicas { edits }).await? else {
        return Err(unexpected());
    };
    done.into_iter().collect::<Result<Vec<()>, Error>>()?;
    shell.say(Item::text(format!("Mirror registered on {name}"))).await
}

/// Returns the storage element with a name or a number.
async fn storage_element(shell: &mut Shell, text: &str) -> Outcome<Se> {
    let ses = shell.ses_now().await?;
    let meant = |se: &&exacat_model::answer::SeUsage| {
        se.se.name.as_str().eq_ignore_ascii_case(text) || se.se.number.0.to_string() == text
    };
    let found = ses.iter().find(meant).map(|se| se.se.clone());
    found.ok_or_else(|| Failure::new(errno::ENOENT, format!("no such storage element: {text:.100}")))
}

async fn random_pfns(shell: &mut Shell, given: Vec<String>) -> Outcome {
    let options = options(&[], &[], given)?;
    let [se, count] = options.rest.as_slice() else { return Err(missing("randomPFNs")) };
    let count: usize = count.parse().map_err(|_| missing("randomPFNs"))?;
    if count == 0 || count > RANDOM_MAX {
        return Err(missing("randomPFNs"));
    }
    let se = storage_element(shell, se).await?;
    let files = Operation::SeFiles { name: se.name.clone(), cursor: Cursor::default(), limit: 0 };
    let mut next = Some(files);
    let mut chosen: Vec<(String, String)> = Vec::new();
    let mut seen = 0u64;
    while seen < CHOSEN_AMONG_MAX
        && let Some(answer) = shell.page(&mut next).await?
    {
        let Answer::Entries { items, .. } = answer else { return Err(unexpected()) };
        for stat in &items {
            let Some(file) = stat.entry.file() else { continue };
            let Some(replica) = file.replica(se.number) else { continue };
            seen += 1;
            // Reservoir sampling: each file seen so far is chosen with the same chance.
            let place = match chosen.len() < count {
                true => chosen.len(),
                false => usize::try_from(below(seen)?).unwrap_or(usize::MAX),
            };
            let one = (replica.pfn(file.guid, Some(&se)), texts::guid_of(stat));
            if place == chosen.len() && place < count {
                chosen.push(one);
            } else if let Some(earlier) = chosen.get_mut(place) {
                *earlier = one;
            }
        }
    }
    for (pfn, guid) in chosen {
        shell.say(Item::new().with("pfn", pfn.clone()).with("guid", guid).saying(pfn)).await?;
    }
    Ok(())
}

/// Returns a random number below `end`.
fn below(end: u64) -> Outcome<u64> {
    Ok(u64::from_le_bytes(randomness::bytes()?) % end.max(1))
}
