//! Relations of a file: the archive that it is in, the members that it has as an archive, and the
//! collections that contain it. The catalogue has an index of the first alone, so a search finds the others.

use exacat_catalogue::members_from;
use exacat_model::answer::Stat;
use exacat_model::{Answer, ErrorKind, File, FileRef, Filter, Guid, Kind, Lfn, Location, Operation, Result};

use super::browse::{ROWS, entries};
use super::filling::{Filled, fill};
use super::frame::{Link, Pager, Section};
use super::table::{CODE, Cell, Table};
use super::text::{url, visible, with};
use super::visit::{Visit, unfitting};

/// Names of the list in its cursors, and of their parameter.
const LIST: (&str, &str) = ("page-of-relations", "cursor");
/// Parameters: the relation to search for, and the directory to search.
const FIND: &str = "find";
const UNDER: &str = "under";

/// A relation that takes a search: its name in URLs, the text of its link, and its heading.
struct Relation {
    name: &'static str,
    link: &'static str,
    heading: &'static str,
}

const COLLECTIONS: Relation = Relation {
    name: "collections",
    link: "Find collections with the file",
    heading: "Collections with the file",
};
const MEMBERS: Relation = Relation {
    name: "members",
    link: "Find members, if it is an archive",
    heading: "Files that are members of this archive",
};

fn search_url(lfn: &Lfn, relation: &Relation, under: &Lfn) -> String {
    with(with(url("/entry", lfn), FIND, relation.name), UNDER, under.as_str())
}

/// Returns the table with the archive that a file is in; none for other files. The person may not see the
/// path of the archive: then it is named by its GUID alone.
pub(super) async fn archive(visit: &mut Visit<'_>, file: &File) -> Result<Option<Section>> {
    let inside = file.replicas.iter().find_map(|replica| match &replica.location {
        Location::Member { archive, member } => Some((*archive, member)),
        _ => None,
    });
    let Some((archive, member)) = inside else { return Ok(None) };
    let found = match visit.call.ask(Operation::Lfns { guids: vec![archive] }).await? {
        Answer::Lfns(mut found) => found.pop().unwrap_or_else(|| Err(unfitting())),
        _ => return Err(unfitting()),
    };
    let mut table = Table::new("Archive", &[("Archive", ""), ("Name in it", ""), ("GUID", CODE)]);
    table.push([
        found.as_ref().map_or_else(|_| Cell::text("gone, or hidden from you"), Cell::lfn),
        Cell::text(member),
        Cell::text(archive),
    ]);
    Ok(Some(Section::new("Member of an archive", table)))
}

/// Adds the relations of a file that take a search to its page: links that begin one, and the outcome of the
/// one that the query names.
pub(super) async fn searched(
    visit: &mut Visit<'_>,
    lfn: &Lfn,
    guid: Guid,
    links: &mut Vec<Link>,
) -> Result<Option<Section>> {
    let above = lfn.parent().unwrap_or_else(Lfn::root);
    links.extend(
        [&COLLECTIONS, &MEMBERS].map(|relation| Link::new(relation.link, search_url(lfn, relation, &above))),
    );
    let Some(name) = visit.query.get(FIND) else { return Ok(None) };
    let Some(relation) = [&COLLECTIONS, &MEMBERS].into_iter().find(|relation| relation.name == name) else {
        let wrong =
            format!("the page of a file finds {} and {}, not {name:.60?}", COLLECTIONS.name, MEMBERS.name);
        return Err(exacat_model::Error::invalid(wrong));
    };
    let under = visit.query.parsed(UNDER)?.unwrap_or(above);
    let cursor = visit.query.cursor(LIST)?;
    if !under.is_root() {
        let everywhere = search_url(lfn, relation, &Lfn::root());
        links.push(Link::new("Search the whole catalogue for them", everywhere));
    }
    let is_members = relation.name == MEMBERS.name;
    let operation = match is_members {
        true => Operation::ArchiveMembers {
            archive: FileRef::Guid(guid),
            under: under.clone(),
            cursor: cursor.clone(),
            limit: ROWS,
        },
        false => Operation::Find {
            lfn: under.clone(),
            filter: Box::new(Filter { kinds: vec![Kind::Collection], ..Filter::default() }),
            cursor: cursor.clone(),
            limit: ROWS,
        },
    };
    let mut found = fill(visit, operation, |_| true).await?;
    if !is_members {
        let mut with_it = Vec::new();
        for collection in std::mem::take(&mut found.items) {
            if contains(visit, &collection, guid).await? {
                with_it.push(collection);
            }
        }
        found.items = with_it;
    }
    let mut table = entries(relation.heading.to_owned(), &found.items, true);
    table.empty = match found.next {
        Some(_) => "Nothing found so far; the next page searches on.",
        None => "There is none below this directory.",
    };
    let heading = format!("{}, below {}. {}", relation.heading, visible(under.as_str()), told(&found));
    let pager = Pager::new(&search_url(lfn, relation, &under), LIST, &cursor, found.next.as_ref());
    Ok(Some(Section { pager, ..Section::new(heading, table) }))
}

/// Tells the outcome, unless the table without rows does.
fn told(found: &Filled) -> String {
    if found.items.is_empty() { String::new() } else { found.told() }
}

/// Says whether a collection contains a file: one look at its members, which are sorted. A collection whose
/// members the person may not read counts as one without it.
async fn contains(visit: &mut Visit<'_>, collection: &Stat, guid: Guid) -> Result<bool> {
    let look =
        Operation::CollectionMembers { lfn: collection.lfn.clone(), cursor: members_from(guid), limit: 1 };
    match visit.call.ask(look).await {
        Ok(Answer::Members { items, .. }) => Ok(items.first().is_some_and(|member| member.guid == guid)),
        Ok(_) => Err(unfitting()),
        // It may have gone, or been replaced, since the search found it.
        Err(error) if matches!(error.kind, ErrorKind::Denied | ErrorKind::NotFound | ErrorKind::Invalid) => {
            Ok(false)
        }
        Err(error) => Err(error),
    }
}
