//! The page of a file: sites and states of its replicas, its archive, its members, collections with it.

use exacat_model::operation::{Attribute, Existing, NewFile, NewReplica, SeSettings};
use exacat_model::{Answer as Answered, FileRef, Lfn, Mode, Operation, ReplicaState, SeName};

use crate::pages::Person;
use crate::web::Answer;
use crate::world::{World, lfn};

/// Name that tries to leave its place.
const HOSTILE: &str = "<script>\u{202e}\"x";

async fn storage_element(world: &World, name: &str) {
    let prefix = Some(format!("https://{}.example.org/data", name.len()));
    let se =
        SeSettings { prefix, qos: Some(Vec::new()), only_new: true, ..exacat_testkit::settings::se(name) };
    world.admin(Operation::SeSet(se)).await;
}

async fn register(world: &World, file: NewFile) {
    let register = Operation::Register { files: vec![file], parents: true, existing: Existing::Refuse };
    match world.admin(register).await {
        Answered::Registered(outcomes) => assert!(outcomes[0].is_ok(), "{outcomes:?}"),
        other => panic!("{other:?}"),
    }
}

fn member(path: &str, archive: &Lfn, name: &str) -> NewFile {
    NewFile { member_of: Some((FileRef::Lfn(archive.clone()), name.to_owned())), ..NewFile::named(lfn(path)) }
}

async fn collection(world: &World, path: &str, files: &[&Lfn]) {
    world.admin(Operation::CollectionCreate { lfn: lfn(path), tags: Vec::new() }).await;
    let add = files.iter().map(|file| FileRef::Lfn((*file).clone())).collect();
    world.admin(Operation::CollectionEdit { lfn: lfn(path), add, remove: Vec::new() }).await;
}

async fn close(world: &World, path: &str) {
    let attributes = vec![Attribute::Mode(Mode::new(0o700).unwrap())];
    world.admin(Operation::SetAttributes { lfns: vec![lfn(path)], attributes }).await;
}

/// Returns the target of the link with this text.
fn target(page: &Answer, text: &str) -> String {
    let before = page.text().split_once(&format!("\">{text}</a>")).unwrap_or_else(|| panic!("{text}")).0;
    before.rsplit_once("href=\"").unwrap().1.replace("&#38;", "&")
}

fn harmless(page: &Answer) {
    let html = page.text();
    assert!(!html.contains("<script>") && !html.contains('\u{202e}'), "{html}");
}

/// Property: each replica has the site of its storage element's name and its state, also one that cannot be
/// read; a name without a site has none.
#[tokio::test(flavor = "multi_thread")]
async fn replicas_have_site_and_state() {
    let world = World::new().await;
    for name in ["VO::CERN::EOS", "VO::GSI::TAPE", "PLAIN"] {
        storage_element(&world, name).await;
    }
    let replica = |name: &str, state| NewReplica { se: SeName::parse(name).unwrap(), pfn: None, state };
    let replicas = vec![
        replica("VO::CERN::EOS", ReplicaState::Available),
        replica("PLAIN", ReplicaState::Suspect),
        replica("VO::GSI::TAPE", ReplicaState::Lost),
    ];
    register(&world, NewFile { replicas, ..NewFile::named(lfn("/d/f")) }).await;
    let mut admin = Person::admin(&world).await;
    let page = admin.get("/entry/d/f").await;
    let cell = |text: &str| format!("<bdi>{text}</bdi>");
    for wanted in ["VO::CERN::EOS", "CERN", "available", "PLAIN", "suspect", "VO::GSI::TAPE", "GSI", "lost"] {
        assert!(page.text().contains(&cell(wanted)), "{wanted}: {}", page.text());
    }
    assert_eq!(page.text().matches(&cell("not readable")).count(), 1, "{}", page.text());
    let text = page.text();
    let place = |name: &str| text.find(&cell(name)).unwrap();
    assert!(place("VO::CERN::EOS") < place("PLAIN") && place("PLAIN") < place("VO::GSI::TAPE"), "best first");
    // Who may not read the file sees its metadata alone.
    let token = world.new_user("jane").await;
    let attributes = vec![Attribute::Mode(Mode::new(0o600).unwrap())];
    world.admin(Operation::SetAttributes { lfns: vec![lfn("/d/f")], attributes }).await;
    let page = Person::with_token(&world, &token).await.get("/entry/d/f").await;
    assert_eq!(page.status, 200, "{}", page.text());
    assert!(page.text().contains("You may not read the file") && !page.text().contains("CERN"));
    assert!(page.text().contains("history is hidden from you"), "{}", page.text());
}

/// Property: a member links to its archive, and an archive finds its members, below a directory or
/// everywhere; names in it are text, and nobody learns of an archive or members hidden from them.
#[tokio::test(flavor = "multi_thread")]
async fn members_and_archives_lead_to_each_other() {
    let world = World::new().await;
    let archive = lfn("/packed/all.zip");
    register(&world, NewFile::named(archive.clone())).await;
    register(&world, member("/d/in.root", &archive, HOSTILE)).await;
    register(&world, member(&format!("/other/{HOSTILE}"), &archive, "two")).await;
    register(&world, member("/secret/three", &archive, "three")).await;
    close(&world, "/secret").await;
    let mut admin = Person::admin(&world).await;
    let page = admin.get("/entry/d/in.root").await;
    harmless(&page);
    assert!(page.text().contains("href=\"/entry/packed/all.zip\""), "{}", page.text());
    assert!(page.text().contains("<h2>Member of an archive</h2>"), "{}", page.text());
    let page = admin.get("/entry/packed/all.zip").await;
    assert!(!page.text().contains("Member of an archive"));
    let page = admin.get(&target(&page, "Find members, if it is an archive")).await;
    assert!(page.text().contains("There is none below this directory."), "{}", page.text());
    let everywhere = target(&page, "Search the whole catalogue for them");
    let page = admin.get(&everywhere).await;
    harmless(&page);
    assert!(page.text().contains("/d/in.root") && page.text().contains("/secret/three"), "{}", page.text());
    assert!(page.text().contains("Entries: 3, and no more."), "{}", page.text());
    let token = world.new_user("jane").await;
    let mut jane = Person::with_token(&world, &token).await;
    let page = jane.get(&everywhere).await;
    assert!(page.text().contains("/d/in.root") && !page.text().contains("/secret/three"), "{}", page.text());
    close(&world, "/packed").await;
    let page = jane.get("/entry/d/in.root").await;
    assert_eq!(page.status, 200, "{}", page.text());
    assert!(page.text().contains("gone, or hidden from you") && !page.text().contains("all.zip"));
    for bad in ["find=none", "find=%3Cscript%3E", "find=members&under=x", "find=members&cursor=x"] {
        let page = admin.get(&format!("/entry/packed/all.zip?{bad}")).await;
        assert!(matches!(page.status, 400 | 404), "{bad}: {}", page.status);
        harmless(&page);
    }
}

/// Property: the collections with a file are found, and no others, nor those whose members the person may
/// not read.
#[tokio::test(flavor = "multi_thread")]
async fn collections_with_a_file_are_found() {
    let world = World::new().await;
    let files = world.files("/d", 3).await;
    collection(&world, "/d/all", &files.iter().collect::<Vec<_>>()).await;
    collection(&world, "/d/first", &[&files[0]]).await;
    collection(&world, "/d/last", &[&files[2]]).await;
    collection(&world, "/d/closed", &[&files[1]]).await;
    world.directory("/far").await;
    collection(&world, &format!("/far/{HOSTILE}"), &[&files[1]]).await;
    close(&world, "/d/closed").await;
    let token = world.new_user("jane").await;
    let (mut admin, mut jane) = (Person::admin(&world).await, Person::with_token(&world, &token).await);
    let found = |page: &Answer| {
        harmless(page);
        let all = ["/d/all", "/d/first", "/d/last", "/d/closed", "/far/"];
        let shown = |name: &&str| page.text().contains(&format!("<bdi>{name}"));
        all.into_iter().filter(shown).collect::<Vec<_>>()
    };
    let page = admin.get("/entry/d/f000001").await;
    let near = target(&page, "Find collections with the file");
    let page = admin.get(&near).await;
    assert_eq!(found(&page), ["/d/all", "/d/closed"], "{}", page.text());
    let page = admin.get(&target(&page, "Search the whole catalogue for them")).await;
    assert_eq!(found(&page), ["/d/all", "/d/closed", "/far/"], "{}", page.text());
    assert_eq!(found(&jane.get(&near).await), ["/d/all"]);
    assert_eq!(found(&admin.get("/entry/d/f000002?find=collections").await), ["/d/all", "/d/last"]);
}
