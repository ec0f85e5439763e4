//! Users, groups, tokens and quotas: accounts, acting as another, and expiry.

use crate::fixture::{Fixture, account, lfn};
use exacat_catalogue::{Caller, Settings};
use exacat_model::answer::{TokenInfo, UserInfo};
use exacat_model::limits::{
    GROUPS_PER_USER_MAX, SUBJECTS_PER_USER_MAX, TOKEN_NOTE_BYTES_MAX, TOKENS_PER_USER_MAX,
};
use exacat_model::operation::{Owner, UserSettings};
use exacat_model::{
    AccountName, Answer, ErrorKind, ExpectRecord, Lfn, Mutation, Operation, Record, Role, TimeMs, Token,
    TokenId, UserId,
};
use exacat_testkit::settings;

async fn accounts(f: &Fixture, caller: &Caller) -> (Vec<UserInfo>, Vec<(u32, AccountName)>) {
    match f.get(caller, Operation::AccountList).await {
        Answer::Accounts { users, groups } => (users, groups),
        answer => panic!("{answer:?}"),
    }
}

async fn user(f: &Fixture, name: &str) -> Option<UserInfo> {
    accounts(f, &f.admin).await.0.into_iter().find(|user| user.name == account(name))
}

async fn set(f: &Fixture, settings: UserSettings) {
    f.get(&f.admin, Operation::UserSet(Box::new(settings))).await;
}

#[tokio::test]
async fn a_new_user_has_a_group_of_its_name_and_a_number_of_its_own() {
    let f = Fixture::new().await;
    set(&f, UserSettings { only_new: true, ..settings::user("dave") }).await;
    let dave = user(&f, "dave").await.unwrap();
    assert_eq!((dave.id, dave.group.as_str(), dave.disabled), (5, "dave", false));
    assert!(dave.roles.is_empty() && dave.groups.is_empty());
    let again = UserSettings { only_new: true, ..settings::user("dave") };
    assert_eq!(f.refusal(&f.admin, Operation::UserSet(Box::new(again))).await, ErrorKind::Exists);
    // Into an existing group.
    set(&f, UserSettings { group: Some(account("physics")), ..settings::user("erin") }).await;
    assert_eq!(user(&f, "erin").await.unwrap().group, account("physics"));
    assert!(accounts(&f, &f.admin).await.1.iter().all(|(_, name)| *name != account("erin")));
    let all = UserSettings {
        group: Some(account("physics")),
        groups: Some(vec![account("bob"), account("alice"), account("bob")]),
        roles: Some(vec![Role::Operator, Role::Operator]),
        may_become: Some(vec![account("alice")]),
        subjects: Some(vec!["/CN=dave".to_owned()]),
        home: Some(lfn("/home/dave")),
        disabled: Some(true),
        ..settings::user("dave")
    };
    set(&f, all).await;
    let dave = user(&f, "dave").await.unwrap();
    assert_eq!(dave.groups, [account("alice"), account("bob")]);
    assert_eq!((dave.roles, dave.may_become), (vec![Role::Operator], vec![account("alice")]));
    assert_eq!((dave.home, dave.disabled), (Some(lfn("/home/dave")), true));
    // Only operators and the user see the names of certificates.
    let seen = accounts(&f, &f.bob).await.0.into_iter().find(|user| user.name == account("dave")).unwrap();
    assert!(seen.subjects.is_empty() && seen.may_become.is_empty());
    let many = (0..=GROUPS_PER_USER_MAX).map(|number| format!("g{number}")).collect::<Vec<_>>();
    for name in &many {
        f.get(&f.admin, Operation::GroupAdd { name: account(name) }).await;
    }
    let groups = |count: usize| Some(many[..count].iter().map(|name| account(name)).collect());
    set(&f, UserSettings { groups: groups(GROUPS_PER_USER_MAX), ..settings::user("bob") }).await;
    for (bad, kind) in [
        (UserSettings { group: Some(account("none")), ..settings::user("dave") }, ErrorKind::NotFound),
        (UserSettings { groups: Some(vec![account("none")]), ..settings::user("dave") }, ErrorKind::NotFound),
        (
            UserSettings { may_become: Some(vec![account("none")]), ..settings::user("dave") },
            ErrorKind::NotFound,
        ),
        (
            UserSettings { subjects: Some(vec!["/CN=dave".to_owned()]), ..settings::user("bob") },
            ErrorKind::Exists,
        ),
        (UserSettings { subjects: Some(vec![" ".to_owned()]), ..settings::user("bob") }, ErrorKind::Invalid),
        (UserSettings { subjects: Some(vec!["x".repeat(1025)]), ..settings::user("bob") }, ErrorKind::Limit),
        (
            UserSettings {
                subjects: Some((0..=SUBJECTS_PER_USER_MAX).map(|number| number.to_string()).collect()),
                ..settings::user("bob")
            },
            ErrorKind::Limit,
        ),
        (UserSettings { groups: groups(GROUPS_PER_USER_MAX + 1), ..settings::user("bob") }, ErrorKind::Limit),
        (UserSettings { roles: Some(Vec::new()), ..settings::user("admin") }, ErrorKind::Invalid),
        (UserSettings { disabled: Some(true), ..settings::user("admin") }, ErrorKind::Invalid),
        (settings::user("gone-3"), ErrorKind::Invalid),
    ] {
        assert_eq!(f.refusal(&f.admin, Operation::UserSet(Box::new(bad.clone()))).await, kind, "{bad:?}");
    }
}

#[tokio::test]
async fn numbers_of_dropped_accounts_are_not_given_again() {
    let f = Fixture::new().await;
    let drop_user = |name: &str| Operation::UserDrop { name: account(name) };
    for _ in 0..3 {
        set(&f, settings::user("dave")).await;
        f.get(&f.admin, drop_user("dave")).await;
        assert!(user(&f, "dave").await.is_none());
    }
    set(&f, settings::user("dave")).await;
    assert_eq!(user(&f, "dave").await.unwrap().id, 8);
    assert_eq!(accounts(&f, &f.admin).await.0.len(), 6);
    // The group stayed, and is used again; dropped groups keep their number too.
    f.get(&f.admin, Operation::GroupAdd { name: account("temp") }).await;
    f.get(&f.admin, Operation::GroupDrop { name: account("temp") }).await;
    f.get(&f.admin, Operation::GroupAdd { name: account("temp") }).await;
    let groups = accounts(&f, &f.admin).await.1;
    assert_eq!(groups.iter().find(|(_, name)| *name == account("temp")).unwrap().0, 13);
    assert!(groups.iter().all(|(_, name)| !name.as_str().starts_with("gone-")));
    assert_eq!(f.refusal(&f.admin, drop_user("gone-7")).await, ErrorKind::Invalid);
    assert_eq!(f.refusal(&f.admin, drop_user("nobody")).await, ErrorKind::NotFound);
    // An account that owns anything stays; so does the first account, and a group with members.
    f.plant_file("/bob/file", 2, 0o644, 1, vec![]).await;
    assert_eq!(f.refusal(&f.admin, drop_user("bob")).await, ErrorKind::Exists);
    assert_eq!(f.refusal(&f.admin, drop_user("admin")).await, ErrorKind::Exists);
    let group = Operation::GroupDrop { name: account("physics") };
    assert_eq!(f.refusal(&f.admin, group).await, ErrorKind::Exists);
    assert_eq!(
        f.refusal(&f.admin, Operation::GroupAdd { name: account("physics") }).await,
        ErrorKind::Exists
    );
    f.audit().await;
}

fn issue(scope: &str, write: bool, lifetime_seconds: u64) -> Operation {
    Operation::TokenIssue {
        user: None,
        scope: lfn(scope),
        write,
        lifetime_seconds,
        note: "a note".to_owned(),
    }
}

async fn issued(f: &Fixture, caller: &Caller, operation: Operation) -> (TokenInfo, String) {
    match f.get(caller, operation).await {
        Answer::TokenIssued { token, secret } => (*token, secret),
        answer => panic!("{answer:?}"),
    }
}

async fn kind_of(f: &Fixture, secret: &str) -> Option<ErrorKind> {
    f.catalogue.authenticate(secret).await.err().map(|error| error.kind)
}

#[tokio::test]
async fn the_life_of_a_token() {
    let f = Fixture::new().await;
    let (token, secret) = issued(&f, &f.alice, issue("/alice", true, 100)).await;
    assert!(secret.starts_with("exa_"));
    let caller = f.catalogue.authenticate(&secret).await.unwrap();
    assert_eq!((caller.user(), caller.scope(), caller.may_write()), (Some(UserId(1)), &lfn("/alice"), true));
    assert_eq!((caller.token(), caller.expires()), (Some(token.id), Some(token.expires)));
    // The stored form is not the secret.
    let bytes = exacat_model::codec::Encode::to_bytes(
        &f.catalogue.store().changes(exacat_model::Revision(0), 1000).await.unwrap().changes,
    );
    let random = &secret.as_bytes()[21..];
    assert!(!bytes.windows(random.len()).any(|window| window == random));
    let mut wrong = secret.clone();
    let last = if wrong.ends_with('0') { '1' } else { '0' };
    wrong.pop();
    wrong.push(last);
    for bad in [&wrong, "", "exa_", &secret[4..], &secret.to_uppercase()] {
        assert_eq!(kind_of(&f, bad).await, Some(ErrorKind::Unauthenticated), "{bad}");
    }
    // The token expires, also on an open connection.
    f.clock.turn(99_999);
    assert_eq!(kind_of(&f, &secret).await, None);
    assert!(f.catalogue.still_valid(&token.id).await.unwrap());
    f.get(&caller, Operation::Whoami).await;
    f.clock.turn(1);
    assert_eq!(kind_of(&f, &secret).await, Some(ErrorKind::Unauthenticated));
    assert!(!f.catalogue.still_valid(&token.id).await.unwrap());
    assert_eq!(f.refusal(&caller, Operation::Whoami).await, ErrorKind::Unauthenticated);
    // Revoked, it ends at once.
    let (token, secret) = issued(&f, &f.alice, issue("/", false, 100)).await;
    let caller = f.catalogue.authenticate(&secret).await.unwrap();
    f.get(&f.alice, Operation::TokenRevoke { id: token.id }).await;
    assert_eq!(kind_of(&f, &secret).await, Some(ErrorKind::Unauthenticated));
    assert!(!f.catalogue.still_valid(&token.id).await.unwrap());
    assert_eq!(f.catalogue.revalidate(&caller).await.unwrap_err().kind, ErrorKind::Unauthenticated);
    let gone = Operation::TokenRevoke { id: token.id };
    assert_eq!(f.refusal(&f.alice, gone).await, ErrorKind::NotFound);
}

#[tokio::test]
async fn a_token_gives_no_more_than_its_issuer_has() {
    let f = Fixture::new().await;
    for (operation, kind) in [
        (issue("/", true, 0), ErrorKind::Invalid),
        (issue("/", true, Settings::default().token_seconds_max + 1), ErrorKind::Limit),
        (
            Operation::TokenIssue {
                user: None,
                scope: Lfn::root(),
                write: true,
                lifetime_seconds: 1,
                note: "x".repeat(TOKEN_NOTE_BYTES_MAX + 1),
            },
            ErrorKind::Limit,
        ),
    ] {
        assert_eq!(f.refusal(&f.alice, operation).await, kind);
    }
    issued(&f, &f.alice, issue("/", true, Settings::default().token_seconds_max)).await;
    let (_, secret) = issued(&f, &f.alice, issue("/alice/a", true, 100)).await;
    let narrow = f.catalogue.authenticate(&secret).await.unwrap();
    f.clock.turn(50_000);
    for (operation, allowed) in [
        (issue("/alice/a", true, 50), true),
        (issue("/alice/a/b", false, 10), true),
        (issue("/alice/a", true, 51), false),
        (issue("/alice", true, 10), false),
        (issue("/alice/ab", true, 10), false),
    ] {
        let answer = f.ask(&narrow, operation.clone()).await;
        assert_eq!(
            answer.as_ref().err().map(|error| error.kind),
            (!allowed).then_some(ErrorKind::Denied),
            "{operation:?}"
        );
    }
    let reading = f.scoped("alice", "/", false);
    assert_eq!(f.refusal(&reading, issue("/", false, 10)).await, ErrorKind::Denied);
    // Only an admin may issue a token for another user.
    let for_bob = Operation::TokenIssue {
        user: Some(account("bob")),
        scope: Lfn::root(),
        write: true,
        lifetime_seconds: 10,
        note: String::new(),
    };
    assert_eq!(f.refusal(&f.alice, for_bob.clone()).await, ErrorKind::Denied);
    let (token, secret) = issued(&f, &f.admin, for_bob).await;
    assert_eq!(f.catalogue.authenticate(&secret).await.unwrap().user(), Some(UserId(2)));
    // Users do not see others' tokens. A narrow token may not revoke the user's wider ones, but
    // always itself.
    let Answer::Tokens(mine) = f.get(&f.alice, Operation::TokenList).await else { panic!() };
    assert!(mine.iter().all(|token| token.user == account("alice")));
    assert_eq!(f.refusal(&f.alice, Operation::TokenRevoke { id: token.id }).await, ErrorKind::NotFound);
    let wide = mine.iter().find(|token| token.scope.is_root()).unwrap().id;
    assert_eq!(f.refusal(&narrow, Operation::TokenRevoke { id: wide }).await, ErrorKind::Denied);
    f.get(&narrow, Operation::TokenRevoke { id: narrow.token().unwrap() }).await;
    f.get(&f.admin, Operation::TokenRevoke { id: token.id }).await;
}

/// Goal: a caller who knows the operation id of an issued token gets no more from it than from
/// issuing one.
#[tokio::test]
async fn a_repeated_issue_gives_no_more_than_its_asker_has() {
    let f = Fixture::new().await;
    let (wide, id) = (issue("/", true, 100), f.operation_id());
    let again = |caller: &Caller| {
        let (caller, wide, f) = (caller.clone(), wide.clone(), &f);
        async move { f.catalogue.execute(&caller, id, wide).await }
    };
    let Answer::TokenIssued { token, secret } = again(&f.alice).await.unwrap() else { panic!() };
    // For a subtree only, for reading only, with an earlier expiry; and of another user.
    let (_, short) = issued(&f, &f.alice, issue("/", true, 99)).await;
    let short = f.catalogue.authenticate(&short).await.unwrap();
    for caller in [f.scoped("alice", "/alice/sub", true), f.scoped("alice", "/", false), short] {
        assert_eq!(again(&caller).await.unwrap_err().kind, ErrorKind::Denied, "{caller:?}");
    }
    assert_eq!(again(&f.bob).await.unwrap_err().kind, ErrorKind::Conflict);
    assert_eq!(kind_of(&f, &secret).await, None, "the secret given first is good still");
    // A repeat with a token that lasts as long, and so with the token itself, gets the lost answer.
    let itself = f.catalogue.authenticate(&secret).await.unwrap();
    let Answer::TokenIssued { token: renewed, secret: second } = again(&itself).await.unwrap() else {
        panic!()
    };
    assert_eq!(renewed, token);
    assert_eq!(kind_of(&f, &secret).await, Some(ErrorKind::Unauthenticated));
    assert_eq!(kind_of(&f, &second).await, None);
    // Nobody gets a token that has expired.
    f.clock.turn(100_000);
    assert_eq!(again(&f.alice).await.unwrap_err().kind, ErrorKind::NotFound);
}

#[tokio::test]
async fn disabled_and_dropped_users_are_out_at_once() {
    let f = Fixture::new().await;
    set(&f, settings::user("dave")).await;
    let dave = f.catalogue.caller_named(&account("dave")).await.unwrap();
    let (token, secret) = issued(&f, &dave, issue("/", true, 1000)).await;
    let caller = f.catalogue.authenticate(&secret).await.unwrap();
    set(&f, UserSettings { disabled: Some(true), ..settings::user("dave") }).await;
    assert_eq!(kind_of(&f, &secret).await, Some(ErrorKind::Unauthenticated));
    assert!(!f.catalogue.still_valid(&token.id).await.unwrap());
    assert_eq!(f.catalogue.revalidate(&caller).await.unwrap_err().kind, ErrorKind::Unauthenticated);
    assert_eq!(f.catalogue.revalidate(&dave).await.unwrap_err().kind, ErrorKind::Unauthenticated);
    assert!(f.catalogue.caller_named(&account("dave")).await.is_err());
    let for_dave = Operation::TokenIssue {
        user: Some(account("dave")),
        scope: Lfn::root(),
        write: false,
        lifetime_seconds: 1,
        note: String::new(),
    };
    assert_eq!(f.refusal(&f.admin, for_dave).await, ErrorKind::Denied);
    // On an open connection, it changes nothing more.
    let mkdir = || Operation::Mkdir { lfns: vec![lfn("/open/daves")], parents: false, mode: None };
    assert_eq!(f.refusal(&caller, mkdir()).await, ErrorKind::Unauthenticated);
    // Enabled again, its tokens are valid again; a new role holds from the next check on.
    set(
        &f,
        UserSettings { disabled: Some(false), roles: Some(vec![Role::Operator]), ..settings::user("dave") },
    )
    .await;
    assert!(!caller.is_operator());
    assert!(f.catalogue.revalidate(&caller).await.unwrap().is_operator());
    f.get(&f.admin, Operation::UserDrop { name: account("dave") }).await;
    assert_eq!(kind_of(&f, &secret).await, Some(ErrorKind::Unauthenticated));
    assert_eq!(f.refusal(&caller, Operation::Whoami).await, ErrorKind::Unauthenticated);
    assert_eq!(f.refusal(&caller, mkdir()).await, ErrorKind::Unauthenticated);
    f.audit().await;
}

#[tokio::test]
async fn acting_as_another() {
    let f = Fixture::new().await;
    let become_user = |caller: &Caller, name: &str| {
        let (caller, name, f) = (caller.clone(), account(name), &f);
        async move { f.catalogue.become_user(&caller, &name).await }
    };
    let bob = become_user(&f.admin, "bob").await.unwrap();
    assert_eq!((bob.user(), bob.is_admin()), (Some(UserId(2)), false));
    assert_eq!(become_user(&f.alice, "bob").await.unwrap_err().kind, ErrorKind::Denied);
    assert_eq!(become_user(&f.alice, "nobody").await.unwrap_err().kind, ErrorKind::NotFound);
    assert_eq!(become_user(&f.anonymous, "bob").await.unwrap_err().kind, ErrorKind::Unauthenticated);
    assert_eq!(become_user(&f.alice, "alice").await.unwrap().user(), Some(UserId(1)));
    set(&f, UserSettings { may_become: Some(vec![account("bob")]), ..settings::user("alice") }).await;
    // The limits of the token stay, and so does its expiry.
    let (_, secret) = issued(&f, &f.alice, issue("/bob", false, 100)).await;
    let caller = f.catalogue.authenticate(&secret).await.unwrap();
    let bob = become_user(&caller, "bob").await.unwrap();
    assert_eq!((bob.user(), bob.scope(), bob.may_write()), (Some(UserId(2)), &lfn("/bob"), false));
    assert_eq!(bob.expires(), caller.expires());
    assert_eq!(f.catalogue.revalidate(&bob).await.unwrap().user(), Some(UserId(2)));
    set(&f, UserSettings { may_become: Some(Vec::new()), ..settings::user("alice") }).await;
    assert_eq!(f.catalogue.revalidate(&bob).await.unwrap_err().kind, ErrorKind::Denied);
    // The same for a caller without a token.
    let may_become = |names: Vec<AccountName>| {
        set(&f, UserSettings { may_become: Some(names), ..settings::user("alice") })
    };
    may_become(vec![account("bob")]).await;
    let bob = become_user(&f.alice, "bob").await.unwrap();
    assert_eq!(f.catalogue.revalidate(&bob).await.unwrap().user(), bob.user());
    may_become(Vec::new()).await;
    assert_eq!(f.catalogue.revalidate(&bob).await.unwrap_err().kind, ErrorKind::Denied);
    let bob = become_user(&f.admin, "bob").await.unwrap();
    let again = f.catalogue.revalidate(&bob).await.unwrap();
    assert_eq!(again.user(), bob.user(), "an admin may be anyone");
    set(&f, UserSettings { disabled: Some(true), ..settings::user("bob") }).await;
    assert!(become_user(&f.admin, "bob").await.is_err());
    // By the subject of a certificate.
    set(&f, UserSettings { subjects: Some(vec!["/C=CH/CN=Carol".to_owned()]), ..settings::user("carol") })
        .await;
    assert_eq!(f.catalogue.caller_of_subject("/C=CH/CN=Carol").await.unwrap().user(), Some(UserId(4)));
    assert_eq!(f.catalogue.caller_of_subject("/C=CH").await.unwrap_err().kind, ErrorKind::Unauthenticated);
}

#[tokio::test]
async fn tokens_of_a_user_have_a_limit_and_expired_ones_are_forgotten() {
    let f = Fixture::new().await;
    let record = |number: u64, expires: TimeMs| Mutation::SetRecord {
        record: Box::new(Record::Token(Token {
            id: TokenId(number),
            hash: [0; 32],
            user: UserId(1),
            issued: TimeMs(0),
            expires,
            scope: Lfn::root(),
            write: false,
            note: String::new(),
        })),
        expect: ExpectRecord::Absent,
    };
    let now = exacat_store::Clock::now(&f.clock);
    let most = TOKENS_PER_USER_MAX as u64 - 1;
    f.apply(1, (0..most).map(|number| record(number, now.plus_ms(1000))).collect()).await;
    f.apply(1, vec![record(most, now)]).await;
    issued(&f, &f.alice, issue("/", true, 3600)).await;
    assert_eq!(f.refusal(&f.alice, issue("/", true, 3600)).await, ErrorKind::Limit);
    issued(&f, &f.bob, issue("/", true, 3600)).await;
    f.clock.turn(1000);
    issued(&f, &f.alice, issue("/", true, 3600)).await;
    // Shown for a week, then dropped, a bounded number at a time.
    assert_eq!(f.catalogue.expired_tokens_step().await.unwrap().done, 0);
    f.clock.turn(7 * 24 * 3600 * 1000);
    let mut done = 0;
    loop {
        let report = f.catalogue.expired_tokens_step().await.unwrap();
        assert!(report.done <= 500);
        done += report.done;
        if !report.more {
            break;
        }
    }
    // All but the three issued above, which are expired for less than a week.
    assert_eq!(done, TOKENS_PER_USER_MAX as u64);
    let Answer::Tokens(left) = f.get(&f.admin, Operation::TokenList).await else { panic!() };
    assert_eq!(left.len(), 3);
}

#[tokio::test]
async fn quotas_are_seen_by_those_they_limit() {
    let f = Fixture::new().await;
    f.plant_file("/alice/file", 1, 0o644, 10, vec![]).await;
    let set = |owner: Owner, files: Option<u64>| Operation::QuotaSet {
        owner,
        files,
        bytes: None,
        replica_bytes: None,
    };
    f.get(&f.op, set(Owner::User(account("alice")), Some(5))).await;
    f.get(&f.op, set(Owner::Group(account("physics")), Some(6))).await;
    let get = |owners: Vec<Owner>| Operation::QuotaGet { owners };
    let Answer::Quotas(items) = f.get(&f.alice, get(Vec::new())).await else { panic!() };
    let shown: Vec<(Owner, Option<u64>, u64)> =
        items.into_iter().map(|item| (item.owner, item.files, item.used.objects())).collect();
    assert_eq!(
        shown,
        [
            (Owner::User(account("alice")), Some(5), 1),
            (Owner::Group(account("alice")), None, 1),
            (Owner::Group(account("physics")), Some(6), 0),
        ]
    );
    assert_eq!(f.refusal(&f.alice, get(vec![Owner::User(account("bob"))])).await, ErrorKind::Denied);
    assert_eq!(f.refusal(&f.bob, get(vec![Owner::Group(account("physics"))])).await, ErrorKind::Denied);
    assert_eq!(f.refusal(&f.op, get(vec![Owner::Group(account("none"))])).await, ErrorKind::NotFound);
    assert_eq!(f.refusal(&f.op, set(Owner::User(account("none")), Some(1))).await, ErrorKind::NotFound);
    // A quota without limits is no quota; removing a missing one changes nothing.
    for _ in 0..2 {
        f.get(&f.op, set(Owner::User(account("alice")), None)).await;
    }
    let Answer::Quotas(items) = f.get(&f.op, get(vec![Owner::User(account("alice"))])).await else {
        panic!()
    };
    assert_eq!(items[0].files, None);
    f.audit().await;
}

#[tokio::test]
async fn whoami_says_what_one_may() {
    let f = Fixture::with(Settings { anonymous_reads: true, ..Settings::default() }).await;
    let Answer::Whoami { user, scope, write } =
        f.get(&f.scoped("alice", "/alice", false), Operation::Whoami).await
    else {
        panic!()
    };
    assert_eq!((user.unwrap().name, scope, write), (account("alice"), lfn("/alice"), false));
    let Answer::Whoami { user, write, .. } = f.get(&f.anonymous, Operation::Whoami).await else { panic!() };
    assert_eq!((user, write), (None, false));
}
