//! Uploads: reserved, written elsewhere, registered; and those that fail.

use exacat_model::Operation;
use exacat_model::operation::SeSettings;
use serde_json::Value;

use crate::alien::{Alien, new_user, world};
use crate::world::{World, account};

const MD5: &str = "3e8381becc0ec67e19f76f1b6aadb675";
const LFN: &str = "/alice/cern.ch/user/j/jdoe/up/f";

/// Adds two storage elements.
pub(crate) async fn storage(world: &World) {
    for (number, name) in [(1, "ALICE::TEST::SE1"), (2, "ALICE::TEST::SE2")] {
        let se = SeSettings {
            name: exacat_model::SeName::parse(name).unwrap(),
            number: Some(number),
            prefix: Some(format!("root://se{number}.example:1094//data")),
            qos: Some(vec![account("disk")]),
            status: None,
            distances: vec![(account("CERN"), u32::from(number))],
            https: None,
            only_new: true,
        };
        world.admin(Operation::SeSet(se)).await;
    }
}

async fn uploader() -> (World, Alien) {
    let world = world().await;
    new_user(&world, "jdoe", |_| {}).await;
    storage(&world).await;
    let alien = Alien::user(&world, "jdoe").await;
    (world, alien)
}

async fn reserve(alien: &mut Alien, specs: &str) -> Vec<Value> {
    let answer = alien.done("access", &["-s", "11", "-m", MD5, "write", LFN, specs]).await;
    answer["results"].as_array().unwrap().clone()
}

fn field<'a>(place: &'a Value, name: &str) -> &'a str {
    place[name].as_str().unwrap()
}

fn commit<'a>(place: &'a Value, size: &'a str, lfn: &'a str, md5: &'a str) -> Vec<&'a str> {
    let field = |name| field(place, name);
    vec![field("envelope"), size, lfn, "644", "0", field("url"), field("se"), field("guid"), md5]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_is_seen_once_it_is_committed_and_has_the_replicas_that_were() {
    let (_world, mut alien) = uploader().await;
    let places = reserve(&mut alien, "disk:2").await;
    assert_eq!(places.len(), 2);
    assert_eq!(alien.fails("stat", &[LFN]).await, libc::ENOENT);
    let answer = alien.done("commit", &commit(&places[0], "11", LFN, MD5)).await;
    assert_eq!((&answer["results"][0]["path"], &answer["results"][0]["lfn"]), (&LFN.into(), &"1".into()));
    assert_eq!(alien.fields("md5", "stat", &[LFN]).await, [MD5]);
    assert_eq!(alien.fields("seName", "whereis", &[LFN]).await, [field(&places[0], "se")]);
    // The answer was lost; another connection repeats the request with another id.
    alien.done("commit", &commit(&places[0], "11", LFN, MD5)).await;
    // The other could not be written: another place for the same file, then none is left.
    let exclude = format!("disk:1,!{}", field(&places[0], "se"));
    let more = reserve(&mut alien, &exclude).await;
    assert_eq!(field(&more[0], "guid"), field(&places[0], "guid"));
    assert_eq!(field(&more[0], "se"), field(&places[1], "se"));
    alien.done("commit", &commit(&more[0], "11", LFN, MD5)).await;
    assert_eq!(alien.fields("seName", "whereis", &[LFN]).await.len(), 2);
    let all = "disk:1,!ALICE::TEST::SE1,!ALICE::TEST::SE2";
    assert_eq!(alien.fails("access", &["-s", "11", "-m", MD5, "write", LFN, all]).await, libc::EBADFD);
    // Another file under that name.
    assert_eq!(alien.fails("access", &["-s", "12", "-m", MD5, "write", LFN]).await, libc::EINVAL);
    assert_eq!(alien.fails("access", &["-s", "11", "write", LFN]).await, libc::EINVAL);

    let read = alien.done("access", &["read", LFN, "ALICE::TEST::SE2"]).await;
    let results = read["results"].as_array().unwrap();
    assert_eq!(field(&results[0], "se"), "ALICE::TEST::SE2");
    assert!(results.iter().all(|place| field(place, "md5") == MD5 && field(place, "size") == "11"));
    let one = alien.done("access", &["-f", "read", LFN, "ALICE::TEST::SE1"]).await;
    assert_eq!(one["results"].as_array().unwrap().len(), 1);
    // A place nearer to the client's site comes first.
    alien.done("setSite", &["CERN"]).await;
    let near = alien.done("access", &["read", LFN]).await;
    assert_eq!(field(&near["results"][0], "se"), "ALICE::TEST::SE1");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn envelopes_that_are_forged_or_for_something_else_register_nothing() {
    let (world, mut alien) = uploader().await;
    new_user(&world, "eve", |_| {}).await;
    let places = reserve(&mut alien, "disk:1").await;
    let place = &places[0];
    let sealed = field(place, "envelope");
    let good = commit(place, "11", LFN, MD5);
    let change = |at: usize, to: &'static str| {
        let mut words = good.clone();
        words[at] = to;
        words
    };
    for (at, to) in [
        (0, "x.y.z"),
        (1, "12"),
        (2, "/alice/cern.ch/user/j/jdoe/up/other"),
        (2, "/alice/cern.ch/user/j/jdoe/up/../../eve/f"),
        (6, "ALICE::TEST::SE9"),
        (7, "5d9a8f1e-5607-11ee-90f9-6c02e09897e9"),
        (8, "00000000000000000000000000000000"),
    ] {
        assert_eq!(alien.fails("commit", &change(at, to)).await, libc::EBADR, "{to}");
    }
    let (signed, signature) = sealed.rsplit_once('.').unwrap();
    let (header, claims) = signed.split_once('.').unwrap();
    for forged in [
        format!("{header}.{claims}."),
        format!("{header}.{claims}.{}", &signature[2..]),
        format!("{header}.{}A.{signature}", &claims[..claims.len() - 1]),
        sealed.to_uppercase(),
    ] {
        let mut words = good.clone();
        words[0] = &forged;
        assert_eq!(alien.fails("commit", &words).await, libc::EBADR);
    }
    // Another user with the right envelope, and an envelope for reading.
    let mut eve = Alien::user(&world, "eve").await;
    assert_eq!(eve.fails("commit", &good).await, libc::EBADR);
    assert_eq!(alien.fails("stat", &[LFN]).await, libc::ENOENT, "nothing was registered");
    alien.done("commit", &good).await;
    let read = alien.done("access", &["read", LFN]).await;
    let reading = field(&read["results"][0], "envelope").to_owned();
    let mut words = good.clone();
    words[0] = &reading;
    assert_eq!(alien.fails("commit", &words).await, libc::EBADR);
    assert_eq!(alien.fails("commit", &["x"]).await, libc::EBADR);
    assert_eq!(alien.fails("commit", &[]).await, libc::EINVAL);
    // An old envelope does not restore a removed file.
    alien.done("rm", &[LFN]).await;
    assert_eq!(alien.fails("commit", &good).await, libc::EBADR);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_reserved_and_not_written_in_time_is_given_back() {
    let (world, mut alien) = uploader().await;
    world
        .admin(Operation::QuotaSet {
            owner: exacat_model::operation::Owner::User(account("jdoe")),
            files: Some(2),
            bytes: Some(20),
            replica_bytes: None,
        })
        .await;
    let places = reserve(&mut alien, "disk:1").await;
    assert_eq!(alien.fields("totalSize", "fquota", &["list"]).await, ["11"], "what is reserved counts");
    let other = "/alice/cern.ch/user/j/jdoe/g";
    assert_eq!(alien.fails("access", &["-s", "11", "-m", MD5, "write", other]).await, libc::EDQUOT);
    world.clock.turn(25 * 3_600_000);
    let mut alien = {
        // The token has not expired, the reservation has.
        assert_eq!(alien.fails("commit", &commit(&places[0], "11", LFN, MD5)).await, libc::EBADR);
        alien
    };
    let worker = world.server.catalogue();
    worker.expired_reservations_step().await.unwrap();
    assert_eq!(alien.fields("totalSize", "fquota", &["list"]).await, ["0"]);
    alien.done("access", &["-s", "11", "-m", MD5, "write", other]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_site_of_the_clients_network_counts_until_it_says_another() {
    let place = tempfile::tempdir().unwrap();
    let networks = place.path().join("networks");
    std::fs::write(&networks, "127.0.0.0/8 NEAR\n").unwrap();
    let world = crate::alien::world_with(|settings| settings.networks = Some(networks)).await;
    storage(&world).await;
    let name = |number: u16| exacat_model::SeName::parse(&format!("ALICE::TEST::SE{number}")).unwrap();
    let nearer = SeSettings {
        name: name(2),
        number: None,
        prefix: None,
        qos: None,
        status: None,
        distances: vec![(account("NEAR"), 0)],
        https: None,
        only_new: false,
    };
    world.admin(Operation::SeSet(nearer)).await;
    let replica = |number| exacat_model::operation::NewReplica {
        se: name(number),
        pfn: None,
        state: exacat_model::ReplicaState::Available,
    };
    let file = exacat_model::operation::NewFile {
        replicas: vec![replica(1), replica(2)],
        ..exacat_model::operation::NewFile::named(crate::world::lfn("/near/f"))
    };
    let existing = exacat_model::operation::Existing::Refuse;
    world.admin(Operation::Register { files: vec![file], parents: true, existing }).await;
    let mut alien = Alien::admin(&world).await;
    for (site, first) in [(None, 2), (Some("CERN"), 1), (Some(""), 2)] {
        if let Some(site) = site {
            let options: Vec<&str> = Some(site).into_iter().filter(|site| !site.is_empty()).collect();
            alien.done("setSite", &options).await;
        }
        let told = alien.fields("seName", "whereis", &["/near/f"]).await;
        assert_eq!(told[0], name(first).as_str(), "{site:?}");
    }
}
